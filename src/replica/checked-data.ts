import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Extent, Slab } from '../io/io.js';
import type { Range } from '../model/layout.js';
import { merged, type Slices } from '../pool/slices.js';
import { BLOCK_BYTES } from './block-checksums.js';
import { type Checksums, UNVERIFIED, type Verdict } from './checksums.js';
import type { Damage } from './damage.js';
import type { DiskMeter, DiskOperation } from './disk-meter.js';

/** Whose data it is, for messages. */
export interface Place {
  readonly volume: string;
  readonly disk: string;
}

export interface CheckedDataParts {
  readonly slices: Slices;
  /** Undefined: nothing is checked. For measuring only. */
  readonly checksums: Checksums | undefined;
  readonly damage: Damage;
  readonly meter: DiskMeter;
  readonly log: Log;
  readonly place: Place;
}

/** Makes the regions that a change touches durably open (R1). */
export type OpenRegions = () => Promise<void> | undefined;

/**
 * A replica's data behind its checksums: what is read is compared with what was written, and what turns out bad is
 * remembered until a write mends it.
 */
export class CheckedData {
  #closed = false;

  private readonly slices: Slices;
  private readonly checksums: Checksums | undefined;
  private readonly damage: Damage;
  private readonly meter: DiskMeter;
  private readonly log: Log;
  private readonly place: Place;

  constructor(parts: CheckedDataParts) {
    ({
      slices: this.slices,
      checksums: this.checksums,
      damage: this.damage,
      meter: this.meter,
      log: this.log,
      place: this.place,
    } = parts);
  }

  /** `corrupt` where a block is not what was written; the message names volume, offset and disk. */
  async read(offset: number, into: Uint8Array): Promise<void> {
    const { state, bad } = await this.#check(offset, into, false);
    if (state !== 'corrupt') return;
    const { volume, disk } = this.place;
    const where = `${volume} at offset ${(bad[0] ?? 0) * BLOCK_BYTES} on disk ${disk}`;
    throw new HoldfastError('corrupt', `the data of ${where} is not what was written (${bad.length} bad blocks)`);
  }

  /** Reads, and tells what the checksums say of it. */
  examine(offset: number, into: Uint8Array): Promise<Verdict> {
    return this.#check(offset, into, false);
  }

  write(offset: number, bytes: Uint8Array, open: OpenRegions): Promise<void> {
    const apply = (): Promise<void> => this.#timed('write', bytes.length, () => this.slices.write(offset, bytes));
    return this.#change(offset, bytes.length, open, apply, bytes);
  }

  punch(offset: number, length: number, open: OpenRegions): Promise<void> {
    const apply = (): Promise<void> => this.#timed('trim', length, () => this.slices.punch(offset, length));
    return this.#change(offset, length, open, apply, undefined);
  }

  /** Of the first part, where the range is large. A hole where data was written is told as data: who reads it learns. */
  async extents(offset: number, length: number): Promise<Extent[]> {
    const part = Math.min(length, EXTENTS_BYTES);
    const found = await this.slices.extents(offset, part);
    const { checksums } = this;
    if (!checksums || !found.some(({ hole }) => hole)) return found;
    const reading = checksums.read(offset, part);
    try {
      await reading.loaded;
      return merged(checksums.trueHoles(reading, found));
    } finally {
      checksums.end(reading);
    }
  }

  sync(): Promise<void> {
    return this.#timed('flush', 0, () => this.slices.sync());
  }

