/** A broken invariant: the process must not go on with this operation. */
export class AssertionFailed extends Error {
  override readonly name = 'AssertionFailed';
}

/** Checks an invariant of the program itself (never of its input). */
export function assert(condition: boolean, claim: string): asserts condition {
  if (!condition) throw new AssertionFailed(claim);
}

/** The value, which the program knows to be there. */
export function present<T>(value: T | undefined | null, claim: string): T {
  assert(value !== undefined && value !== null, claim);
  return value;
}
