import type { Clock } from '../../../src/io/io.js';

interface Timer {
  readonly at: number;
  readonly fire: () => void;
}

/** A clock that a test moves by hand. */
export class HandClock implements Clock {
  #now = 0;
  #timers: Timer[] = [];

  now(): number {
    return this.#now;
  }

  timer(delayMs: number, fire: () => void): () => void {
    const timer = { at: this.#now + delayMs, fire };
    this.#timers.push(timer);
    return () => (this.#timers = this.#timers.filter((each) => each !== timer));
  }

  sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => void this.timer(delayMs, resolve));
  }

  get timers(): number {
    return this.#timers.length;
  }

  /** Fires what is due on the way, each at its time, and lets what it sets off run to its next wait. */
  async advance(durationMs: number): Promise<void> {
    const end = this.#now + durationMs;
    await settle();
    for (;;) {
      const due = this.#timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#timers = this.#timers.filter((each) => each !== due);
      this.#now = Math.max(this.#now, due.at);
      due.fire();
      await settle();
    }
    this.#now = end;
  }
}

/** Lets all that is ready run. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
