import type { Clock } from '../../src/io/io.js';
import type { Schedule } from './schedule.js';

/** Node takes a delay that is longer than this, or shorter than 1 ms, for 1 ms. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** Who a callback belongs to: it is dropped where the process has died, and waits while that is paused. */
export interface Deliverer {
  readonly alive: boolean;
  deliver(fire: () => void): void;
}

interface Timer {
  readonly owner: Deliverer;
  /** In the machine's time. */
  readonly dueMs: number;
  readonly fire: () => void;
  cancel: () => void;
  live: boolean;
}

/** The monotonic clock of one machine, and the timers that go by it. */
export class MachineClock {
  #rate = 1;
  /** The machine's time at #since of the schedule's. */
  #base: number;
  #since: number;
  readonly #timers = new Set<Timer>();

  constructor(
    private readonly schedule: Schedule,
    startMs: number,
  ) {
    this.#base = startMs;
    this.#since = schedule.now;
  }

  now(): number {
    return this.#base + (this.schedule.now - this.#since) * this.#rate;
  }

  get rate(): number {
    return this.#rate;
  }

  set rate(rate: number) {
    this.#base = this.now();
    this.#since = this.schedule.now;
    this.#rate = rate;
    this.#planAll();
  }

  /** Goes on `ms` later; timers that are due by then fire at once. */
  jump(ms: number): void {
    this.#base += ms;
    this.#planAll();
  }

  /** As Node's setTimeout: whole milliseconds, one at least. */
  timer(owner: Deliverer, delayMs: number, fire: () => void): () => void {
    if (!owner.alive) return () => undefined;
    const delay = delayMs >= 1 && delayMs <= MAX_DELAY_MS ? Math.trunc(delayMs) : 1;
    const timer: Timer = { owner, dueMs: this.now() + delay, fire, cancel: () => undefined, live: true };
    this.#timers.add(timer);
    this.#plan(timer);
    return () => this.#end(timer);
  }

  /** Drops the timers of a process that has died. */
  forget(owner: Deliverer): void {
    for (const timer of this.#timers) if (timer.owner === owner) this.#end(timer);
  }

  /** The clock as one process sees it. */
  of(owner: Deliverer): Clock {
    return {
      now: () => this.now(),
      timer: (delayMs, fire) => this.timer(owner, delayMs, fire),
      sleep: (delayMs) => new Promise((resolve) => this.timer(owner, delayMs, resolve)),
    };
  }

  #plan(timer: Timer): void {
    const delay = Math.max(0, (timer.dueMs - this.now()) / this.#rate);
    timer.cancel = this.schedule.after(delay, () => {
      this.#timers.delete(timer);
      timer.owner.deliver(() => {
        if (timer.live) timer.fire();
      });
    });
  }

  #planAll(): void {
    for (const timer of this.#timers) {
      timer.cancel();
      this.#plan(timer);
    }
  }

  #end(timer: Timer): void {
    timer.live = false;
    timer.cancel();
    this.#timers.delete(timer);
  }
}
