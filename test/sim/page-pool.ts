import { PAGE_BYTES } from '../../src/io/io.js';

/** Pages are carved from pieces of this many: a small allocation of its own for each costs twenty times as much. */
const CHUNK_PAGES = 64;

/** The pages of one disk, used again after they were given back. */
export class PagePool {
  readonly #free: Uint8Array[] = [];

  /** A page of undefined contents. */
  take(): Uint8Array {
    const page = this.#free.pop();
    if (page !== undefined) return page;
    const chunk = new ArrayBuffer(CHUNK_PAGES * PAGE_BYTES);
    for (let index = CHUNK_PAGES - 1; index > 0; index--) {
      this.#free.push(new Uint8Array(chunk, index * PAGE_BYTES, PAGE_BYTES));
    }
    return new Uint8Array(chunk, 0, PAGE_BYTES);
  }

  give(page: Uint8Array | undefined): void {
    if (page !== undefined) this.#free.push(page);
  }
}
