import { HoldfastError } from '../base/errors.js';
import type { CallContext } from '../base/grpc.js';
import type { KeyedMutex } from '../base/mutex.js';

/** Time for the refusal to reach the caller before its deadline. */
const MARGIN_MS = 250;
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Runs `section` when all earlier ones with the same key have ended. Whoever would have to wait past its deadline, or
 * has gone away, is refused with `aborted`, and its section never runs. A section that has begun runs to its end.
 */
export function inTurn<T>(
  turns: KeyedMutex<string>,
  key: string,
  what: string,
  context: CallContext,
  section: () => Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let state: 'waiting' | 'running' | 'given-up' = 'waiting';
    const giveUp = (): void => {
      if (state !== 'waiting') return;
      state = 'given-up';
      stopWaiting();
      reject(new HoldfastError('aborted', `another operation on ${what} is under way; try again`));
    };
    const timer = setTimeout(giveUp, Math.min(Math.max(0, context.remainingMs() - MARGIN_MS), MAX_TIMER_MS));
    const stopWaiting = (): void => {
      clearTimeout(timer);
      context.signal.removeEventListener('abort', giveUp);
    };
    context.signal.addEventListener('abort', giveUp);
    turns
      .run(key, async () => {
        if (state === 'given-up') return;
        state = 'running';
        stopWaiting();
        resolve(await section());
      })
      .catch(reject);
  });
}
