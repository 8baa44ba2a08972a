import type { Extent, Io } from '../io/io.js';
import type { Layout } from '../model/layout.js';
import { BLOCK_BYTES, BlockChecksums, UNKNOWN } from './block-checksums.js';
import { ChecksumFile } from './checksum-file.js';
import { InFlight, type Passage, wasAlone } from './in-flight.js';
import { OPEN } from './region-table.js';
import type { Row } from './row-cache.js';
import { Rows, type RowsParts } from './rows.js';

/**
 * The checksums of one replica: a row for each region, a value for each block of it, UNKNOWN where nothing is known.
 *
 *     write:  region open durably → UNKNOWN in memory → data to disk → value in memory        no I/O of its own
 *     close:  rows complete → rows on disk, synced → entries *closed* with the rows' own checksums
 *     read:   data and, where it is not in memory, the row → compared
 *
 * A row on disk counts only where the region table's entry has that row's checksum, and an open region's entry counts
 * only after an orderly stop. So a crash at any step, or rot in the checksums themselves, makes blocks unknown, never
 * good data bad. An unknown block of an open region is learned from what is read of it: the replicas were compared
 * there, or will be (R6). One of a closed region is left to the scrub.
 */
export class Checksums {
  readonly #inFlight = new InFlight();

  private constructor(
    private readonly parts: ChecksumParts,
    private readonly blocks: BlockChecksums,
    private readonly rows: Rows,
  ) {}

  /** Opens the checksums of the replica in `directory`. */
  static async open(parts: ChecksumParts, directory: string): Promise<Checksums> {
    const { io, cache, table } = parts;
    const blocks = new BlockChecksums((bytes) => io.checksum(bytes));
    const file = await ChecksumFile.open(io.files, directory, table.regions, cache, blocks);
    return new Checksums(parts, blocks, new Rows(parts, file, blocks.zero));
  }

  /** Requests under way. */
  get underWay(): number {
    return this.#inFlight.count;
  }

  /** A region that was closed with blocks unknown. */
  get incompleteRegion(): number | undefined {
    for (const region of this.rows.incomplete) return region;
    return undefined;
  }

  // --- reads --------------------------------------------------------------------------------------------------------

  /** A read of the range begins. `judge` comes when both the data and `loaded` are there, and `end` in any case. */
  read(offset: number, length: number, learnsClosed = false): Reading {
    const { first, last } = blocksOf(offset, length);
    const regions = this.parts.layout.regionsOf(offset, length);
    const rows: (Row | undefined)[] = [];
    let loading: Promise<void>[] | undefined;
    for (let region = regions.first; region <= regions.last; region++) {
      const row = this.rows.takeToRead(region, learnsClosed);
      rows.push(row);
      if (row?.loading) (loading ??= []).push(row.loading);
    }
    return {
      passage: this.#inFlight.begin(first, last, false),
      firstRegion: regions.first,
      rows,
      learnsClosed,
      loaded: loading && (loading.length === 1 ? loading[0] : Promise.all(loading)),
    };
  }

  /** Compares what was read. `isBad` tells of a block of which nothing is known whether it is known to be bad. */
  judge(reading: Reading, bytes: Uint8Array, isBad: (block: number) => boolean): Verdict {
    const { passage, firstRegion, rows } = reading;
    const { blocksPerRow } = this.parts.cache;
    const bad: number[] = [];
    let unknown = 0;
    for (let block = passage.first; block <= passage.last; block++) {
      const region = Math.floor(block / blocksPerRow);
      const row = rows[region - firstRegion];
      const index = block - region * blocksPerRow;
      const known = row?.values[index] ?? UNKNOWN;
      if (!wasAlone(passage, block)) unknown++;
      else if (known !== UNKNOWN) {
        if (this.blocks.ofBlock(bytes, block - passage.first) !== known) bad.push(block);
      } else if (isBad(block)) bad.push(block);
      else {
        unknown++;
        if (!row || !(reading.learnsClosed || this.parts.table.entry(region) === OPEN)) continue;
        row.values[index] = this.blocks.ofBlock(bytes, block - passage.first);
        changed(row, index, index);
      }
    }
    if (bad.length > 0) return { state: 'corrupt', bad };
    return unknown > 0 ? UNVERIFIED : VERIFIED;
  }

