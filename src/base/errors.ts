/**
 * The closed set of ways in which Holdfast refuses or fails. Every border maps a code exhaustively to its own words
 * (gRPC status, NBD error); nobody recognises an error by its text.
 */
export type ErrorCode =
  /** The request is malformed; the message names the field, the value and what would be right. */
  | 'invalid-argument'
  /** A size, offset or limit that can't be met here at all. */
  | 'out-of-range'
  | 'not-found'
  /** The name or path is taken by something incompatible. */
  | 'already-exists'
  /** Right request, wrong state: in use, attached elsewhere, not staged. */
  | 'failed-precondition'
  /** No pool has the room, or a bound (slots, memory) is reached. */
  | 'resource-exhausted'
  /** Another operation on the same thing is under way and would outlast the deadline. */
  | 'aborted'
  /** A process or machine can't be reached now; trying again may help. */
  | 'unavailable'
  | 'deadline-exceeded'
  | 'cancelled'
  | 'unimplemented'
  /** A compare-and-swap met another version. */
  | 'conflict'
  /** A newer epoch is known: this writer or connection must not go on. */
  | 'fenced'
  /** A disk answered with an error. */
  | 'io-error'
  /** A disk is full (ENOSPC). */
  | 'no-space'
  /** On-disk or on-wire bytes that are not what they must be. */
  | 'corrupt'
  /** A defect in Holdfast. */
  | 'internal';

/** Any error that Holdfast raises on purpose. */
export class HoldfastError extends Error {
  override readonly name = 'HoldfastError';

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** The code of any thrown value; what Holdfast didn't raise is `internal`. */
export function codeOf(error: unknown): ErrorCode {
  return error instanceof HoldfastError ? error.code : 'internal';
}

/** The message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The thrown value as a HoldfastError; a foreign one becomes `code` (default `internal`) with the original as cause. */
export function asHoldfastError(error: unknown, code: ErrorCode = 'internal'): HoldfastError {
  return error instanceof HoldfastError ? error : new HoldfastError(code, messageOf(error), { cause: error });
}
