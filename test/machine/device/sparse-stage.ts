import { HoldfastError } from '../../../src/base/errors.js';
import { PAGE_BYTES, type Extent, type Lease, type Slab } from '../../../src/io/io.js';
import type { Stage } from '../../../src/nbd/stage.js';

/** A volume in memory that takes room only for what is written, can grow, be held up and fail. It counts its calls. */
export class SparseStage implements Stage {
  readonly counts = { read: 0, write: 0, flush: 0, trim: 0, zero: 0 };
  trimmedBytes = 0;
  failure: HoldfastError | undefined;
  /** Requests fail in this range only, where one is given. */
  failingRange: { from: number; to: number } | undefined;
  readonly #pages = new Map<number, Uint8Array>();
  #held: Promise<void> | undefined;

  constructor(public sizeBytes: number) {}

  get usedBytes(): number {
    return this.#pages.size * PAGE_BYTES;
  }

  hold(): () => void {
    let release: () => void = () => undefined;
    this.#held = new Promise((resolve) => (release = resolve));
    return () => {
      this.#held = undefined;
      release();
    };
  }

  async read(offset: number, length: number, slab: Slab): Promise<Lease> {
    await this.#enter('read', offset, length);
    const lease = await slab.take(length);
    for (let at = 0; at < length; at += PAGE_BYTES) {
      const page = this.#pages.get((offset + at) / PAGE_BYTES);
      if (page === undefined) lease.bytes.fill(0, at, at + PAGE_BYTES);
      else lease.bytes.set(page, at);
    }
    return lease;
  }

  async write(offset: number, data: Lease): Promise<void> {
    await this.#enter('write', offset, data.bytes.length);
    for (let at = 0; at < data.bytes.length; at += PAGE_BYTES) {
      this.#pages.set((offset + at) / PAGE_BYTES, data.bytes.slice(at, at + PAGE_BYTES));
    }
  }

  flush(): Promise<void> {
    return this.#enter('flush', 0, 0);
  }

  async trim(offset: number, length: number): Promise<void> {
    await this.#enter('trim', offset, length);
    this.trimmedBytes += length;
    this.#clear(offset, length);
  }

  async zero(offset: number, length: number): Promise<void> {
    await this.#enter('zero', offset, length);
    this.#clear(offset, length);
  }

  extents(_offset: number, length: number): Promise<Extent[]> {
    return Promise.resolve([{ length, hole: false }]);
  }

  #clear(offset: number, length: number): void {
    for (const page of this.#pages.keys()) {
      const at = page * PAGE_BYTES;
      if (at >= offset && at < offset + length) this.#pages.delete(page);
    }
  }

  async #enter(call: keyof SparseStage['counts'], offset: number, length: number): Promise<void> {
    this.counts[call]++;
    await this.#held;
    if (this.failure === undefined) return;
    const { from, to } = this.failingRange ?? { from: 0, to: Infinity };
    if (offset < to && offset + length > from) throw this.failure;
  }
}