  /** The extents of what is being read, where no hole is one that should hold data. */
  *trueHoles({ passage, firstRegion, rows }: Reading, extents: readonly Extent[]): Generator<Extent> {
    const { blocksPerRow } = this.parts.cache;
    let at = passage.first * BLOCK_BYTES;
    for (const extent of extents) {
      const end = at + extent.length;
      if (!extent.hole) yield extent;
      while (extent.hole && at < end) {
        const block = Math.floor(at / BLOCK_BYTES);
        const region = Math.floor(block / blocksPerRow);
        const known = rows[region - firstRegion]?.values[block - region * blocksPerRow] ?? UNKNOWN;
        const length = Math.min(end, (block + 1) * BLOCK_BYTES) - at;
        yield { length, hole: known === UNKNOWN || known === this.blocks.zero };
        at += length;
      }
      at = end;
    }
  }

  // --- changes ------------------------------------------------------------------------------------------------------

  /**
   * A write or trim is about to change the range. It comes before the regions are opened, since a region that was never
   * written is known to be zero; `begins` when they are, and `end` in any case.
   */
  change(offset: number, length: number): Change {
    const { first, last } = blocksOf(offset, length);
    const { blocksPerRow } = this.parts.cache;
    const regions = this.parts.layout.regionsOf(offset, length);
    const rows: Row[] = [];
    for (let region = regions.first; region <= regions.last; region++) {
      const whole = first <= region * blocksPerRow && last >= (region + 1) * blocksPerRow - 1;
      rows.push(this.rows.takeToChange(region, whole));
    }
    return { passage: this.#inFlight.begin(first, last, true), rows };
  }

  /** The data on disk changes from now on. Until it has, nothing is known of it. */
  begins({ passage, rows }: Change): void {
    for (const row of rows) {
      const { from, to } = this.#within(row, passage);
      row.values.fill(UNKNOWN, from, to + 1);
      changed(row, from, to);
    }
  }

  /** The range holds `bytes` now; or zeros, without them. */
  succeeded({ passage, rows }: Change, bytes: Uint8Array | undefined): void {
    const { blocksPerRow } = this.parts.cache;
    for (const row of rows) {
      const { from, to } = this.#within(row, passage);
      const firstBlock = row.region * blocksPerRow;
      for (let index = from; index <= to; index++) {
        const block = firstBlock + index;
        if (passage.met !== undefined && !wasAlone(passage, block)) continue;
        row.values[index] = bytes ? this.blocks.ofBlock(bytes, block - passage.first) : this.blocks.zero;
      }
      changed(row, from, to);
    }
  }

  end({ passage, rows }: Reading | Change): void {
    this.#inFlight.end(passage);
    for (const row of rows) if (row) row.users--;
  }

  // --- closing and completing ---------------------------------------------------------------------------------------

  /**
   * Makes the rows of regions that are about to be closed durable, and their checksums known to the table. Blocks of
   * which nothing is known are read, up to COMPLETION_BYTES in all: the writer waits for this. Rejects where the rows
   * can't be written. None of the regions may be written meanwhile.
   */
  async settle(regions: readonly number[]): Promise<void> {
    const { table } = this.parts;
    const rows = regions
      .filter((region) => table.entry(region) <= 0)
      .map((region) => this.rows.takeToChange(region, false));
    try {
      for (const row of rows) await row.loading;
      await this.#complete(rows);
      await this.rows.keep(rows);
      for (const row of rows) this.rows.noteIncomplete(row);
    } finally {
      for (const row of rows) row.users--;
    }
  }

  /** Orderly stop: what is known of open regions is durable. */
  save(): Promise<void> {
    return this.rows.saveOpen();
  }

  /** The row of a region that the scrub is about to read; it stays until `release`. Undefined: it was never written. */
  async hold(region: number): Promise<Row | undefined> {
    if (this.parts.table.entry(region) === 0) {
      this.rows.incomplete.delete(region);
      return undefined;
    }
    const row = this.rows.takeToRead(region, true);
    await row?.loading;
    return row;
  }

  /** The scrub has read the region. */
  async release(row: Row): Promise<void> {
    await this.rows.keepLearned(row).finally(() => row.users--);
  }

  grow(regions: number): Promise<void> {
    return this.rows.grow(regions);
  }

  /** Closes the file as it is. Repeats do nothing. */
  close(): Promise<void> {
    return this.rows.close();
  }

  /** Reads blocks of which nothing is known, within bounds. */
  async #complete(rows: readonly Row[]): Promise<void> {
    const { cache, readData, isBad } = this.parts;
    let left = COMPLETION_BYTES;
    for (const row of rows) {
      const firstBlock = row.region * cache.blocksPerRow;
      for (const { first, count } of unknownRuns(row.values, (index) => isBad(firstBlock + index))) {
        const length = count * BLOCK_BYTES;
        left -= length;
        if (left < 0) return;
        const offset = (firstBlock + first) * BLOCK_BYTES;
        const lease = await cache.slab.take(length);
        const reading = this.read(offset, length, true);
        try {
          await readData(offset, lease.bytes);
          this.judge(reading, lease.bytes, isBad);
        } catch (error) {
          // It is not lost by that: the block stays unknown.
          this.rows.tell('data', error);
          return;
        } finally {
          this.end(reading);
          lease.release();
        }
      }
    }
  }

