import { assert } from '../base/assert.js';
import { HoldfastError } from '../base/errors.js';
import { PAGE_BYTES, type Lease, type Slab } from './io.js';
import { PageRuns } from './page-runs.js';

/** One contiguous piece of page-aligned memory, lent out by pages. */
export class NodeSlab implements Slab {
  readonly capacityBytes: number;
  readonly #memory: Uint8Array;
  readonly #runs: PageRuns;
  /** Those who wait, first come first served, so that a big request is not overtaken for ever by small ones. */
  readonly #waiters: { length: number; resolve: (lease: Lease) => void }[] = [];

  #waits = 0;

  /** `memory` starts on a page boundary and is a multiple of PAGE_BYTES long. */
  constructor(memory: Uint8Array) {
    assert(memory.length >= PAGE_BYTES && memory.length % PAGE_BYTES === 0, 'a slab is whole pages');
    this.#memory = memory;
    this.capacityBytes = memory.length;
    this.#runs = new PageRuns(memory.length / PAGE_BYTES);
  }

  get waiting(): number {
    return this.#waiters.length;
  }

  get waits(): number {
    return this.#waits;
  }

  get usedBytes(): number {
    return this.capacityBytes - this.#runs.freePages * PAGE_BYTES;
  }

  take(length: number): Promise<Lease> {
    if (!Number.isSafeInteger(length) || length < 1 || length > this.capacityBytes) {
      const range = `1 … ${this.capacityBytes}`;
      return Promise.reject(new HoldfastError('out-of-range', `slab length ${length}: must be within ${range} bytes`));
    }
    if (this.#waiters.length === 0) {
      const lease = this.#tryTake(length);
      if (lease !== undefined) return Promise.resolve(lease);
    }
    this.#waits++;
    return new Promise((resolve) => this.#waiters.push({ length, resolve }));
  }

  #tryTake(length: number): Lease | undefined {
    const pages = Math.ceil(length / PAGE_BYTES);
    const page = this.#runs.take(pages);
    if (page < 0) return undefined;
    const start = page * PAGE_BYTES;
    return new SlabLease(this.#memory.subarray(start, start + length), () => {
      this.#runs.give(page, pages);
      this.#serveWaiters();
    });
  }

  #serveWaiters(): void {
    for (let waiter = this.#waiters[0]; waiter !== undefined; waiter = this.#waiters[0]) {
      const lease = this.#tryTake(waiter.length);
      if (lease === undefined) return;
      this.#waiters.shift();
      waiter.resolve(lease);
    }
  }
}

class SlabLease implements Lease {
  #references = 1;

  constructor(
    readonly bytes: Uint8Array,
    private readonly giveBack: () => void,
  ) {}

  retain(): void {
    assert(this.#references > 0, 'a lease that went back is not retained');
    this.#references++;
  }

  release(): void {
    assert(this.#references > 0, 'a lease is released once for each reference');
    if (--this.#references === 0) this.giveBack();
  }
}
