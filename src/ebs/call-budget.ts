import { HoldfastError } from '../base/errors.js';
import type { Meters } from '../base/meters.js';
import type { Clock, Random } from '../io/io.js';
import type { CallRow } from './calls.js';
import { Ec2Error, type Ec2ErrorKind } from './ec2-errors.js';
import { TokenBucket, type BucketSettings } from './token-bucket.js';

export interface BudgetSettings extends BucketSettings {
  /** Tries of one call, the first among them. */
  readonly tries: number;
  /** The pause before the n-th repeat is drawn from 0 up to this, doubled n-1 times. */
  readonly firstPauseMs: number;
  readonly maxPauseMs: number;
}

export const BUDGET: BudgetSettings = {
  firstPerSecond: 5,
  minPerSecond: 0.5,
  maxPerSecond: 20,
  burst: 10,
  increasePerSecond: 0.1,
  tries: 8,
  firstPauseMs: 500,
  maxPauseMs: 20_000,
};

/** After these nobody knows whether EC2 would have taken more calls. */
const TELLS_NO_RATE: readonly Ec2ErrorKind[] = ['unreachable', 'no-credentials', 'server'];

export interface BudgetOptions {
  readonly clock: Clock;
  readonly random: Pick<Random, 'fraction'>;
  readonly meters: Meters;
  readonly settings?: BudgetSettings;
}

interface Waiting {
  readonly go: () => void;
  readonly fail: (error: HoldfastError) => void;
}

/**
 * The one budget of all calls of EC2, whoever makes them: each try waits for a token (token-bucket.ts), repeats pause
 * by full jitter before they queue up again.
 *
 * First tries and repeats queue apart and are let go in turn where both wait, so that neither a caller whose calls fail
 * again and again can keep the others out, nor they it.
 */
export class CallBudget {
  readonly #bucket: TokenBucket;
  readonly #settings: BudgetSettings;
  readonly #firsts: Waiting[] = [];
  readonly #repeats: Waiting[] = [];
  readonly #pauses = new Set<Waiting>();
  #repeatNext = false;
  #wake: (() => void) | undefined;
  #closed = false;

  constructor(private readonly options: BudgetOptions) {
    const { clock, meters } = options;
    this.#settings = options.settings ?? BUDGET;
    this.#bucket = new TokenBucket(this.#settings, clock.now());
    meters.gauges((tell) => {
      tell('holdfast_aws_budget_tokens', this.#bucket.tokens(clock.now()));
      tell('holdfast_aws_budget_calls_per_second', this.#bucket.perSecond);
      tell('holdfast_aws_budget_waiting', this.#firsts.length + this.#repeats.length + this.#pauses.size);
    });
  }

  /**
   * The outcome of a call, which is tried a bounded number of times. It is repeated where the failure may pass and is
   * certain, or where `unanswered` says that a repeat does no harm.
   *
   * Errors: those of the last try, with an unknown outcome where that of any try was; `cancelled` after `close`.
   */
  async run<T>(unanswered: CallRow['unanswered'], attempt: () => Promise<T>): Promise<T> {
    let anyUnknown = false;
    for (let tries = 1; ; tries++) {
      await this.#token(tries === 1 ? this.#firsts : this.#repeats);
      const sentMs = this.options.clock.now();
      try {
        const value = await attempt();
        this.#bucket.taken(this.options.clock.now());
        return value;
      } catch (error) {
        if (!(error instanceof Ec2Error)) throw error;
        this.#learn(error, sentMs);
        anyUnknown ||= error.outcome === 'unknown';
        if (tries >= Math.min(error.tries, this.#settings.tries) || !isHarmless(error, unanswered)) {
          throw anyUnknown ? error.afterUnknown() : error;
        }
        await this.#pause(tries);
      }
    }
  }

  /** Whoever waits now or later is refused with `cancelled`. */
  close(): void {
    this.#closed = true;
    this.#wake?.();
    const waiting = [...this.#firsts.splice(0), ...this.#repeats.splice(0), ...this.#pauses];
    for (const { fail } of waiting) fail(closed());
  }

  #learn(error: Ec2Error, sentMs: number): void {
    const nowMs = this.options.clock.now();
    if (error.kind === 'throttled') this.#bucket.throttled(sentMs, nowMs);
    else if (!TELLS_NO_RATE.includes(error.kind)) this.#bucket.taken(nowMs);
  }

  #token(queue: Waiting[]): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        reject(closed());
        return;
      }
      queue.push({ go: resolve, fail: reject });
      this.#letGo();
    });
  }

  #letGo(): void {
    const { clock } = this.options;
    if (this.#wake !== undefined) return;
    while (this.#firsts.length + this.#repeats.length > 0 && this.#bucket.take(clock.now())) this.#next()?.go();
    if (this.#firsts.length + this.#repeats.length === 0) return;
    const cancel = clock.timer(this.#bucket.waitMs(clock.now()), () => {
      this.#wake = undefined;
      this.#letGo();
    });
    this.#wake = cancel;
  }

  #next(): Waiting | undefined {
    const [queue, other] = this.#repeatNext ? [this.#repeats, this.#firsts] : [this.#firsts, this.#repeats];
    this.#repeatNext = !this.#repeatNext;
    return queue.shift() ?? other.shift();
  }

  #pause(tries: number): Promise<void> {
    const { firstPauseMs, maxPauseMs } = this.#settings;
    const pauseMs = this.options.random.fraction() * Math.min(maxPauseMs, firstPauseMs * 2 ** (tries - 1));
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        reject(closed());
        return;
      }
      const cancel = this.options.clock.timer(pauseMs, () => pausing.go());
      const pausing: Waiting = {
        go: () => {
          this.#pauses.delete(pausing);
          resolve();
        },
        fail: (error) => {
          cancel();
          this.#pauses.delete(pausing);
          reject(error);
        },
      };
      this.#pauses.add(pausing);
    });
  }
}

function isHarmless(error: Ec2Error, unanswered: CallRow['unanswered']): boolean {
  return error.outcome === 'failed' || unanswered === 'repeat';
}

function closed(): HoldfastError {
  return new HoldfastError('cancelled', 'calls of EC2 are ended since this process stops');
}
