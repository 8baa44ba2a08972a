import { isAbsolute, normalize } from 'node:path';
import { HoldfastError } from './base/errors.js';

/*
 * How the texts of settings become values. Each refuses with `invalid-argument` and the end of a sentence that begins
 * with the setting's name.
 */

/** Unix socket paths live in 108 bytes of struct sockaddr_un, the last of which is zero (unix(7)). */
export const SOCKET_PATH_BYTES = 107;

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  KiB: 1024,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
  TiB: 1024 ** 4,
};

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'];

export function integer(text: string, least: number, most: number): number {
  const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= least && value <= most)) {
    throw refused(`is ${quoted(text)}; give a whole number from ${least} to ${most}`);
  }
  return value;
}

export function nonNegativeNumber(text: string, least: number, most: number): number {
  const value = /^[0-9]{1,9}(\.[0-9]{1,9})?$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= least && value <= most)) throw refused(`is ${quoted(text)}; give a number from ${least} to ${most}`);
  return value;
}

/** Bytes of a text like `512MiB` or `40GiB`; undefined where it is none. A bare number is bytes. */
export function parseSize(text: string): number | undefined {
  const [, digits, unit] = /^([0-9]{1,15})(|KiB|MiB|GiB|TiB)$/.exec(text) ?? [];
  const factor = unit === undefined ? undefined : UNITS[unit];
  if (digits === undefined || factor === undefined) return undefined;
  const bytes = Number(digits) * factor;
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

/** A size in whole MiB. */
export function size(text: string, least: string, most: string): number {
  const bytes = parseSize(text);
  const inRange = bytes !== undefined && bytes >= (parseSize(least) ?? 0) && bytes <= (parseSize(most) ?? Infinity);
  if (!inRange || bytes % 1024 ** 2 !== 0) {
    throw refused(`is ${quoted(text)}; give a size in whole MiB from ${least} to ${most}, e.g. ${least}`);
  }
  return bytes;
}

export function absolutePath(text: string): string {
  if (!isAbsolute(text) || text.includes('\0')) throw refused(`is ${quoted(text)}; give an absolute path`);
  const path = normalize(text);
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
}

const DURATION_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, min: 60_000, h: 3_600_000 };

/** A whole number with a unit (ms, s, min, h), in milliseconds. */
export function duration(text: string, least: string, most: string): number {
  const value = millisecondsOf(text);
  const [from, to] = [millisecondsOf(least) ?? 0, millisecondsOf(most) ?? Infinity];
  if (value === undefined || value < from || value > to) {
    throw refused(`is ${quoted(text)}; give a time from ${least} to ${most}, e.g. 90s or 10min`);
  }
  return value;
}

function millisecondsOf(text: string): number | undefined {
  const [, count, unit = ''] = /^([0-9]{1,9})(ms|s|min|h)$/.exec(text) ?? [];
  const step = DURATION_MS[unit];
  return count === undefined || step === undefined ? undefined : Number(count) * step;
}

export function socketPath(text: string): string {
  const path = absolutePath(text);
  const bytes = Buffer.byteLength(path);
  if (bytes > SOCKET_PATH_BYTES) {
    throw refused(`is ${bytes} bytes long; the path of a unix socket may have at most ${SOCKET_PATH_BYTES}`);
  }
  return path;
}

/** RFC 1123 subdomain, as Kubernetes names nodes. */
export function nodeName(text: string): string {
  const label = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
  if (text.length > 253 || !new RegExp(`^${label}(\\.${label})*$`).test(text)) {
    throw refused(
      `is ${quoted(text)}; give a name of lower-case letters, digits, '-' and '.' that begins and ends with a letter or digit`,
    );
  }
  return text;
}

export function hostName(text: string): string {
  if (!/^[0-9A-Za-z.:-]{1,253}$/.test(text)) throw refused(`is ${quoted(text)}; give an IP address or a host name`);
  return text;
}

export function hostAndPort(text: string): string {
  const [, host, port] = /^(.+):([0-9]+)$/.exec(text) ?? [];
  if (host === undefined || port === undefined) throw refused(`is ${quoted(text)}; give HOST:PORT`);
  hostName(host.replace(/^\[(.*)\]$/, '$1'));
  integer(port, 1, 65_535);
  return text;
}

/** `KEY=VALUE` texts as topology segments (CSI: Topology.segments); `own` is set by the node itself. */
export function segments(texts: readonly string[], own: string): Readonly<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const text of texts) {
    const [, key, value] =
      /^([A-Za-z0-9][-A-Za-z0-9./_]*)=([A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?)$/.exec(text) ?? [];
    if (key === undefined || value === undefined) throw refused(`is ${quoted(text)}; give KEY=VALUE`);
    if (key === own) throw refused(`sets ${key}; the node sets that itself, from its name`);
    if (key in found) throw refused(`sets ${key} twice; set it once`);
    found[key] = value;
  }
  return Object.freeze(found);
}

export function logLevel(text: string): string {
  if (!LOG_LEVELS.includes(text)) throw refused(`is ${quoted(text)}; give one of ${LOG_LEVELS.join(', ')}`);
  return text;
}

function refused(message: string): HoldfastError {
  return new HoldfastError('invalid-argument', message);
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

/** Puts the name of a flag or setting before what is wrong with its value. */
export function named<T>(flag: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    if (error instanceof HoldfastError) throw new HoldfastError(error.code, `${flag} ${error.message}`);
    throw error;
  }
}
