import { HoldfastError } from '../base/errors.js';
import { KeyedMutex } from '../base/mutex.js';

/** setTimeout takes no longer delay (Node.js timers). */
const MAX_DELAY_MS = 2 ** 31 - 1;

/**
 * One call at a time for each key, in order of arrival, with a bound on the wait: whoever has not begun within it is
 * refused with `aborted`, and never begins.
 */
export class Turns<K> {
  readonly #mutex = new KeyedMutex<K>();

  take<T>(key: K, waitMs: number, section: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      let state: 'waiting' | 'begun' | 'left' = 'waiting';
      const timer = setTimeout(
        () => {
          if (state !== 'waiting') return;
          state = 'left';
          reject(
            new HoldfastError(
              'aborted',
              `another operation on ${String(key)} is under way and outlasts the deadline; try again`,
            ),
          );
        },
        Math.min(Math.max(waitMs, 0), MAX_DELAY_MS),
      );
      const turn = this.#mutex.run(key, async () => {
        clearTimeout(timer);
        if (state === 'left') return;
        state = 'begun';
        resolve(await section());
      });
      turn.catch(reject);
    });
  }
}
