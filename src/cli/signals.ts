import { HoldfastError } from '../base/errors.js';

const SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

/** Aborts at the first signal to end; the second one ends the process at once. */
export function abortOnSignal(): AbortSignal {
  const controller = new AbortController();
  for (const name of SIGNALS) {
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(130);
      controller.abort();
    });
  }
  return controller.signal;
}

/**
 * Starts something, waits for a signal to end, and stops it. A signal during the start aborts the one given to it; a
 * second signal ends the process at once.
 */
export async function untilSignal(start: (signal: AbortSignal) => Promise<() => Promise<void>>): Promise<void> {
  const controller = new AbortController();
  const signalled = new Promise<void>((resolve) => {
    for (const name of SIGNALS) {
      process.on(name, () => {
        if (controller.signal.aborted) process.exit(130);
        controller.abort();
        resolve();
      });
    }
  });
  // The signal handlers alone would not keep the process alive.
  const alive = setInterval(() => undefined, 2 ** 30);
  try {
    const stop = await start(controller.signal);
    await signalled;
    await stop();
    // Whatever still holds the event loop has nothing to do any more.
    process.exit();
  } catch (error) {
    // Stopped while it was starting, as it was told to.
    if (!(controller.signal.aborted && error instanceof HoldfastError && error.code === 'cancelled')) throw error;
  } finally {
    clearInterval(alive);
  }
}
