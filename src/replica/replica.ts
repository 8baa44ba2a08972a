import { assert } from '../base/assert.js';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { NO_METERS } from '../base/meters.js';
import type { Extent, Io, Lease, Slab } from '../io/io.js';
import type { VolumeId } from '../model/ids.js';
import type { Layout } from '../model/layout.js';
import type { Stage } from '../nbd/stage.js';
import { Slices } from '../pool/slices.js';
import { CheckedData } from './checked-data.js';
import { ChecksumFile } from './checksum-file.js';
import { Checksums, stateOfPart, type Verdict } from './checksums.js';
import { Damage } from './damage.js';
import { DiskMeter } from './disk-meter.js';
import { FORMAT, HeaderFile, type ReplicaHeader } from './header.js';
import type { LossNote } from './loss-note.js';
import { OPEN, RegionTable, type Run } from './region-table.js';
import { RowCache } from './row-cache.js';

const HEADER = 'header';
const REGIONS = 'regions';
const DATA = 'data';

/** What a replica shares with the others of its data thread. */
export interface ReplicaParts {
  readonly meter?: DiskMeter | undefined;
  /** The disk's name, for messages; without it, the replica's directory. */
  readonly disk?: string | undefined;
  /** `off`: nothing is checked. For measuring only. */
  readonly rows?: RowCache | 'off' | undefined;
  /** Tells of a failed flush; absent: only the header does. */
  readonly note?: LossNote | undefined;
}

/** The digest of a piece, by which replicas compare it; empty where it is `corrupt`. */
export interface PieceDigest {
  readonly digest: string;
  /** What the replica's checksums say; `unverified`: nothing speaks against it, but not all could be compared. */
  readonly state: Verdict['state'];
}

/**
 * One replica on disk: header, region table, slices, checksums.
 *
 * It keeps R1 on its own: the entry *open* is durable before the first write to a closed region, whatever the writer
 * does. It knows nothing of sessions; src/replica/host.ts lets one session at a time use it.
 */
export class Replica implements Stage {
  private constructor(
    private readonly io: Io,
    private readonly log: Log,
    private readonly layout: Layout,
    private readonly header: HeaderFile,
    private readonly regions: RegionTable,
    private readonly data: CheckedData,
    private readonly checksums: Checksums | undefined,
    readonly damage: Damage,
    private readonly meter: DiskMeter,
  ) {}

  /** Makes an empty replica in `directory` (which must not exist) durably, or not at all. */
  static async create(
    io: Io,
    layout: Layout,
    directory: string,
    fields: Pick<ReplicaHeader, 'volume' | 'capacityBytes' | 'incarnation'>,
  ): Promise<void> {
    const unfinished = `${directory}.new`;
    await io.files.remove(unfinished);
    await io.files.makeDirectory(`${unfinished}/${DATA}`);
    const regions = layout.regionCount(fields.capacityBytes);
    await RegionTable.create(io.files, `${unfinished}/${REGIONS}`, regions, 0);
    await ChecksumFile.create(io.files, unfinished, regions, layout);
    await HeaderFile.create(io.files, `${unfinished}/${HEADER}`, {
      format: FORMAT,
      ...fields,
      regionBytes: layout.regionBytes,
      epoch: 0,
      session: '',
      crashMark: false,
      stoppedClean: false,
      damage: [],
    });
    await io.files.syncDirectory(unfinished);
    await io.files.rename(unfinished, directory);
    await io.files.syncDirectory(parentOf(directory));
  }

