import { assert, present } from '../base/assert.js';
import type { Counter, Histogram, Labels, Meters, Tell } from '../base/meters.js';
import type { MetricRow } from './table.js';

/** Figures at one moment, as they travel between threads. */
export interface Snapshot {
  readonly values: readonly Value[];
  readonly histograms: readonly HistogramValue[];
}

export interface Value {
  readonly name: string;
  readonly labels: Labels;
  readonly value: number;
}

export interface HistogramValue {
  readonly name: string;
  readonly labels: Labels;
  /** How many values fell into each bucket of the row, and, as the last, above all of them. */
  readonly counts: readonly number[];
  readonly sum: number;
}

interface Series<T> {
  readonly name: string;
  readonly labels: Labels;
  readonly meter: T;
}

/** The meters of one thread. A name without a row, or labels that are not the row's, are a defect. */
export class MeterBook implements Meters {
  readonly #rows: ReadonlyMap<string, MetricRow>;
  readonly #counters = new Map<string, Series<CountedCounter>>();
  readonly #histograms = new Map<string, Series<CountedHistogram>>();
  readonly #readers: ((tell: Tell) => void)[] = [];

  constructor(rows: readonly MetricRow[]) {
    this.#rows = new Map(rows.map((row) => [row.name, row]));
  }

  counter(name: string, labels: Labels = {}): Counter {
    this.#check(name, 'counter', labels);
    return seriesOf(this.#counters, name, labels, () => new CountedCounter());
  }

  histogram(name: string, labels: Labels = {}): Histogram {
    const { buckets } = this.#check(name, 'histogram', labels);
    return seriesOf(
      this.#histograms,
      name,
      labels,
      () => new CountedHistogram(present(buckets, `${name} has buckets`)),
    );
  }

  gauges(read: (tell: Tell) => void): void {
    this.#readers.push(read);
  }

  forget(labels: Labels): void {
    for (const all of [this.#counters, this.#histograms]) {
      for (const [key, series] of all) if (hasLabels(series.labels, labels)) all.delete(key);
    }
  }

  snapshot(): Snapshot {
    const values: Value[] = [...this.#counters.values()].map(({ name, labels, meter }) => ({
      name,
      labels,
      value: meter.value,
    }));
    const tell: Tell = (name, value, labels = {}) => {
      // A counter may be told too, by whoever keeps it itself.
      this.#check(name, this.#rows.get(name)?.type === 'counter' ? 'counter' : 'gauge', labels);
      values.push({ name, labels, value });
    };
    for (const read of this.#readers) read(tell);
    const histograms = [...this.#histograms.values()].map(({ name, labels, meter }) => ({
      name,
      labels,
      counts: [...meter.counts],
      sum: meter.sum,
    }));
    return { values, histograms };
  }

  #check(name: string, type: MetricRow['type'], labels: Labels): MetricRow {
    const row = this.#rows.get(name);
    assert(row?.type === type, `the table of metrics has a ${type} ${name}`);
    const given = Object.keys(labels);
    assert(
      given.length === row.labels.length && given.every((label) => row.labels.includes(label)),
      `${name} has the labels ${row.labels.join(', ')}, not ${given.join(', ')}`,
    );
    return row;
  }
}

class CountedCounter implements Counter {
  value = 0;

  add(amount = 1): void {
    this.value += amount;
  }
}

class CountedHistogram implements Histogram {
  readonly counts: Float64Array;
  sum = 0;

  constructor(private readonly bounds: readonly number[]) {
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    let at = 0;
    while (at < this.bounds.length && value > (this.bounds[at] ?? Infinity)) at++;
    this.counts[at] = (this.counts[at] ?? 0) + 1;
    this.sum += value;
  }
}

function seriesOf<T>(all: Map<string, Series<T>>, name: string, labels: Labels, make: () => T): T {
  const key = `${name} ${JSON.stringify(Object.entries(labels).sort())}`;
  const known = all.get(key);
  if (known) return known.meter;
  const meter = make();
  all.set(key, { name, labels, meter });
  return meter;
}

function hasLabels(labels: Labels, wanted: Labels): boolean {
  return Object.entries(wanted).every(([name, value]) => labels[name] === value);
}
