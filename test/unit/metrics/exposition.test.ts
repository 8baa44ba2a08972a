import { describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { NO_METERS } from '../../../src/base/meters.js';
import { CountedStore } from '../../../src/metrics/counted-store.js';
import { metricsPage } from '../../../src/metrics/document.js';
import { expose } from '../../../src/metrics/exposition.js';
import { MeterBook } from '../../../src/metrics/meter-book.js';
import { ProcessMetrics } from '../../../src/metrics/process-metrics.js';
import { serveMetrics } from '../../../src/metrics/serve.js';
import { METRIC_SECTIONS, rowsOf } from '../../../src/metrics/table.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { parseExposition } from '../../support/exposition.js';

const ROWS = METRIC_SECTIONS.flatMap(({ rows }) => rows);

describe('the table of metrics', () => {
  it('names each metric once, as Prometheus would have it', () => {
    expect(new Set(ROWS.map(({ name }) => name)).size).toBe(ROWS.length);
    for (const { name, type, help, labels, buckets } of ROWS) {
      expect(name).toMatch(/^holdfast_[a-z_]+$/);
      expect([name, name.endsWith('_total')]).toEqual([name, type === 'counter']);
      expect(help).toMatch(/^([A-Z0-9]|gRPC).*\.$/);
      expect(labels).not.toContain('le');
      if (type !== 'histogram') continue;
      expect(name).toMatch(/_seconds$/);
      expect(buckets).toEqual([...(buckets ?? [])].sort((a, b) => a - b));
    }
  });

  it('is what docs/metrics.md says', async () => {
    // With `npx vitest run --project unit test/unit/metrics --update` the page is written anew.
    await expect(metricsPage()).toMatchFileSnapshot('../../../docs/metrics.md');
  });

  it('is told of in full, also where nothing was counted yet', async () => {
    for (const process of ['node', 'controller'] as const) {
      const metrics = new ProcessMetrics(process);
      const families = parseExposition(await metrics.text(() => Promise.resolve({ tell: () => undefined })));
      for (const row of rowsOf(process)) {
        expect(families.get(row.name)).toMatchObject({ type: row.type, help: row.help });
      }
      const own = [...families.keys()].filter((name) => name.startsWith('holdfast_'));
      expect(own.sort()).toEqual(
        rowsOf(process)
          .map(({ name }) => name)
          .sort(),
      );
      expect(families.get('process_resident_memory_bytes')?.lines).toHaveLength(1);
    }
  });
});

describe('meters', () => {
  it('refuse what has no row, and labels that are not those of the row', () => {
    const book = new MeterBook(ROWS);
    expect(() => book.counter('holdfast_unheard_of_total')).toThrow(/table of metrics/);
    expect(() => book.counter('holdfast_writer_epoch', { volume: 'v' })).toThrow(/table of metrics/);
    expect(() => book.counter('holdfast_resyncs_total', { volume: 'v' })).toThrow(/labels outcome/);
    book.gauges((tell) => tell('holdfast_writer_epoch', 1));
    expect(() => book.snapshot()).toThrow(/labels volume/);
  });

  it('are added up over threads', async () => {
    const [one, other] = [new MeterBook(ROWS), new MeterBook(ROWS)];
    for (const book of [one, other]) {
      book.counter('holdfast_resyncs_total', { outcome: 'done' }).add();
      book.counter('holdfast_resyncs_total', { outcome: 'done' }).add(2);
      const flushes = book.histogram('holdfast_disk_request_seconds', { op: 'flush' });
      for (const seconds of [0.0001, 0.002, 99]) flushes.observe(seconds);
      book.gauges((tell) => tell('holdfast_slab_bytes', 10, { slab: 'copy' }));
    }
    const families = parseExposition(await expose(ROWS, [one.snapshot(), other.snapshot()]));
    expect(families.get('holdfast_resyncs_total')?.lines).toEqual([
      { name: 'holdfast_resyncs_total', labels: { outcome: 'done' }, value: 6 },
    ]);
    expect(families.get('holdfast_slab_bytes')?.lines).toMatchObject([{ value: 20 }]);
    const flushes = families.get('holdfast_disk_request_seconds')?.lines ?? [];
    const bucket = (le: string): number | undefined => flushes.find(({ labels }) => labels['le'] === le)?.value;
    expect([bucket('0.0001'), bucket('0.001'), bucket('0.0025'), bucket('10'), bucket('+Inf')]).toEqual([
      2, 2, 4, 4, 6,
    ]);
    expect(flushes.find(({ name }) => name.endsWith('_count'))?.value).toBe(6);
    expect(flushes.find(({ name }) => name.endsWith('_sum'))?.value).toBeCloseTo(2 * 99.0021);
  });

  it('of a volume that has left are forgotten, and begin anew', () => {
    const book = new MeterBook(ROWS);
    const count = (volume: string): void =>
      book.counter('holdfast_volume_requests_total', { volume, op: 'read' }).add();
    count('vol-1');
    count('vol-2');
    book.forget({ volume: 'vol-1' });
    expect(book.snapshot().values.map(({ labels }) => labels['volume'])).toEqual(['vol-2']);
    count('vol-1');
    expect(book.snapshot().values.find(({ labels }) => labels['volume'] === 'vol-1')?.value).toBe(1);
  });

  it('write label values so that any text survives', async () => {
    const book = new MeterBook(ROWS);
    book.gauges((tell) => tell('holdfast_writer_info', 1, { volume: 'v', name: 'a "b" \\ c\nd' }));
    const families = parseExposition(await expose(ROWS, [book.snapshot()]));
    expect(families.get('holdfast_writer_info')?.lines[0]?.labels['name']).toBe('a \\"b\\" \\\\ c\\nd');
  });

  it('that nobody asks for count nothing', () => {
    expect(() => NO_METERS.counter('anything').add()).not.toThrow();
  });
});

describe('a counted store', () => {
  it('tells calls by method and outcome', async () => {
    const book = new MeterBook(ROWS);
    const store = new CountedStore(new MemoryStore(), book);
    await store.create('cluster', 'cluster', { schema: 1, clusterId: 'c' });
    await expect(store.create('cluster', 'cluster', { schema: 1, clusterId: 'c' })).rejects.toThrow();
    expect((await store.get('cluster', 'cluster'))?.record.clusterId).toBe('c');
    const { values, histograms } = book.snapshot();
    expect(Object.fromEntries(values.map(({ labels, value }) => [Object.values(labels).join(' '), value]))).toEqual({
      'create ok': 1,
      'create already-exists': 1,
      'get ok': 1,
    });
    expect(histograms.map(({ labels }) => labels['method']).sort()).toEqual(['create', 'get']);
  });
});

describe('the metrics server', () => {
  it('answers /metrics and nothing else', async () => {
    const metrics = new ProcessMetrics('node');
    let fails = false;
    const text = (): Promise<string> =>
      fails ? Promise.reject(new Error('no answer')) : metrics.text(() => Promise.resolve({ tell: () => undefined }));
    const server = await serveMetrics('127.0.0.1', 0, text, silentLog());
    const base = `http://127.0.0.1:${server.port}`;
    try {
      const found = await fetch(`${base}/metrics?name=x`);
      expect(found.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
      expect(parseExposition(await found.text()).has('holdfast_build_info')).toBe(true);
      expect((await fetch(`${base}/`)).status).toBe(404);
      expect((await fetch(`${base}/metrics`, { method: 'POST' })).status).toBe(405);
      fails = true;
      expect((await fetch(`${base}/metrics`)).status).toBe(500);
      await expect(serveMetrics('127.0.0.1', server.port, text, silentLog())).rejects.toMatchObject({
        code: 'unavailable',
      });
    } finally {
      await server.stop();
    }
  });
});
