import { pino, type Logger } from 'pino';

export type Log = Logger;

/** One event a line, JSON on standard error, so that standard output stays free for answers. */
export function createLog(name: string, level: string): Log {
  const destination = pino.destination({ dest: 2, sync: true });
  // A full disk behind standard error must not end the process.
  destination.on('error', () => undefined);
  return pino({ name, level }, destination);
}

/** For tests and tools that say nothing. */
export function silentLog(): Log {
  return pino({ level: 'silent' });
}
