import { assert } from '../base/assert.js';
import { crc32c } from '../base/crc32c.js';
import { GroupCommit } from '../base/group-commit.js';
import { type File, type Files, PAGE_BYTES } from '../io/io.js';

/**
 * The region table: for each region *open*, or *closed* with the epoch of its last close (0 = never written).
 *
 * On disk a row of 512-byte sectors, each with 31 entries of 16 bytes and a trailer of the sector's number and a
 * CRC-32C, so an entry never spans sectors and a torn page tears between whole sectors. An entry is a stamp (all ones
 * for open), the checksum of the region's row of checksums (0: there is none; see checksums.ts), and 4 bytes of zeros.
 * A sector that does not check counts as all open: that only makes more regions be compared.
 *
 *   entry:   | u64 stamp | u32 row checksum | u32 0 |
 *   sector:  | 31 × entry | u64 0 | u32 sector number | u32 crc |      page: 8 sectors, 248 entries
 */
export const OPEN = -1;

/** OPEN, or the stamp of a closed region. */
export type Entry = number;

const SECTOR_BYTES = 512;
const ENTRY_BYTES = 16;
const ENTRIES_PER_SECTOR = 31;
const SECTORS_PER_PAGE = PAGE_BYTES / SECTOR_BYTES;
const ENTRIES_PER_PAGE = ENTRIES_PER_SECTOR * SECTORS_PER_PAGE;
const OPEN_ON_DISK = 0xffff_ffff_ffff_ffffn;

/** A row of neighbouring regions with the same entry. */
export interface Run {
  readonly count: number;
  readonly entry: Entry;
}

/** The entries of a table, by region. */
export interface Columns {
  readonly entries: Float64Array;
  /** Of each region's row of checksums; 0: there is none. */
  readonly rowChecksums: Uint32Array;
}

