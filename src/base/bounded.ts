import { asHoldfastError, HoldfastError } from './errors.js';

/**
 * The outcome of `work`, or `unavailable` where it takes longer than `limitMs`. What comes after that goes to
 * `discard`.
 */
export function bounded<T>(
  clock: { timer(delayMs: number, fire: () => void): () => void },
  limitMs: number,
  what: string,
  work: Promise<T>,
  discard: (late: T) => void = () => undefined,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let late = false;
    const cancel = clock.timer(limitMs, () => {
      late = true;
      reject(new HoldfastError('unavailable', `${what}: no answer within ${limitMs} ms`));
    });
    work.then(
      (value) => {
        cancel();
        if (late) discard(value);
        else resolve(value);
      },
      (error: unknown) => {
        cancel();
        reject(asHoldfastError(error));
      },
    );
  });
}
