import type { Log } from '../base/log.js';
import { Mutex } from '../base/mutex.js';
import { UNKNOWN } from './block-checksums.js';
import type { ChecksumFile } from './checksum-file.js';
import { OPEN, type RegionTable } from './region-table.js';
import { Row, type RowCache, type RowOwner } from './row-cache.js';

export interface RowsParts {
  readonly log: Log;
  readonly volume: string;
  readonly cache: RowCache;
  readonly table: RegionTable;
}

/**
 * The rows of one replica, in memory and on disk. For a region without a row in memory, the table's row checksum is that
 * of what is in the file, or 0.
 */
export class Rows implements RowOwner {
  /** Regions closed with blocks unknown: soon to be read by the scrub. */
  readonly incomplete = new Set<number>();
  readonly #rows = new Map<number, Row>();
  /** Writes of rows come one after the other: two of one row could end in either order. */
  readonly #fileTurn = new Mutex();
  /** Rows written since the last sync. */
  #unsynced = new Set<number>();
  /** What every region that was never written has. */
  readonly #zeros: Row;
  readonly #told = new Set<string>();

  constructor(
    private readonly parts: RowsParts,
    private readonly file: ChecksumFile,
    /** The checksum of a block of zeros. */
    private readonly zero: number,
  ) {
    this.#zeros = new Row(this, -1, new Uint32Array(parts.cache.blocksPerRow).fill(zero));
  }

  /**
   * The row by which a read is judged; it stays in memory until `users` is counted down again. Undefined where nothing is
   * known of the region, nor to be learned.
   */
  takeToRead(region: number, learnsClosed: boolean): Row | undefined {
    const row = this.#rows.get(region) ?? this.#rowToRead(region, learnsClosed);
    return row && taken(row);
  }

  /** The row for a change of the region, the `whole` of it or a part; it stays as above. */
  takeToChange(region: number, whole: boolean): Row {
    return taken(this.#rows.get(region) ?? this.#rowToChange(region, whole));
  }

  /** What these rows hold is on disk, and synced. */
  keep(rows: readonly Row[]): Promise<void> {
    return this.#fileTurn.run(async () => {
      await this.#write(rows);
      if (this.#unsynced.size > 0) await this.#sync();
    });
  }

  /** The rows of open regions are durable, and their checksums in the table's entries. */
  async saveOpen(): Promise<void> {
    const { table } = this.parts;
    await this.keep([...this.#rows.values()].filter((row) => table.entry(row.region) === OPEN));
    await table.saveOpen();
  }

  /** What was learned of a region becomes durable, where the region is closed. */
  async keepLearned(row: Row): Promise<void> {
    const { table } = this.parts;
    if (row.dirty && row !== this.#zeros && table.entry(row.region) !== OPEN && this.#rows.get(row.region) === row) {
      await this.keep([row]);
      await table.refresh(row.region);
    }
    this.incomplete.delete(row.region);
  }

  noteIncomplete(row: Row): void {
    if (row.values.includes(UNKNOWN)) this.incomplete.add(row.region);
    else this.incomplete.delete(row.region);
  }

  grow(regions: number): Promise<void> {
    return this.file.grow(regions);
  }

  /** Closes the file as it is. Repeats do nothing. */
  async close(): Promise<void> {
    for (const row of this.#rows.values()) this.parts.cache.remove(row);
    this.#rows.clear();
    await this.#fileTurn.run(() => this.file.close());
  }

  /** Each kind of fault once. */
  tell(kind: keyof typeof FAULTS, error: unknown): void {
    if (this.#told.has(kind)) return;
    this.#told.add(kind);
    this.parts.log.warn({ volume: this.parts.volume, err: error }, `${FAULTS[kind]}; told once`);
  }

  async spill(row: Row): Promise<void> {
    // What was learned of a closed region is not worth its old row, which the table's entry on disk names.
    if (this.parts.table.entry(row.region) !== OPEN) row.dirty = false;
    else await this.#fileTurn.run(() => this.#write([row])).catch((error: unknown) => this.tell('write', error));
  }

  left(row: Row): void {
    this.#rows.delete(row.region);
    if (row.dirty && this.parts.table.entry(row.region) === OPEN) this.parts.table.setRowChecksum(row.region, 0);
  }

  #rowToRead(region: number, learnsClosed: boolean): Row | undefined {
    const { table } = this.parts;
    const entry = table.entry(region);
    if (entry === 0) return this.#zeros;
    if (table.rowChecksum(region) !== 0) return this.#load(region);
    return learnsClosed || entry === OPEN ? this.#add(region) : undefined;
  }

  #rowToChange(region: number, whole: boolean): Row {
    const { table } = this.parts;
    if (table.entry(region) === 0) {
      const row = this.#add(region);
      row.values.fill(this.zero);
      row.dirty = true;
      return row;
    }
    return whole || table.rowChecksum(region) === 0 ? this.#add(region) : this.#load(region);
  }

  #add(region: number): Row {
    const row = this.parts.cache.add(this, region);
    this.#rows.set(region, row);
    return row;
  }

  #load(region: number): Row {
    const row = this.#add(region);
    row.loading = this.#fill(row).finally(() => (row.loading = undefined));
    return row;
  }

  /** Takes in the values on disk, but for blocks that were changed meanwhile. */
  async #fill(row: Row): Promise<void> {
    const { table } = this.parts;
    let values: Uint32Array | undefined;
    try {
      values = await this.file.read(row.region, table.rowChecksum(row.region));
      if (values === undefined) this.tell('rot', undefined);
    } catch (error) {
      this.tell('read', error);
    }
    if (values === undefined) {
      // Not to be asked for again: it would be older than what is written meanwhile.
      table.setRowChecksum(row.region, 0);
      this.incomplete.add(row.region);
      return;
    }
    for (const { first, last } of row.overtaken) values.set(row.values.subarray(first, last + 1), first);
    row.overtaken = [];
    row.values.set(values);
  }

  async #write(rows: readonly Row[]): Promise<void> {
    const { table } = this.parts;
    const dirty = rows.filter((row) => row.dirty);
    for (const row of dirty) this.#unsynced.add(row.region);
    await this.file.write(dirty, (row, rowChecksum, changes) => {
      table.setRowChecksum(row.region, rowChecksum);
      if (row.changes === changes) row.dirty = false;
    });
  }

  /** After a failed sync nothing is known of what it should have covered: it is written again, or unknown. */
  async #sync(): Promise<void> {
    const covered = this.#unsynced;
    this.#unsynced = new Set();
    try {
      await this.file.sync();
    } catch (error) {
      for (const region of covered) {
        const row = this.#rows.get(region);
        if (row) row.dirty = true;
        else this.parts.table.setRowChecksum(region, 0);
      }
      throw error;
    }
  }
}

const FAULTS = {
  rot: 'a row of checksums is not what was written: its region is unchecked until it is scrubbed',
  read: 'checksums can not be read: their regions are unchecked',
  write: 'checksums can not be written to make room in memory',
  data: 'data can not be read to complete checksums',
} as const;

/** Nothing may come between the finding of a row and this: it could have to leave. */
function taken(row: Row): Row {
  row.recent = true;
  row.users++;
  return row;
}
