import type { Log } from '../../src/base/log.js';

/** Takes the lines of a run's story; undefined: nobody reads it. */
export type Tell = ((who: string, line: string) => void) | undefined;

type Write = (fields: unknown, text?: string) => void;

const nothing: Write = () => undefined;

/** The log of a simulated process: its lines become part of the run's story. */
export function simLog(tell: Tell, who: string): Log {
  const write =
    (level: string): Write =>
    (fields, text) =>
      tell?.(who, `${level} ${text ?? ''} ${tellFields(fields)}`.trimEnd());
  const log = {
    level: tell ? 'debug' : 'silent',
    trace: nothing,
    debug: tell ? write('debug') : nothing,
    info: tell ? write('info') : nothing,
    warn: tell ? write('warn') : nothing,
    error: tell ? write('error') : nothing,
    fatal: tell ? write('fatal') : nothing,
    child: () => log,
  };
  return log as unknown as Log;
}

function tellFields(fields: unknown): string {
  if (typeof fields === 'string') return fields;
  if (typeof fields !== 'object' || fields === null) return '';
  return Object.entries(fields)
    .map(([name, value]) => `${name}=${value instanceof Error ? `${value.name}: ${value.message}` : String(value)}`)
    .join(' ');
}
