import { HoldfastError, messageOf, type ErrorCode } from '../base/errors.js';

/** What each operating-system error means to the data path; any other is `io-error`. */
const CODES: Readonly<Record<string, ErrorCode>> = {
  ENOENT: 'not-found',
  EEXIST: 'already-exists',
  ENOTEMPTY: 'already-exists',
  EADDRINUSE: 'already-exists',
  ENOSPC: 'no-space',
  EDQUOT: 'no-space',
  EFBIG: 'no-space',
  EMFILE: 'resource-exhausted',
  ENFILE: 'resource-exhausted',
  ENOMEM: 'resource-exhausted',
  EOPNOTSUPP: 'unimplemented',
};

/** The errno name of a failed system call, as Node tells it. */
export function errnoOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** A failed system call as a HoldfastError; `what` says what was tried on which path or address. */
export function systemError(error: unknown, what: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = CODES[errnoOf(error)] ?? 'io-error';
  return new HoldfastError(code, `${what}: ${messageOf(error)}`, { cause: error });
}