/** Encodes page `page` of the table. Entries past the end are written closed with 0. */
export function encodePage({ entries, rowChecksums }: Columns, page: number): Uint8Array {
  const bytes = new Uint8Array(PAGE_BYTES);
  for (let sector = 0; sector < SECTORS_PER_PAGE; sector++) {
    const part = bytes.subarray(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
    const view = new DataView(part.buffer, part.byteOffset, SECTOR_BYTES);
    const number = page * SECTORS_PER_PAGE + sector;
    for (let slot = 0; slot < ENTRIES_PER_SECTOR; slot++) {
      const region = number * ENTRIES_PER_SECTOR + slot;
      const entry = entries[region] ?? 0;
      view.setBigUint64(slot * ENTRY_BYTES, entry === OPEN ? OPEN_ON_DISK : BigInt(entry), true);
      view.setUint32(slot * ENTRY_BYTES + 8, rowChecksums[region] ?? 0, true);
    }
    view.setUint32(SECTOR_BYTES - 8, number, true);
    view.setUint32(SECTOR_BYTES - 4, crc32c(part.subarray(0, SECTOR_BYTES - 4)), true);
  }
  return bytes;
}

/** Decodes a page into `columns`; a sector that is short or does not check becomes all open, without rows. */
export function decodePage(bytes: Uint8Array, page: number, { entries, rowChecksums }: Columns): void {
  for (let sector = 0; sector < SECTORS_PER_PAGE; sector++) {
    const part = bytes.subarray(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
    const number = page * SECTORS_PER_PAGE + sector;
    const first = number * ENTRIES_PER_SECTOR;
    const last = Math.min(first + ENTRIES_PER_SECTOR, entries.length);
    if (first >= entries.length) return;
    if (!sectorChecks(part, number)) {
      entries.fill(OPEN, first, last);
      rowChecksums.fill(0, first, last);
      continue;
    }
    const view = new DataView(part.buffer, part.byteOffset, SECTOR_BYTES);
    for (let region = first; region < last; region++) {
      const at = (region - first) * ENTRY_BYTES;
      const value = view.getBigUint64(at, true);
      entries[region] = value === OPEN_ON_DISK ? OPEN : Number(value);
      rowChecksums[region] = view.getUint32(at + 8, true);
    }
  }
}

function sectorChecks(sector: Uint8Array, number: number): boolean {
  if (sector.length !== SECTOR_BYTES) return false;
  const view = new DataView(sector.buffer, sector.byteOffset, SECTOR_BYTES);
  return (
    view.getUint32(SECTOR_BYTES - 8, true) === number &&
    view.getUint32(SECTOR_BYTES - 4, true) === crc32c(sector.subarray(0, SECTOR_BYTES - 4))
  );
}

function columnsOf(regions: number): Columns {
  return { entries: new Float64Array(regions), rowChecksums: new Uint32Array(regions) };
}

/** The region table of one replica, in memory and on disk. */
export class RegionTable {
  /** Regions whose *open* is durable: a write into them need not wait. */
  #durablyOpen: Uint8Array;
  #dirtyPages = new Set<number>();
  #openCount: number;
  readonly #commits = new GroupCommit(() => this.#writeDirty());

  private constructor(
    private readonly file: File,
    private columns: Columns,
  ) {
    const { entries } = columns;
    this.#durablyOpen = Uint8Array.from(entries, (entry) => (entry === OPEN ? 1 : 0));
    this.#openCount = entries.reduce((count, entry) => count + Number(entry === OPEN), 0);
  }

  /** Makes the file of a new replica: every region closed with `stamp`. */
  static async create(files: Files, path: string, regions: number, stamp: number): Promise<void> {
    const file = await files.open(path, { write: true, create: true, direct: false });
    try {
      const columns = columnsOf(regions);
      columns.entries.fill(stamp);
      for (let page = 0; page * ENTRIES_PER_PAGE < regions; page++) {
        await file.write(encodePage(columns, page), page * PAGE_BYTES);
      }
      await file.sync();
    } finally {
      await file.close();
    }
  }

  /** `stoppedClean`: after an orderly stop the rows of open regions are what the entries say; else they are not known. */
  static async open(files: Files, path: string, regions: number, stoppedClean = false): Promise<RegionTable> {
    const file = await files.open(path, { write: true, create: false, direct: false });
    const columns = columnsOf(regions);
    const bytes = new Uint8Array(PAGE_BYTES);
    try {
      for (let page = 0; page * ENTRIES_PER_PAGE < regions; page++) {
        const length = await file.read(bytes, page * PAGE_BYTES);
        decodePage(bytes.subarray(0, length), page, columns);
      }
    } catch (error) {
      await file.close();
      throw error;
    }
    if (!stoppedClean) {
      for (const [region, entry] of columns.entries.entries()) if (entry === OPEN) columns.rowChecksums[region] = 0;
    }
    return new RegionTable(file, columns);
  }

  get regions(): number {
    return this.columns.entries.length;
  }

  entry(region: number): Entry {
    const entry = this.columns.entries[region];
    assert(entry !== undefined, 'region lies within the volume');
    return entry;
  }

  /** The checksum of the row of checksums that lies on disk; 0: none that counts. */
  rowChecksum(region: number): number {
    return this.columns.rowChecksums[region] ?? 0;
  }

  /** The row on disk is another now, or none. Durable with the next change of the region's entry. */
  setRowChecksum(region: number, rowChecksum: number): void {
    this.columns.rowChecksums[region] = rowChecksum;
  }

  /** Makes the row checksum of a region durable. */
  refresh(region: number): Promise<void> {
    this.#dirtyPages.add(Math.floor(region / ENTRIES_PER_PAGE));
    return this.#commits.run();
  }

  /** Orderly stop: makes the row checksums of all open regions durable. */
  async saveOpen(): Promise<void> {
    if (this.#openCount === 0) return;
    for (const [region, entry] of this.columns.entries.entries()) {
      if (entry === OPEN) this.#dirtyPages.add(Math.floor(region / ENTRIES_PER_PAGE));
    }
    await this.#commits.run();
  }

  /** R1. Undefined where all of the regions are durably open already; else resolves when they are. */
  open(first: number, last: number): Promise<void> | undefined {
    assert(last < this.columns.entries.length, 'a write lies within the volume');
    let missing = false;
    for (let region = first; region <= last; region++) {
      if (this.#durablyOpen[region] === 1) continue;
      missing = true;
      if (this.columns.entries[region] !== OPEN) this.#openCount++;
      this.columns.entries[region] = OPEN;
      this.#dirtyPages.add(Math.floor(region / ENTRIES_PER_PAGE));
    }
    return missing ? this.#openDurably(first, last) : undefined;
  }

  /**
   * Closes regions, or gives them another's stamp; durable when it resolves. Their rows are durable already (none is
   * needed for stamp 0). None of the regions may be written meanwhile.
   */
  close(changes: readonly { region: number; stamp: number }[]): Promise<void> {
    for (const { region, stamp } of changes) {
      assert(stamp >= 0 && region < this.columns.entries.length, 'a close names a region of the volume and a stamp');
      if (this.columns.entries[region] === OPEN) this.#openCount--;
      this.columns.entries[region] = stamp;
      if (stamp === 0) this.columns.rowChecksums[region] = 0;
      this.#durablyOpen[region] = 0;
      this.#dirtyPages.add(Math.floor(region / ENTRIES_PER_PAGE));
    }
    return this.#commits.run();
  }

  /** More regions, closed with 0. Durable when it resolves. */
  async grow(regions: number): Promise<void> {
    const before = this.columns.entries.length;
    if (regions <= before) return;
    const columns = columnsOf(regions);
    columns.entries.set(this.columns.entries);
    columns.rowChecksums.set(this.columns.rowChecksums);
    const durablyOpen = new Uint8Array(regions);
    durablyOpen.set(this.#durablyOpen);
    this.columns = columns;
    this.#durablyOpen = durablyOpen;
    for (let page = Math.floor(before / ENTRIES_PER_PAGE); page * ENTRIES_PER_PAGE < regions; page++) {
      this.#dirtyPages.add(page);
    }
    await this.#commits.run();
  }

  openCount(): number {
    return this.#openCount;
  }

  /** The table from region `from`, as at most `limit` runs. */
  runs(from: number, limit: number): Run[] {
    const runs: { count: number; entry: Entry }[] = [];
    for (let region = from; region < this.columns.entries.length; region++) {
      const entry = this.entry(region);
      const last = runs.at(-1);
      if (last?.entry === entry) last.count++;
      else if (runs.length === limit) break;
      else runs.push({ count: 1, entry });
    }
    return runs;
  }

  closeFile(): Promise<void> {
    return this.file.close();
  }

  async #openDurably(first: number, last: number): Promise<void> {
    await this.#commits.run();
    for (let region = first; region <= last; region++) {
      if (this.columns.entries[region] === OPEN) this.#durablyOpen[region] = 1;
    }
  }

  async #writeDirty(): Promise<void> {
    const pages = this.#dirtyPages;
    this.#dirtyPages = new Set();
    try {
      for (const page of pages) await this.file.write(encodePage(this.columns, page), page * PAGE_BYTES);
      await this.file.sync();
    } catch (error) {
      for (const page of pages) this.#dirtyPages.add(page);
      throw error;
    }
  }
}
