import type { Clock, Random } from '../io/io.js';

/** Waits, or returns early when the signal aborts. */
export function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const end = (): void => {
      signal.removeEventListener('abort', end);
      cancel();
      resolve();
    };
    const cancel = clock.timer(delayMs, end);
    signal.addEventListener('abort', end);
  });
}

/** Growing pauses between tries: doubled at each try up to a bound, each shortened by chance by up to a half. */
export class BackOff {
  #delayMs: number;

  constructor(
    private readonly random: Pick<Random, 'fraction'>,
    private readonly firstMs: number,
    private readonly maxMs: number,
  ) {
    this.#delayMs = firstMs;
  }

  next(): number {
    const delayMs = this.#delayMs * (1 - this.random.fraction() / 2);
    this.#delayMs = Math.min(this.#delayMs * 2, this.maxMs);
    return delayMs;
  }

  reset(): void {
    this.#delayMs = this.firstMs;
  }
}
