import type { Log } from '../base/log.js';
import type { Tell } from '../base/meters.js';
import { holdfastVersion } from '../base/version.js';
import { expose, ProcessFigures } from './exposition.js';
import { MeterBook, type Snapshot } from './meter-book.js';
import { serveMetrics } from './serve.js';
import { type MetricRow, rowsOf } from './table.js';

/**
 * The metrics of one process: what its main thread counts in `book`, and what is asked for at each scrape.
 */
export class ProcessMetrics {
  readonly book: MeterBook;
  readonly #rows: readonly MetricRow[];
  readonly #process = new ProcessFigures();

  constructor(process: 'node' | 'controller') {
    this.#rows = rowsOf(process);
    this.book = new MeterBook(this.#rows);
    const version = holdfastVersion();
    this.book.gauges((tell) => tell('holdfast_build_info', 1, { version }));
  }

  /** Serves them, with what `gather` brings. Port 0: they are not served. */
  async serve(
    place: { readonly host: string; readonly port: number },
    gather: () => Promise<Gathered>,
    log: Log,
  ): Promise<{ stop(): Promise<void> }> {
    if (place.port === 0) return { stop: () => Promise.resolve() };
    const server = await serveMetrics(place.host, place.port, () => this.text(gather), log);
    log.info({ host: place.host, port: server.port }, 'metrics are served');
    return server;
  }

  async text(gather: () => Promise<Gathered>): Promise<string> {
    const { tell, snapshots = [] } = await gather();
    const asked = new MeterBook(this.#rows);
    asked.gauges(tell);
    const all = [this.book.snapshot(), asked.snapshot(), ...snapshots];
    return `${await expose(this.#rows, all)}\n${await this.#process.text()}`;
  }
}

/** What one scrape has asked for. */
export interface Gathered {
  /** Tells what is the case. */
  readonly tell: (tell: Tell) => void;
  /** What other threads have counted. */
  readonly snapshots?: readonly Snapshot[];
}