  #within(row: Row, { first, last }: Passage): { from: number; to: number } {
    const { blocksPerRow } = this.parts.cache;
    const firstBlock = row.region * blocksPerRow;
    return { from: Math.max(0, first - firstBlock), to: Math.min(blocksPerRow - 1, last - firstBlock) };
  }
}

/** What a replica's checksums are made of. */
export interface ChecksumParts extends RowsParts {
  readonly io: Io;
  readonly layout: Layout;
  /** Reads the replica's data, unchecked. */
  readonly readData: (offset: number, into: Uint8Array) => Promise<void>;
  /** The block is known to be bad, whatever is there. */
  readonly isBad: (block: number) => boolean;
}

/** A read under way. */
export interface Reading {
  readonly passage: Passage;
  readonly firstRegion: number;
  readonly rows: readonly (Row | undefined)[];
  readonly learnsClosed: boolean;
  /** Undefined where all rows are in memory. Never rejects. */
  readonly loaded: Promise<unknown> | undefined;
}

/** A write or trim under way. */
export interface Change {
  readonly passage: Passage;
  readonly rows: readonly Row[];
}

export interface Verdict {
  /** `unverified`: nothing speaks against the data, but not all of it could be compared. */
  readonly state: 'verified' | 'unverified' | 'corrupt';
  /** Numbers of the blocks that are not what was written. */
  readonly bad: readonly number[];
}

/** What a verdict says of a part. One on a whole that is partly bad vouches for nothing in it. */
export function stateOfPart({ state, bad }: Verdict, offset: number, length: number): Verdict['state'] {
  if (state !== 'corrupt') return state;
  const isIn = (block: number): boolean => block * BLOCK_BYTES < offset + length && (block + 1) * BLOCK_BYTES > offset;
  return bad.some(isIn) ? 'corrupt' : 'unverified';
}

const VERIFIED: Verdict = { state: 'verified', bad: [] };
export const UNVERIFIED: Verdict = { state: 'unverified', bad: [] };

/** Read at most in one close, to complete rows. */
const COMPLETION_BYTES = 32 * 1024 * 1024;
const COMPLETION_STEP_BLOCKS = 64;

function blocksOf(offset: number, length: number): { first: number; last: number } {
  return { first: offset / BLOCK_BYTES, last: (offset + length) / BLOCK_BYTES - 1 };
}

function changed(row: Row, first: number, last: number): void {
  row.dirty = true;
  row.changes++;
  if (row.loading) row.overtaken.push({ first, last });
}

/** Runs of UNKNOWN, none longer than a step, without those to be left out. */
function* unknownRuns(
  values: Uint32Array,
  leftOut: (index: number) => boolean,
): Generator<{ first: number; count: number }> {
  let count = 0;
  for (let index = values.indexOf(UNKNOWN); index >= 0 && index <= values.length; index++) {
    const wanted = index < values.length && values[index] === UNKNOWN && !leftOut(index);
    if (wanted && count < COMPLETION_STEP_BLOCKS) {
      count++;
      continue;
    }
    if (count > 0) yield { first: index - count, count };
    count = wanted ? 1 : 0;
  }
}
