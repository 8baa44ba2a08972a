/** A time for people, in its two largest units: `850 ms`, `41 s`, `2 min 10 s`, `10 min`, `3 h 5 min`, `2 d`. */
export function inWords(milliseconds: number): string {
  if (milliseconds < 1_000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const seconds = Math.floor(milliseconds / 1_000);
  const parts = UNITS.map(({ unit, step, of }) => ({ unit, count: Math.floor(seconds / step) % of }));
  const first = parts.findIndex(({ count }) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(({ count }) => count > 0)
    .map(({ unit, count }) => `${count} ${unit}`)
    .join(' ');
}

const UNITS = [
  { unit: 'd', step: 86_400, of: Infinity },
  { unit: 'h', step: 3_600, of: 24 },
  { unit: 'min', step: 60, of: 60 },
  { unit: 's', step: 1, of: 60 },
];