  /** A sync has failed. */
  get lostWrites(): boolean {
    return this.slices.lostWrites;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** A client waits for something here. */
  get busy(): boolean {
    return (this.checksums?.underWay ?? 0) > 0;
  }

  /** A region whose checksums are worth completing soon. */
  get incompleteRegion(): number | undefined {
    return this.checksums?.incompleteRegion;
  }

  /**
   * Reads a region in steps and compares it; a block that can't be read is as bad as one that changed. What was not
   * known of it is known afterwards. Resolves to the bytes read.
   */
  async scrub(region: number, { offset, length }: Range, stepBytes: number, slab: Slab): Promise<number> {
    const row = await this.checksums?.hold(region);
    if (!this.checksums || !row) return 0;
    const lease = await slab.take(Math.min(stepBytes, length));
    let read = 0;
    try {
      while (read < length && !this.#closed) {
        const size = Math.min(stepBytes, length - read);
        await this.#scrubPiece(offset + read, lease.bytes.subarray(0, size));
        read += size;
      }
    } finally {
      lease.release();
      this.meter.scrubbed(read);
      await this.checksums.release(row);
    }
    return read;
  }

  /** Closes the files as they are. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([this.slices.close(), this.checksums?.close()]);
  }

  async #scrubPiece(offset: number, into: Uint8Array): Promise<void> {
    try {
      await this.#check(offset, into, true);
    } catch (error) {
      if (codeOf(error) !== 'io-error' || this.#closed) throw error;
      if (into.length === BLOCK_BYTES) this.#foundUnreadable(offset, messageOf(error));
      else {
        for (let at = 0; at < into.length; at += BLOCK_BYTES) {
          await this.#scrubPiece(offset + at, into.subarray(at, at + BLOCK_BYTES));
        }
      }
    }
  }

  async #check(offset: number, into: Uint8Array, learnsClosed: boolean): Promise<Verdict> {
    const { checksums } = this;
    if (!checksums) {
      await this.#readData(offset, into);
      return UNVERIFIED;
    }
    const reading = checksums.read(offset, into.length, learnsClosed);
    try {
      const data = this.#readData(offset, into);
      if (reading.loaded) await Promise.all([data, reading.loaded]);
      else await data;
      this.damage.readable(offset, into.length);
      const verdict = checksums.judge(reading, into, this.#isBad);
      if (verdict.state === 'corrupt') await this.#found(verdict.bad, 'it does not match its checksum');
      else if (verdict.state === 'verified') await this.damage.mend(offset, into.length)?.catch(this.#notKept);
      return verdict;
    } finally {
      checksums.end(reading);
    }
  }

  /** The order is told in checksums.ts. A block of a failed change stays unknown. */
  async #change(
    offset: number,
    length: number,
    open: OpenRegions,
    apply: () => Promise<void>,
    bytes: Uint8Array | undefined,
  ): Promise<void> {
    const { checksums } = this;
    const change = checksums?.change(offset, length);
    try {
      const opening = open();
      if (opening) await opening;
      if (change) checksums?.begins(change);
      await apply();
      if (change) checksums?.succeeded(change, bytes);
    } finally {
      if (change) checksums?.end(change);
    }
  }

  #readData(offset: number, into: Uint8Array): Promise<void> {
    return this.#timed('read', into.length, () => this.slices.read(offset, into));
  }

  async #timed(operation: DiskOperation, bytes: number, run: () => Promise<void>): Promise<void> {
    const began = this.meter.now();
    await run();
    this.meter.done(operation, bytes, began);
  }

  readonly #isBad = (block: number): boolean => this.damage.has(block);

  #foundUnreadable(offset: number, reason: string): void {
    if (this.damage.addUnreadable([offset / BLOCK_BYTES]).length === 0) return;
    this.meter.damaged(1);
    this.log.error({ ...this.place, offset, blocks: 1, reason }, 'data on disk can not be read');
  }

  /** Where the disk has lost writes that were never flushed, that is no damage, but a crash (R10): a sync tells, and marks. */
  async #found(bad: readonly number[], reason: string): Promise<void> {
    try {
      await this.slices.sync();
    } catch {
      return;
    }
    try {
      const found = await this.damage.add(bad);
      if (found.length === 0) return;
      this.meter.damaged(found.length);
      const offset = (found[0] ?? 0) * BLOCK_BYTES;
      this.log.error({ ...this.place, offset, blocks: found.length, reason }, 'data on disk is bad');
    } catch (error) {
      this.#notKept(error);
    }
  }

  readonly #notKept = (error: unknown): void => {
    this.log.warn({ ...this.place, err: error }, 'the header does not take what is known of bad blocks');
  };
}

/** Extents are told of so much at once; their checksums have to be in memory. */
const EXTENTS_BYTES = 64 * 1024 * 1024;
