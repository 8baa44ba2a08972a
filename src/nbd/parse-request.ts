import { readUint64 } from './bytes.js';
import {
  BLOCK_BYTES,
  COMMAND_FLAG,
  ERRNO,
  MAX_DISCARD_BYTES,
  REQUEST_MAGIC,
  commandOf,
  type Command,
} from './commands.js';
import type { ReplyError } from './error-codes.js';

export const REQUEST_HEADER_BYTES = 28;

/** The 64 bits by which a client knows its reply again; only ever copied. */
export interface Cookie {
  readonly high: number;
  readonly low: number;
}

/** A request as it came, before it is judged. */
export interface RawRequest {
  readonly flags: number;
  readonly type: number;
  readonly cookie: Cookie;
  readonly offset: number;
  readonly length: number;
}

/** What decides whether a request is allowed. */
export interface Rules {
  readonly sizeBytes: number;
  readonly readOnly: boolean;
  /** Structured replies were negotiated. */
  readonly structured: boolean;
  /** base:allocation was selected. */
  readonly blockStatus: boolean;
  /** The export answers private commands. */
  readonly control: boolean;
}

export type Verdict =
  /** Carry it out; `length` may be 0. */
  | { readonly kind: 'accept'; readonly command: Command }
  /** Throw `payloadBytes` away and answer with the error. */
  | { readonly kind: 'refuse'; readonly error: ReplyError; readonly payloadBytes: number }
  /** The connection can not go on. */
  | { readonly kind: 'end'; readonly reason: string };

/** The header of a request; undefined where it does not begin with the magic number: the stream is out of step. */
export function parseRequest(view: DataView): RawRequest | undefined {
  if (view.getUint32(0) !== REQUEST_MAGIC) return undefined;
  return {
    flags: view.getUint16(4),
    type: view.getUint16(6),
    cookie: { high: view.getUint32(8), low: view.getUint32(12) },
    offset: readUint64(view, 16),
    length: view.getUint32(24),
  };
}

/** Judges a request by the protocol's rules ("Request types", "Size constraints", "Error values"). */
export function judgeRequest(request: RawRequest, rules: Rules): Verdict {
  const command = commandOf(request.type);
  if (command === undefined) return refuse(ERRNO.EINVAL, `command ${request.type} is not known`, 0);
  const payloadBytes = command.payload ? request.length : 0;
  if (payloadBytes > MAX_DISCARD_BYTES) {
    return { kind: 'end', reason: `a payload of ${payloadBytes} bytes is above ${MAX_DISCARD_BYTES}` };
  }
  const error =
    flagError(command, request, rules) ?? permissionError(command, rules) ?? rangeError(command, request, rules);
  if (error !== undefined) return { kind: 'refuse', error, payloadBytes };
  return { kind: 'accept', command };
}

function refuse(errno: number, message: string, payloadBytes: number): Verdict {
  return { kind: 'refuse', error: { errno, message }, payloadBytes };
}

function flagError(command: Command, request: RawRequest, rules: Rules): ReplyError | undefined {
  const { flags } = request;
  const allowed = rules.structured ? command.flags : command.flags & ~COMMAND_FLAG.df;
  if ((flags & ~allowed) !== 0) {
    return { errno: ERRNO.EINVAL, message: `command flags 0x${flags.toString(16)} don't go with ${command.name}` };
  }
  // Allocated zeroes are written, which is no faster than a write.
  if ((flags & COMMAND_FLAG.fastZero) !== 0 && (flags & COMMAND_FLAG.noHole) !== 0) {
    return { errno: ERRNO.ENOTSUP, message: 'zeroes without a hole are no faster than a write' };
  }
  return undefined;
}

function permissionError(command: Command, rules: Rules): ReplyError | undefined {
  if (command.writes && rules.readOnly) return { errno: ERRNO.EPERM, message: 'the export is read-only' };
  if (command.structured && !rules.structured) {
    return { errno: ERRNO.EINVAL, message: `${command.name} needs structured replies, which were not negotiated` };
  }
  if (command.name === 'block-status' && !rules.blockStatus) {
    return { errno: ERRNO.EINVAL, message: 'no metadata context was selected' };
  }
  if (command.name === 'holdfast' && !rules.control) {
    return { errno: ERRNO.EINVAL, message: 'this export takes no private commands' };
  }
  return undefined;
}

function rangeError(command: Command, request: RawRequest, rules: Rules): ReplyError | undefined {
  const { offset, length } = request;
  if (length > command.maxLength) {
    const errno = command.name === 'read' && rules.structured ? ERRNO.EOVERFLOW : ERRNO.EINVAL;
    return { errno, message: `length ${length} of ${command.name} is above ${command.maxLength}` };
  }
  if (!command.ranged) return undefined;
  if (offset + length > rules.sizeBytes) {
    const allocates = command.name === 'write' || command.name === 'write-zeroes';
    const end = `${offset} + ${length} of ${command.name} lies beyond the export's ${rules.sizeBytes} bytes`;
    return { errno: allocates ? ERRNO.ENOSPC : ERRNO.EINVAL, message: end };
  }
  if (offset % BLOCK_BYTES !== 0 || length % BLOCK_BYTES !== 0) {
    const range = `offset ${offset}, length ${length} of ${command.name}`;
    return { errno: ERRNO.EINVAL, message: `${range} must be multiples of ${BLOCK_BYTES}` };
  }
  return undefined;
}