  /**
   * Opens the replica for serving. R10: where it was not stopped in order, has open regions and the disk was mounted
   * anew since, the crash mark becomes durable before the new incarnation does.
   */
  static async open(
    io: Io,
    log: Log,
    layout: Layout,
    directory: string,
    incarnation: string,
    parts: ReplicaParts = {},
  ): Promise<Replica> {
    const {
      note,
      disk = directory,
      meter = new DiskMeter(NO_METERS, io.clock),
      rows = new RowCache(io, layout),
    } = parts;
    const header = await HeaderFile.open(io.files, `${directory}/${HEADER}`);
    let regions: RegionTable | undefined;
    let checksums: Checksums | undefined;
    try {
      const { volume, damage: kept } = header.value;
      const table = (regions = await Replica.#openTable(io, layout, directory, header.value));
      const slices = await Slices.open(io.files, `${directory}/${DATA}`, layout, {
        unsynced: slicesOfOpenRegions(table, layout),
        lost: (cause) => markLoss(log, note, header, cause),
      });
      const damage = new Damage(kept, (ranges) => header.change({ damage: ranges }));
      if (rows !== 'off') {
        const readData = (offset: number, into: Uint8Array): Promise<void> => slices.read(offset, into);
        const isBad = (block: number): boolean => damage.has(block);
        checksums = await Checksums.open({ io, log, layout, volume, cache: rows, table, readData, isBad }, directory);
      }
      const data = new CheckedData({ slices, checksums, damage, meter, log, place: { volume, disk } });
      await Replica.#begin(log, note, header, table, incarnation);
      return new Replica(io, log, layout, header, table, data, checksums, damage, meter);
    } catch (error) {
      await Promise.allSettled([header.close(), regions?.closeFile(), checksums?.close()]);
      throw error;
    }
  }

  static #openTable(io: Io, layout: Layout, directory: string, header: ReplicaHeader): Promise<RegionTable> {
    const { regionBytes, capacityBytes } = header;
    if (regionBytes !== layout.regionBytes) {
      throw new HoldfastError('corrupt', `${directory} has regions of ${regionBytes} bytes, not ${layout.regionBytes}`);
    }
    const path = `${directory}/${REGIONS}`;
    return RegionTable.open(io.files, path, layout.regionCount(capacityBytes), header.stoppedClean);
  }

