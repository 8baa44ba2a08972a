/**
 * How fast may calls be made? The rule, without clock or waiting.
 *
 * EC2 gives each account and region a number of calls a second that nobody tells, shared with everything else that
 * runs there. So the rate is found out: each call that EC2 takes raises it a little, each throttled one halves it
 * (additive increase, multiplicative decrease). Calls that were under way together are throttled together; they halve
 * it once.
 */
export interface BucketSettings {
  readonly firstPerSecond: number;
  readonly minPerSecond: number;
  readonly maxPerSecond: number;
  /** How many calls may be made at once after a quiet time. */
  readonly burst: number;
  /** Added to the rate by each call that was not throttled. */
  readonly increasePerSecond: number;
}

export class TokenBucket {
  #perSecond: number;
  #tokens: number;
  #filledAt: number;
  #slowedAt = -Infinity;

  /** Times are milliseconds of one monotonic clock. */
  constructor(
    private readonly settings: BucketSettings,
    nowMs: number,
  ) {
    this.#perSecond = settings.firstPerSecond;
    this.#tokens = settings.burst;
    this.#filledAt = nowMs;
  }

  get perSecond(): number {
    return this.#perSecond;
  }

  tokens(nowMs: number): number {
    this.#fill(nowMs);
    return this.#tokens;
  }

  /** Takes a token where there is one. */
  take(nowMs: number): boolean {
    this.#fill(nowMs);
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }

  /** Milliseconds until there is a token. */
  waitMs(nowMs: number): number {
    this.#fill(nowMs);
    // The next fill must not fall short by a rounding.
    return this.#tokens >= 1 ? 0 : Math.ceil(((1 - this.#tokens) / this.#perSecond) * 1_000) + 1;
  }

  /** A call was taken, whatever its answer. */
  taken(nowMs: number): void {
    this.#fill(nowMs);
    const { increasePerSecond, maxPerSecond } = this.settings;
    this.#perSecond = Math.min(maxPerSecond, this.#perSecond + increasePerSecond);
  }

  /** A call was throttled that was sent at `sentMs`. */
  throttled(sentMs: number, nowMs: number): void {
    if (sentMs <= this.#slowedAt) return;
    this.#slowedAt = nowMs;
    this.#filledAt = nowMs;
    this.#tokens = 0;
    this.#perSecond = Math.max(this.settings.minPerSecond, this.#perSecond / 2);
  }

  #fill(nowMs: number): void {
    const added = ((nowMs - this.#filledAt) / 1_000) * this.#perSecond;
    this.#tokens = Math.min(this.settings.burst, this.#tokens + Math.max(0, added));
    this.#filledAt = Math.max(this.#filledAt, nowMs);
  }
}
