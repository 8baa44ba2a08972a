import { PAGE_BYTES } from '../io/io.js';

/** The unit that has a checksum of its own. All I/O of a replica is whole blocks. */
export const BLOCK_BYTES = PAGE_BYTES;

/** In place of a checksum: nothing is known of the block. */
export const UNKNOWN = 0;

/** The checksums of blocks: CRC-32, where 1 stands for a computed 0 as well. */
export class BlockChecksums {
  /** The checksum of a block of zeros. */
  readonly zero: number;

  constructor(private readonly checksum: (bytes: Uint8Array) => number) {
    this.zero = this.of(new Uint8Array(BLOCK_BYTES));
  }

  /** Of one block, or of a row's own bytes. Never UNKNOWN. */
  of(bytes: Uint8Array): number {
    return this.checksum(bytes) || 1;
  }

  /** The checksum of block `index` of `bytes`. */
  ofBlock(bytes: Uint8Array, index: number): number {
    return this.of(bytes.subarray(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES));
  }
}
