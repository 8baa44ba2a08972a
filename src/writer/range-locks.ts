import { assert } from '../base/assert.js';

type Mode = 'shared' | 'exclusive';

interface Entry {
  readonly start: number;
  readonly end: number;
  readonly mode: Mode;
  grant: (() => void) | undefined;
}

/** Gives a range back. Called once. */
export type Release = () => void;

/**
 * Locks on byte ranges, granted in order of arrival: an entry waits for every earlier one that overlaps it, unless both
 * are shared. So overlapping writes reach all replicas in one order, and nobody is overtaken.
 *
 * Entries in use are few (requests in flight, regions being closed), so a plain row is searched.
 */
export class RangeLocks {
  readonly #row: Entry[] = [];

  /** A release at once where the range is free, else a promise of it. */
  acquire(offset: number, length: number, mode: Mode): Release | Promise<Release> {
    const entry: Entry = { start: offset, end: offset + length, mode, grant: undefined };
    const blocked = this.#row.some((earlier) => conflicts(earlier, entry));
    this.#row.push(entry);
    const release = (): void => this.#release(entry);
    if (!blocked) return release;
    return new Promise((resolve) => (entry.grant = () => resolve(release)));
  }

  /** Several ranges at once; they arrive together, so two such calls can't wait for each other. */
  async acquireAll(ranges: readonly { offset: number; length: number }[], mode: Mode): Promise<Release> {
    const releases = await Promise.all(
      ranges.map(({ offset, length }) => Promise.resolve(this.acquire(offset, length, mode))),
    );
    return () => {
      for (const release of releases) release();
    };
  }

  /** Entries held or waiting. */
  get size(): number {
    return this.#row.length;
  }

  #release(entry: Entry): void {
    const index = this.#row.indexOf(entry);
    assert(index >= 0, 'a range is released once');
    this.#row.splice(index, 1);
    for (let at = index; at < this.#row.length; at++) {
      const waiting = this.#row[at];
      if (!waiting?.grant || !overlaps(waiting, entry) || this.#blocked(waiting, at)) continue;
      const { grant } = waiting;
      waiting.grant = undefined;
      grant();
    }
  }

  #blocked(entry: Entry, index: number): boolean {
    for (let at = 0; at < index; at++) {
      const earlier = this.#row[at];
      if (earlier && conflicts(earlier, entry)) return true;
    }
    return false;
  }
}

function overlaps(one: Entry, other: Entry): boolean {
  return one.start < other.end && other.start < one.end;
}

function conflicts(one: Entry, other: Entry): boolean {
  return overlaps(one, other) && (one.mode === 'exclusive' || other.mode === 'exclusive');
}
