import type { Clock } from '../io/io.js';

/**
 * What all resyncs of a data path share: how many copy at once, and how fast they are together. So the return of a node
 * with many replicas does not take its peers' disks and network from their clients.
 */
export class ResyncBounds {
  #running = 0;
  readonly #waiting: (() => void)[] = [];
  /** Until when the bytes that were taken last the rate. */
  #paidUntil = 0;

  constructor(
    private readonly clock: Clock,
    private readonly atOnce: number,
    private readonly bytesPerSecond: number,
    /** Clients of any writer here wait for an answer. */
    private readonly busy: () => boolean,
  ) {}

  /** Waits for its turn, in order of arrival. The returned function ends the turn; repeats do nothing. */
  async take(): Promise<() => void> {
    if (this.#running < this.atOnce) this.#running++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    let over = false;
    return () => {
      if (over) return;
      over = true;
      const next = this.#waiting.shift();
      // The turn goes from hand to hand, so that nobody can come in between.
      if (next) next();
      else this.#running--;
    };
  }

  /** Resyncs that wait for their turn. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Waits until bytes that were sent have taken their time: by the rate, or by half of it while clients wait. */
  async pace(bytes: number): Promise<void> {
    const now = this.clock.now();
    const costMs = (bytes / this.bytesPerSecond) * 1_000 * (this.busy() ? 2 : 1);
    this.#paidUntil = Math.max(this.#paidUntil, now) + costMs;
    const pauseMs = this.#paidUntil - now;
    if (pauseMs >= 1) await this.clock.sleep(pauseMs);
  }
}
