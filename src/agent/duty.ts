import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../base/log.js';
import { RepeatedFault } from '../store/repeated-fault.js';

export interface Duty {
  /** Lets the round that is under way end; no further one begins. */
  stop(): Promise<void>;
}

/**
 * Does something again and again, `intervalMs` after the last round has ended. `what` names it in the log, where a
 * fault that lasts is told once, with a count when it is over.
 */
export function startDuty(what: string, intervalMs: number, round: () => Promise<void>, log: Log): Duty {
  const stop = new AbortController();
  const ended = repeat(stop.signal, intervalMs, round, new RepeatedFault(log, what));
  return {
    stop: () => {
      stop.abort();
      return ended;
    },
  };
}

async function repeat(
  signal: AbortSignal,
  intervalMs: number,
  round: () => Promise<void>,
  fault: RepeatedFault,
): Promise<void> {
  while (!signal.aborted) {
    try {
      await round();
      fault.succeeded();
    } catch (error) {
      fault.failed(error);
    }
    await sleep(intervalMs, undefined, { signal, ref: false }).catch(() => undefined);
  }
}