  static async #begin(
    log: Log,
    note: LossNote | undefined,
    header: HeaderFile,
    regions: RegionTable,
    incarnation: string,
  ): Promise<void> {
    const { value } = header;
    const noted = (await note?.exists()) ?? false;
    const crashed = value.incarnation !== incarnation && !value.stoppedClean && regions.openCount() > 0;
    if (crashed || noted) {
      const why = noted ? 'a flush failed' : 'replica was not stopped in order before its disk was mounted anew';
      log.warn({ volume: value.volume }, `${why}: marked`);
      await header.change({ crashMark: true });
      if (noted) await note?.remove();
    }
    // R1: an entry that was read as open may be in the page cache only, where a killed process wrote it.
    if (!value.stoppedClean) await regions.saveOpen();
    await header.change({ incarnation, stoppedClean: false });
  }

  get volume(): VolumeId {
    return this.header.value.volume;
  }

  get sizeBytes(): number {
    return this.header.value.capacityBytes;
  }

  get state(): ReplicaHeader {
    return this.header.value;
  }

  get openRegions(): number {
    return this.regions.openCount();
  }

  /** A flush failed: what is cached here can't be trusted, and the replica must be opened anew. */
  get lostWrites(): boolean {
    return this.data.lostWrites;
  }

  async read(offset: number, length: number, slab: Slab): Promise<Lease> {
    const lease = await slab.take(length);
    try {
      await this.data.read(offset, lease.bytes);
      return lease;
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  async write(offset: number, data: Lease, fua: boolean): Promise<void> {
    const { length } = data.bytes;
    await this.data.write(offset, data.bytes, () => this.#openRegions(offset, length));
    await this.#changed(offset, length, fua);
  }

  flush(): Promise<void> {
    return this.data.sync();
  }

  async trim(offset: number, length: number, fua: boolean): Promise<void> {
    // R1: a region that was never written is zero.
    for (const part of this.layout.partsOf(offset, length, (region) => this.regions.entry(region) !== 0)) {
      await this.data.punch(part.offset, part.length, () => this.#openRegions(part.offset, part.length));
      await this.#changed(part.offset, part.length, false);
    }
    if (fua) await this.flush();
  }

  /** Volumes are thin, so zeros are always holes. */
  zero(offset: number, length: number, fua: boolean, _allocate: boolean): Promise<void> {
    return this.trim(offset, length, fua);
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.data.extents(offset, length);
  }

  /** One digest for each block of `blockBytes`; the last one may be shorter. */
  async digests(offset: number, length: number, blockBytes: number, slab: Slab): Promise<PieceDigest[]> {
    const digests: PieceDigest[] = [];
    const stepBytes = Math.max(1, Math.floor(this.layout.compareBytes / blockBytes)) * blockBytes;
    for (let at = offset; at < offset + length; at += stepBytes) {
      const lease = await slab.take(Math.min(stepBytes, offset + length - at));
      try {
        const verdict = await this.data.examine(at, lease.bytes);
        for (let from = 0; from < lease.bytes.length; from += blockBytes) {
          const block = lease.bytes.subarray(from, from + blockBytes);
          const state = stateOfPart(verdict, at + from, block.length);
          digests.push({ state, digest: state === 'corrupt' ? '' : this.io.digest(block) });
        }
      } finally {
        lease.release();
      }
    }
    return digests;
  }

  runs(from: number, limit: number): Run[] {
    return this.regions.runs(from, limit);
  }

  /** The rows of checksums are durable before the entries. */
  async closeRegions(changes: readonly { region: number; stamp: number }[]): Promise<void> {
    const named = changes.map(({ region }) => region);
    assert(
      named.every((region) => region < this.regions.regions),
      'a close names regions of the volume',
    );
    if (this.checksums) await this.checksums.settle(named.filter((_, index) => changes[index]?.stamp !== 0));
    else for (const region of named) this.regions.setRowChecksum(region, 0);
    await this.regions.close(changes);
  }

  /** Was the region ever written? */
  holdsData(region: number): boolean {
    return this.regions.entry(region) !== 0;
  }

  get regionCount(): number {
    return this.regions.regions;
  }

  /** A region whose checksums are worth completing soon. */
  get incompleteRegion(): number | undefined {
    return this.data.incompleteRegion;
  }

  /** A client waits for something here. */
  get busy(): boolean {
    return this.data.busy;
  }

  /** Its files are closed, or are being closed. */
  get closed(): boolean {
    return this.data.closed;
  }

  /** Reads a region and compares it with its checksums. Resolves to the bytes read. */
  scrub(region: number, slab: Slab): Promise<number> {
    const { offset, length } = this.layout.rangeOf(region);
    const within = { offset, length: Math.min(length, this.sizeBytes - offset) };
    return this.data.scrub(region, within, this.layout.compareBytes, slab);
  }

  /** Makes the epoch and session durable (R5). */
  rememberEpoch(epoch: number, session: string): Promise<void> {
    return this.header.change({ epoch, session });
  }

  clearMark(): Promise<void> {
    return this.header.change({ crashMark: false });
  }

  /** The table first: a header that tells of more regions than the table has would make the rest count as open. */
  async grow(capacityBytes: number): Promise<void> {
    if (capacityBytes <= this.sizeBytes) return;
    const regions = this.layout.regionCount(capacityBytes);
    await this.checksums?.grow(regions);
    await this.regions.grow(regions);
    await this.header.change({ capacityBytes });
  }

  /** Orderly stop: flushed and noted, so that a planned reboot sets no mark. No request may be under way. */
  async close(): Promise<void> {
    try {
      await this.flush();
      await this.checksums?.save();
      await this.header.change({ stoppedClean: true });
    } catch (error) {
      this.log.error({ volume: this.volume, err: error }, 'replica can not be flushed at its stop');
    }
    await this.abandon();
  }

  /** Closes the files as they are. Repeats do nothing. No request may be under way. */
  async abandon(): Promise<void> {
    await Promise.allSettled([this.data.close(), this.regions.closeFile(), this.header.close()]);
  }

  /** R10: acknowledged writes may be missing. Durable when it resolves. */
  markCrashed(): Promise<void> {
    return this.header.change({ crashMark: true });
  }

  /** R1. Undefined where they are open already. */
  #openRegions(offset: number, length: number): Promise<void> | undefined {
    const { first, last } = this.layout.regionsOf(offset, length);
    const began = this.meter.now();
    return this.regions.open(first, last)?.then(() => this.meter.opened(began));
  }

  /**
   * A block that was bad is good again when its new data is durable, and must not be called bad after a crash when that
   * has been acknowledged.
   */
  async #changed(offset: number, length: number, fua: boolean): Promise<void> {
    const mended = this.damage.touches(offset, length);
    if (fua || mended) await this.flush();
    if (mended) await this.damage.mend(offset, length);
  }
}

/**
 * The slices that may hold writes of an earlier process which were never synced: a region is closed only when what it
 * holds has been flushed (R2).
 */
function slicesOfOpenRegions(table: RegionTable, layout: Layout): Set<number> {
  const slices = new Set<number>();
  for (let region = 0; table.openCount() > 0 && region < table.regions; region++) {
    if (table.entry(region) === OPEN) slices.add(Math.floor(layout.rangeOf(region).offset / layout.sliceBytes));
  }
  return slices;
}

/** A failed sync may have lost acknowledged writes: the mark is made durable before the failure is told (R10). */
async function markLoss(log: Log, note: LossNote | undefined, header: HeaderFile, cause: unknown): Promise<void> {
  const { volume } = header.value;
  log.error({ volume, reason: messageOf(cause) }, 'flush failed: replica is marked');
  // The note is a second chance for the mark, never in its way.
  const told = (err: unknown): void => log.warn({ volume, err }, 'a failed flush can not be noted');
  await note?.make().catch(told);
  await header.change({ crashMark: true });
  await note?.remove().catch(told);
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/'));
}
