import { HoldfastError, codeOf, messageOf, type ErrorCode } from '../base/errors.js';
import { ERRNO, OPTION_ERROR } from './commands.js';

/** How each refusal is told in a reply, and in the handshake. */
const TOLD: Readonly<Record<ErrorCode, { errno: number; option: number }>> = {
  'invalid-argument': { errno: ERRNO.EINVAL, option: OPTION_ERROR.invalid },
  'out-of-range': { errno: ERRNO.EIO, option: OPTION_ERROR.invalid },
  'not-found': { errno: ERRNO.EIO, option: OPTION_ERROR.unknown },
  'already-exists': { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  'failed-precondition': { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  'resource-exhausted': { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  aborted: { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  unavailable: { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  'deadline-exceeded': { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  cancelled: { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  unimplemented: { errno: ERRNO.ENOTSUP, option: OPTION_ERROR.unsupported },
  conflict: { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  fenced: { errno: ERRNO.ESHUTDOWN, option: OPTION_ERROR.policy },
  'io-error': { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  'no-space': { errno: ERRNO.ENOSPC, option: OPTION_ERROR.shutdown },
  corrupt: { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
  internal: { errno: ERRNO.EIO, option: OPTION_ERROR.shutdown },
};

/** What an error value in a reply means to a client; an unknown one is treated as EINVAL, as the protocol asks. */
const HEARD: ReadonlyMap<number, ErrorCode> = new Map<number, ErrorCode>([
  [ERRNO.EPERM, 'failed-precondition'],
  [ERRNO.EIO, 'io-error'],
  [ERRNO.ENOMEM, 'resource-exhausted'],
  [ERRNO.EINVAL, 'invalid-argument'],
  [ERRNO.ENOSPC, 'no-space'],
  [ERRNO.EBADMSG, 'corrupt'],
  [ERRNO.EOVERFLOW, 'out-of-range'],
  [ERRNO.ENOTSUP, 'unimplemented'],
  [ERRNO.ESHUTDOWN, 'fenced'],
]);

/** What a refused option means to a client; any other is `failed-precondition`. */
const HEARD_IN_HANDSHAKE: ReadonlyMap<number, ErrorCode> = new Map<number, ErrorCode>([
  [OPTION_ERROR.unsupported, 'unimplemented'],
  [OPTION_ERROR.policy, 'fenced'],
  [OPTION_ERROR.invalid, 'invalid-argument'],
  [OPTION_ERROR.unknown, 'not-found'],
  [OPTION_ERROR.shutdown, 'unavailable'],
]);

/** A failure as a reply tells it. */
export interface ReplyError {
  readonly errno: number;
  readonly message: string;
}

/** `privately`: to a client that knows private commands, and so can tell bad data from a bad disk. */
export function replyErrorOf(error: unknown, privately = false): ReplyError {
  const code = codeOf(error);
  const errno = privately && code === 'corrupt' ? ERRNO.EBADMSG : TOLD[code].errno;
  return { errno, message: messageOf(error) };
}

export function optionErrorOf(error: unknown): number {
  return TOLD[codeOf(error)].option;
}

export function errorOfReply(errno: number, message: string): HoldfastError {
  const text = message === '' ? `the server answered with NBD error ${errno}` : message;
  return new HoldfastError(HEARD.get(errno) ?? 'invalid-argument', text);
}

export function errorOfOption(type: number, message: string): HoldfastError {
  const text = message === '' ? `the server refused with NBD option error ${type - 0x80000000}` : message;
  return new HoldfastError(HEARD_IN_HANDSHAKE.get(type) ?? 'failed-precondition', text);
}
