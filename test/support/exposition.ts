/** One line of the Prometheus text format. */
export interface ExpositionLine {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ExpositionFamily {
  readonly type: string;
  readonly help: string;
  readonly lines: ExpositionLine[];
}

/**
 * Reads the text format as a scraper does: strictly. Every family has one HELP and one TYPE before its lines, every line
 * belongs to the family above it, no series comes twice, the buckets of a histogram rise and end with +Inf.
 */
export function parseExposition(text: string): Map<string, ExpositionFamily> {
  const families = new Map<string, ExpositionFamily>();
  const seen = new Set<string>();
  let help: { name: string; text: string } | undefined;
  let family: { name: string; of: ExpositionFamily } | undefined;
  if (!text.endsWith('\n')) throw new Error('the last line does not end');
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const [, helpName, helpText = ''] = /^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/.exec(line) ?? [];
    if (helpName !== undefined) {
      help = { name: helpName, text: helpText };
      continue;
    }
    const [, typeName, type] = /^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary)$/.exec(line) ?? [];
    if (typeName !== undefined && type !== undefined) {
      if (help?.name !== typeName) throw new Error(`TYPE without HELP: ${line}`);
      if (families.has(typeName)) throw new Error(`${typeName} comes twice`);
      family = { name: typeName, of: { type, help: help.text, lines: [] } };
      families.set(typeName, family.of);
      continue;
    }
    const parsed = parseLine(line);
    const suffixes = family?.of.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['', '_sum', '_count'];
    if (!family || !suffixes.some((suffix) => parsed.name === `${family?.name ?? ''}${suffix}`)) {
      throw new Error(`a line outside of its family: ${line}`);
    }
    const key = line.slice(0, line.lastIndexOf(' '));
    if (seen.has(key)) throw new Error(`a series comes twice: ${key}`);
    seen.add(key);
    family.of.lines.push(parsed);
  }
  for (const [name, { type, lines }] of families) if (type === 'histogram') checkBuckets(name, lines);
  return families;
}

function parseLine(line: string): ExpositionLine {
  const match = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
  if (!match) throw new Error(`not a line of the format: ${line}`);
  const [, name = '', labelText = '', valueText = ''] = match;
  const labels: Record<string, string> = {};
  const rest = labelText.replace(
    /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/g,
    (_all, label, value) => {
      labels[label as string] = value as string;
      return '';
    },
  );
  if (rest !== '') throw new Error(`labels that are none: ${line}`);
  const value = valueText === '+Inf' ? Infinity : valueText === 'Nan' ? Number.NaN : Number(valueText);
  if (Number.isNaN(value) && valueText !== 'Nan') throw new Error(`no number: ${line}`);
  return { name, labels, value };
}

function checkBuckets(name: string, lines: readonly ExpositionLine[]): void {
  const bySeries = new Map<string, { bounds: number[]; counts: number[]; count: number }>();
  for (const { name: of, labels, value } of lines) {
    const { le, ...others } = labels;
    const key = JSON.stringify(others);
    const series = bySeries.get(key) ?? { bounds: [], counts: [], count: Number.NaN };
    bySeries.set(key, series);
    if (of === `${name}_bucket`) {
      series.bounds.push(le === '+Inf' ? Infinity : Number(le));
      series.counts.push(value);
    } else if (of === `${name}_count`) series.count = value;
  }
  for (const [key, { bounds, counts, count }] of bySeries) {
    const rising = (values: number[], strictly: boolean): boolean =>
      values.every((value, at) => at === 0 || value > (values[at - 1] ?? 0) || (!strictly && value === values[at - 1]));
    if (!rising(bounds, true) || bounds.at(-1) !== Infinity || !rising(counts, false) || counts.at(-1) !== count) {
      throw new Error(`the buckets of ${name}${key} do not add up`);
    }
  }
}
