import { pino } from 'pino';
import type { Log } from '../../src/base/log.js';

export type LogEvent = Readonly<Record<string, unknown>> & { readonly level: number; readonly msg: string };

/** Level of pino's `warn`. */
export const WARN = 40;

/** A log that keeps its events, from `warn` on. */
export class RecordingLog {
  readonly events: LogEvent[] = [];
  readonly log: Log = pino(
    { level: 'warn' },
    { write: (line: string) => void this.events.push(JSON.parse(line) as LogEvent) },
  );

  of(msg: string): LogEvent[] {
    return this.events.filter((event) => event.msg === msg);
  }
}
