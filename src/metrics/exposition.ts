import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import type { Labels } from '../base/meters.js';
import type { HistogramValue, Snapshot } from './meter-book.js';
import type { MetricRow } from './table.js';

export const CONTENT_TYPE = Registry.PROMETHEUS_CONTENT_TYPE;

/**
 * Figures in the text format of Prometheus. Several snapshots (of threads) are added up. Every row of the table is told
 * of, with its help, also where nothing has been counted under it yet.
 */
export function expose(rows: readonly MetricRow[], snapshots: readonly Snapshot[]): Promise<string> {
  const lines = new Map<string, Line[]>(rows.map(({ name }) => [name, []]));
  const buckets = new Map(rows.map((row) => [row.name, row.buckets ?? []]));
  for (const { values, histograms } of snapshots) {
    for (const { name, labels, value } of values) lines.get(name)?.push({ labels, value });
    for (const histogram of histograms) {
      lines.get(histogram.name)?.push(...linesOf(histogram, buckets.get(histogram.name) ?? []));
    }
  }
  const metrics = rows.map(({ name, help, type }) => ({
    ...{ name, help, type, aggregator: 'sum' },
    values: lines.get(name) ?? [],
  }));
  return AggregatorRegistry.aggregate([metrics]).metrics();
}

interface Line {
  readonly metricName?: string;
  readonly labels: Labels;
  readonly value: number;
}

/** A bucket's line counts all that is at most its bound. */
function linesOf({ name, labels, counts, sum }: HistogramValue, bounds: readonly number[]): Line[] {
  let below = 0;
  const lines: Line[] = [...bounds.map(String), '+Inf'].map((le, index) => {
    below += counts[index] ?? 0;
    return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: below };
  });
  return [
    ...lines,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: below },
  ];
}

/** Figures of the process itself (memory, processor time, event loop of its main thread), by prom-client. */
export class ProcessFigures {
  readonly #registry = new Registry();

  constructor() {
    collectDefaultMetrics({ register: this.#registry, eventLoopMonitoringPrecision: 100 });
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }
}
