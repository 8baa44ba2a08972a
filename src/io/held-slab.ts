import { assert } from '../base/assert.js';
import type { Lease, Slab } from './io.js';

/**
 * One piece of a slab, taken ahead, for a stage that asks a slab: so the wait for memory is over before the stage is
 * asked, and is not charged to it.
 */
export class HeldSlab implements Slab {
  #lease: Lease | undefined;
  readonly capacityBytes: number;

  private constructor(lease: Lease) {
    this.#lease = lease;
    this.capacityBytes = lease.bytes.length;
  }

  static async take(slab: Slab, length: number): Promise<HeldSlab> {
    return new HeldSlab(await slab.take(length));
  }

  get usedBytes(): number {
    return this.#lease ? 0 : this.capacityBytes;
  }

  /** Once, and of the very length. */
  take(length: number): Promise<Lease> {
    const lease = this.#lease;
    assert(lease?.bytes.length === length, 'a held piece is taken once, whole');
    this.#lease = undefined;
    return Promise.resolve(lease);
  }

  /** Gives the piece back if nobody took it. */
  release(): void {
    this.#lease?.release();
    this.#lease = undefined;
  }
}
