import { assert } from '../../src/base/assert.js';

interface Planned {
  readonly at: number;
  /** Among equal times the one that was planned first fires first. */
  readonly order: number;
  /** Undefined once it has fired or was cancelled. */
  fire: (() => void) | undefined;
}

/** Events for which the event loop's own turn is shared; between two of them all promise reactions run. */
const STEPS_A_TURN = 256;
/** From this many cancelled events on, the heap is cleared of them when they are the greater part. */
const MANY_CANCELLED = 1024;

/** Virtual time: what is planned to happen when. Nothing in a simulated run waits for anything else. */
export class Schedule {
  #now = 0;
  #events = 0;
  #trace = 0;
  #order = 0;
  #heap: Planned[] = [];
  #cancelled = 0;
  #running = false;
  #failure: { error: unknown } | undefined;

  /** Virtual milliseconds since the start. */
  get now(): number {
    return this.#now;
  }

  /** Events that have fired. */
  get events(): number {
    return this.#events;
  }

  /** A hash of when every event so far fired: two runs with the same number went the same way. */
  get trace(): number {
    return this.#trace >>> 0;
  }

  /** Plans an event; the returned function cancels it. */
  after(delayMs: number, fire: () => void): () => void {
    assert(delayMs >= 0 && delayMs < Infinity, 'an event lies in the future');
    const planned: Planned = { at: this.#now + delayMs, order: this.#order++, fire };
    this.#insert(planned);
    return () => {
      if (planned.fire === undefined) return;
      planned.fire = undefined;
      this.#cancelled++;
      if (this.#cancelled > MANY_CANCELLED && this.#cancelled * 2 > this.#heap.length) this.#dropCancelled();
    };
  }

  /**
   * Fires events in order of time until `done` says true, no event is left, or time would pass `untilMs`; in the last
   * two cases time is `untilMs` afterwards (where that is finite). Between two events every promise reaction has run.
   * Rejects with what `fail` was given or an event has thrown.
   */
  run(options: { untilMs: number; done?: () => boolean }): Promise<void> {
    assert(!this.#running, 'a schedule runs once at a time');
    this.#running = true;
    return new Promise((resolve, reject) => {
      let planned = 0;
      let ended = false;
      const step = (): void => {
        planned--;
        if (ended) return;
        try {
          if (this.#failure) throw this.#failure.error;
          if (options.done?.() !== true && this.#fireNext(options.untilMs)) {
            if (planned === 0) plan();
            return;
          }
          resolve();
        } catch (error) {
          this.#failure = undefined;
          // The caller is told just what was thrown.
          // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors
          reject(error);
        }
        ended = true;
        this.#running = false;
      };
      const plan = (): void => {
        planned = STEPS_A_TURN;
        for (let count = 0; count < STEPS_A_TURN; count++) setImmediate(step);
      };
      plan();
    });
  }

  /** Makes `run` reject at its next step; the first failure counts. */
  fail(error: unknown): void {
    this.#failure ??= { error };
  }

  #fireNext(untilMs: number): boolean {
    for (;;) {
      const next = this.#heap[0];
      if (next !== undefined && next.fire === undefined) {
        this.#removeFirst();
        this.#cancelled--;
        continue;
      }
      if (next?.fire === undefined || next.at > untilMs) {
        if (untilMs > this.#now && untilMs < Infinity) this.#now = untilMs;
        return false;
      }
      const fire = next.fire;
      this.#removeFirst();
      next.fire = undefined;
      this.#now = next.at;
      this.#events++;
      this.#trace = Math.imul(this.#trace ^ (next.at * 4096), 0x01000193) + next.order;
      fire();
      return true;
    }
  }

  #insert(planned: Planned): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(planned);
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above] as Planned;
      if (!isBefore(planned, parent)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = planned;
  }

  #removeFirst(): void {
    const last = this.#heap.pop() as Planned;
    if (this.#heap.length > 0) this.#sink(last, 0);
  }

  /** Puts `planned` at `start` or below, where it belongs. */
  #sink(planned: Planned, start: number): void {
    const heap = this.#heap;
    const length = heap.length;
    let at = start;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= length) break;
      let child = heap[below] as Planned;
      if (below + 1 < length) {
        const right = heap[below + 1] as Planned;
        if (isBefore(right, child)) {
          below++;
          child = right;
        }
      }
      if (!isBefore(child, planned)) break;
      heap[at] = child;
      at = below;
    }
    heap[at] = planned;
  }

  #dropCancelled(): void {
    this.#heap = this.#heap.filter((planned) => planned.fire !== undefined);
    this.#cancelled = 0;
    for (let at = (this.#heap.length >> 1) - 1; at >= 0; at--) this.#sink(this.#heap[at] as Planned, at);
  }
}

function isBefore(one: Planned, other: Planned): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order);
}
