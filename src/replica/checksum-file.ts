import type { File, Files } from '../io/io.js';
import type { Layout } from '../model/layout.js';
import type { BlockChecksums } from './block-checksums.js';
import { type Row, type RowCache, rowBytesOf } from './row-cache.js';

const NAME = 'checksums';

/** Rows that lie side by side go in one write of at most so many bytes. */
const MAX_WRITE_BYTES = 256 * 1024;

/**
 * The rows of one replica on disk: for each region a row of u32 (little-endian), one for each block, in whole pages.
 * Whether a row is what it should be is told by its own checksum, which stands in the region table; so a row that is
 * torn, rotten, stale or missing is never believed.
 */
export class ChecksumFile {
  private constructor(
    private readonly file: File,
    private readonly cache: RowCache,
    private readonly checksums: BlockChecksums,
  ) {}

  /** Opens the file in `directory`; where it is missing or short it is made, and its rows count as unknown. */
  static async open(
    files: Files,
    directory: string,
    regions: number,
    cache: RowCache,
    checksums: BlockChecksums,
  ): Promise<ChecksumFile> {
    const opened = await files.open(`${directory}/${NAME}`, { write: true, create: true, direct: true });
    const file = new ChecksumFile(opened, cache, checksums);
    try {
      if ((await opened.size()) === 0) await files.syncDirectory(directory);
      await file.grow(regions);
    } catch (error) {
      await opened.close();
      throw error;
    }
    return file;
  }

  /** Makes the file of a new replica, durable but for its name. */
  static async create(files: Files, directory: string, regions: number, layout: Layout): Promise<void> {
    const file = await files.open(`${directory}/${NAME}`, { write: true, create: true, direct: true });
    try {
      await file.truncate(regions * rowBytesOf(layout));
      await file.sync();
    } finally {
      await file.close();
    }
  }

  /** Room for so many rows. */
  async grow(regions: number): Promise<void> {
    const sizeBytes = regions * this.cache.rowBytes;
    if ((await this.file.size()) < sizeBytes) await this.file.truncate(sizeBytes);
  }

  /** The values of a row; undefined where they do not have the row's checksum. Rejects as the disk does. */
  async read(region: number, rowChecksum: number): Promise<Uint32Array | undefined> {
    const { slab, rowBytes, blocksPerRow } = this.cache;
    const lease = await slab.take(rowBytes);
    try {
      const count = await this.file.read(lease.bytes, region * rowBytes);
      if (count !== rowBytes || this.checksums.of(lease.bytes) !== rowChecksum) return undefined;
      const values = new Uint32Array(blocksPerRow);
      new Uint8Array(values.buffer).set(lease.bytes.subarray(0, blocksPerRow * 4));
      return values;
    } finally {
      lease.release();
    }
  }

  /** Writes the rows as they are now, or a moment later; tells of each when it is written what was. */
  async write(rows: readonly Row[], written: (row: Row, rowChecksum: number, changes: number) => void): Promise<void> {
    const outcomes = await Promise.allSettled(
      neighbours(rows, MAX_WRITE_BYTES / this.cache.rowBytes).map((run) => this.#writeRun(run, written)),
    );
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  sync(): Promise<void> {
    return this.file.sync();
  }

  close(): Promise<void> {
    return this.file.close();
  }

  async #writeRun(
    run: readonly Row[],
    written: (row: Row, rowChecksum: number, changes: number) => void,
  ): Promise<void> {
    const { slab, rowBytes } = this.cache;
    const lease = await slab.take(run.length * rowBytes);
    try {
      const copies = run.map((row, index) => {
        const part = lease.bytes.subarray(index * rowBytes, (index + 1) * rowBytes);
        const values = new Uint8Array(row.values.buffer, row.values.byteOffset, row.values.byteLength);
        part.set(values);
        part.fill(0, values.length);
        return { row, rowChecksum: this.checksums.of(part), changes: row.changes };
      });
      await this.file.write(lease.bytes, (run[0]?.region ?? 0) * rowBytes);
      for (const { row, rowChecksum, changes } of copies) written(row, rowChecksum, changes);
    } finally {
      lease.release();
    }
  }
}

/** Runs of rows of neighbouring regions, none longer than `limit`. */
function neighbours(rows: readonly Row[], limit: number): Row[][] {
  const runs: Row[][] = [];
  for (const row of [...rows].sort((one, other) => one.region - other.region)) {
    const last = runs.at(-1);
    if (last && last.length < limit && last.at(-1)?.region === row.region - 1) last.push(row);
    else runs.push([row]);
  }
  return runs;
}
