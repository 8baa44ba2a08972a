import { assert } from '../base/assert.js';

/**
 * Which pages of a slab are free, as runs of neighbours.
 *
 * Free runs hang in one list for each power of two of their length. A request searches the list of its own power,
 * where a run may be too short, and else takes the first run of the next longer list that has one, so the usual cost
 * does not grow with the number of runs. Each run's length stands at its first and last page: a run that is given back
 * finds its free neighbours there and joins them.
 */
export class PageRuns {
  freePages = 0;
  /** At the first and last page of a free run its length; 0 at used pages; anything within a run. */
  readonly #length: Int32Array;
  /** Links of the lists, at a run's first page; -1 ends a list. */
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #heads: Int32Array;

  constructor(private readonly pages: number) {
    this.#length = new Int32Array(pages);
    this.#next = new Int32Array(pages);
    this.#previous = new Int32Array(pages);
    this.#heads = new Int32Array(powerOf(pages) + 1).fill(-1);
    this.#insert(0, pages);
    this.freePages = pages;
  }

  /** Takes `count` neighbouring pages; the number of the first, or -1 where no run is long enough. */
  take(count: number): number {
    const page = this.#find(count);
    if (page < 0) return -1;
    const length = at(this.#length, page);
    this.#remove(page, length);
    if (length > count) this.#insert(page + count, length - count);
    this.freePages -= count;
    return page;
  }

  /** Gives back what `take` took. */
  give(page: number, count: number): void {
    assert(at(this.#length, page) === 0 && at(this.#length, page + count - 1) === 0, 'pages are given back once');
    this.freePages += count;
    let first = page;
    let length = count;
    const before = page > 0 ? at(this.#length, page - 1) : 0;
    if (before > 0) {
      first = page - before;
      length += before;
      this.#remove(first, before);
    }
    const after = page + count < this.pages ? at(this.#length, page + count) : 0;
    if (after > 0) {
      length += after;
      this.#remove(page + count, after);
    }
    this.#insert(first, length);
  }

  #find(count: number): number {
    const power = powerOf(count);
    if (power >= this.#heads.length) return -1;
    for (let page = at(this.#heads, power); page >= 0; page = at(this.#next, page)) {
      if (at(this.#length, page) >= count) return page;
    }
    for (let longer = power + 1; longer < this.#heads.length; longer++) {
      if (at(this.#heads, longer) >= 0) return at(this.#heads, longer);
    }
    return -1;
  }

  #insert(page: number, length: number): void {
    this.#length[page] = length;
    this.#length[page + length - 1] = length;
    const power = powerOf(length);
    const head = at(this.#heads, power);
    this.#next[page] = head;
    this.#previous[page] = -1;
    if (head >= 0) this.#previous[head] = page;
    this.#heads[power] = page;
  }

  #remove(page: number, length: number): void {
    this.#length[page] = 0;
    this.#length[page + length - 1] = 0;
    const next = at(this.#next, page);
    const previous = at(this.#previous, page);
    if (previous >= 0) this.#next[previous] = next;
    else this.#heads[powerOf(length)] = next;
    if (next >= 0) this.#previous[next] = previous;
  }
}

function powerOf(count: number): number {
  return 31 - Math.clz32(count);
}

function at(array: Int32Array, index: number): number {
  const value = array[index];
  assert(value !== undefined, 'a page number lies within the slab');
  return value;
}
