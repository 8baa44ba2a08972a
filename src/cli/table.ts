/** Rows under headings, in columns as wide as their widest text. Columns named in `right` stand to the right. */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly string[] = [],
): string {
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...rows.map((row) => (row[column] ?? '').length)),
  );
  const line = (row: readonly string[]): string =>
    headings
      .map((heading, column) => {
        const text = row[column] ?? '';
        const width = widths[column] ?? 0;
        return right.includes(heading) ? text.padStart(width) : text.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [headings, ...rows].map(line).join('\n');
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Bytes with a unit, to one decimal where that says more: `512 MiB`, `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const step = bytes < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  const value = bytes / 1024 ** step;
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${UNITS[step] ?? ''}`;
}

/** Time since a moment, in its largest whole unit: `3 d`, `2 h`, `41 s`; `-` where there was none. */
export function formatAge(since: string, now: number): string {
  const milliseconds = now - Date.parse(since);
  if (Number.isNaN(milliseconds)) return '-';
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds >= 86_400) return `${Math.floor(seconds / 86_400)} d`;
  if (seconds >= 3_600) return `${Math.floor(seconds / 3_600)} h`;
  if (seconds >= 60) return `${Math.floor(seconds / 60)} min`;
  return `${seconds} s`;
}
