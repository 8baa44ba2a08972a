import { asHoldfastError, codeOf, HoldfastError } from '../base/errors.js';
import type { Counter } from '../base/meters.js';
import { PAGE_BYTES, type Slab } from '../io/io.js';
import type { Layout, Range } from '../model/layout.js';
import { OPEN, type Run } from '../replica/region-table.js';
import type { PieceDigest } from '../replica/replica.js';
import type { ReplicaSession } from '../replica/session.js';
import { readCopy } from './equalise.js';
import type { Member } from './member.js';
import type { RangeLocks } from './range-locks.js';
import type { RegionCloser } from './region-closer.js';
import type { ResyncBounds } from './resync-bounds.js';
import { mayTakeEntry, mustCopy } from './rules.js';

/** So often a piece that is bad on the source is mended before the resync gives up. */
const MAX_MENDS = 2;

/** Parts of a piece that lie so near to each other are copied in one. */
const JOINED_BYTES = 4 * PAGE_BYTES;

/** Regions after whose copy the target is flushed and takes the source's entries. */
const ENTRY_BATCH = 64;

export interface ResyncProgress {
  readonly node: string;
  readonly regionsTotal: number;
  regionsDone: number;
}

/** What a resync needs of its writer. */
export interface ResyncWriter {
  readonly layout: Layout;
  readonly slab: Slab;
  readonly locks: RangeLocks;
  readonly closer: RegionCloser;
  readonly sizeBytes: number;
  readonly epoch: number;
  readonly bounds: Pick<ResyncBounds, 'pace'>;
  /** Bytes sent to the target. */
  readonly copied: Counter;
  /** The in-sync replicas, the one to copy from first. */
  members(): readonly Member[];
  onFailure(node: string, error: HoldfastError): void;
  /** Mends what in-sync replicas know to be bad, as far as that can be. */
  mend(): Promise<void>;
}

/**
 * R7, from the point where the target is fenced and gets every write: compares the region tables and copies what
 * differs. It ends when the target is flushed and has lost its mark; the caller then adds it to the set by CAS.
 */
export class Resync {
  readonly #copied: number[] = [];
  /** Copied regions whose entry on the target is open still. */
  readonly openOnTarget = new Set<number>();
  progress: ResyncProgress;

  constructor(
    private readonly writer: ResyncWriter,
    private readonly target: Member,
    /** How far the same resync was when it ended before: what it copied is not to be copied again. */
    private readonly before?: ResyncProgress,
  ) {
    this.progress = before ? { ...before } : { node: target.node, regionsTotal: 0, regionsDone: 0 };
  }

  /** Any failure, of the target or of the source, ends the resync: it is begun anew. */
  async run(): Promise<void> {
    const { writer, target } = this;
    const source = writer.members().find((member) => member.connected);
    if (!source) throw new HoldfastError('unavailable', 'no in-sync replica is connected');
    const theirs = expand(await target.ask((session) => session.table()));
    const ours = expand(await this.#askSource(source, (member) => member.ask((session) => session.table())));
    const regions: number[] = [];
    for (const [region, entry] of ours.entries()) {
      const there = theirs[region] ?? 0;
      if (there === OPEN) this.openOnTarget.add(region);
      if (mustCopy(entry, there)) regions.push(region);
    }
    const regionsTotal = Math.max(this.before?.regionsTotal ?? 0, regions.length);
    this.progress = { ...this.progress, regionsTotal, regionsDone: regionsTotal - regions.length };
    let bad: unknown;
    for (const region of regions) {
      this.openOnTarget.add(region);
      try {
        await this.#copyRegion(source, region, theirs[region] === 0);
      } catch (error) {
        if (codeOf(error) !== 'corrupt') throw error;
        // What is good is copied all the same: it need not be when the resync is begun anew.
        bad ??= error;
        continue;
      }
      this.#copied.push(region);
      this.progress.regionsDone++;
      if (this.#copied.length >= ENTRY_BATCH) await this.#takeEntries(ours);
    }
    await this.#takeEntries(ours);
    if (bad !== undefined) throw asHoldfastError(bad);
    await target.ask((session) => session.flush());
    await target.ask((session) => session.clearMark());
  }

  /** Copies a region piece by piece under range locks. `empty`: the target holds zeros there. */
  async #copyRegion(source: Member, region: number, empty: boolean): Promise<void> {
    const { compareBytes, regionBytes } = this.writer.layout;
    const offset = region * regionBytes;
    const end = Math.min(offset + regionBytes, this.writer.sizeBytes);
    for (let at = offset; at < end; at += compareBytes) {
      const length = Math.min(compareBytes, end - at);
      await this.writer.bounds.pace(await this.#copyLocked(source, at, length, empty));
    }
  }

  /** What is bad on the source is mended first from another in-sync replica; `corrupt` where that is in vain. */
  async #copyLocked(source: Member, at: number, length: number, empty: boolean): Promise<number> {
    for (let tries = 0; ; tries++) {
      const release = await this.writer.locks.acquire(at, length, 'shared');
      try {
        return await this.#copyPiece(source, at, length, empty);
      } catch (error) {
        if (codeOf(error) !== 'corrupt' || tries === MAX_MENDS) throw error;
      } finally {
        release();
      }
      await this.writer.mend();
    }
  }

  /** Resolves to the bytes that were read for it, whether they were sent or found equal. */
  async #copyPiece(source: Member, at: number, length: number, empty: boolean): Promise<number> {
    const { target } = this;
    const extents = await this.#askSource(source, (member) => member.ask((session) => session.extents(at, length)));
    if (extents.every((extent) => extent.hole) && sum(extents) === length) {
      if (!empty) await target.ask((session) => session.zero(at, length, false, false));
      return 0;
    }
    for (const part of empty ? [{ offset: at, length }] : await this.#differing(source, at, length)) {
      const data = await this.#askSource(source, (member) =>
        readCopy(member, part.offset, part.length, this.writer.slab),
      );
      await target.ask((session) => session.write(part.offset, data, false)).finally(() => data.release());
      this.writer.copied.add(part.length);
    }
    return length;
  }

  /** The parts of a piece that the target has otherwise, or that are bad on the source; near ones joined. */
  async #differing(source: Member, at: number, length: number): Promise<Range[]> {
    const digests = (session: ReplicaSession): Promise<PieceDigest[]> => session.digests(at, length, PAGE_BYTES);
    const [ours, theirs] = await Promise.all([
      this.#askSource(source, (member) => member.ask(digests)),
      this.target.ask(digests),
    ]);
    const parts: { offset: number; length: number }[] = [];
    for (const [index, { state, digest }] of ours.entries()) {
      if (state !== 'corrupt' && digest === theirs[index]?.digest) continue;
      const offset = at + index * PAGE_BYTES;
      const end = offset + PAGE_BYTES;
      const last = parts.at(-1);
      if (last && offset - (last.offset + last.length) <= JOINED_BYTES) last.length = end - last.offset;
      else parts.push({ offset, length: end - offset });
    }
    return parts;
  }

  /** A copied region that has stayed closed on the source since an older epoch may take the source's entry. */
  async #takeEntries(ours: Float64Array): Promise<void> {
    const { writer, target } = this;
    const regions = this.#copied.splice(0);
    const release = await writer.locks.acquireAll(
      regions.map((region) => writer.layout.rangeOf(region)),
      'exclusive',
    );
    try {
      await target.ask((session) => session.flush());
      const entries = regions
        .map((region) => ({ region, stamp: ours[region] ?? OPEN }))
        .filter(({ region, stamp }) => mayTakeEntry(stamp, writer.epoch, writer.closer.writtenSinceResync(region)));
      if (entries.length === 0) return;
      await target.ask((session) => session.takeEntries(entries));
      for (const { region } of entries) this.openOnTarget.delete(region);
    } finally {
      release();
    }
  }

  /** A failing source is the writer's business too: it is dropped, and the resync begins anew from another. */
  async #askSource<T>(source: Member, ask: (source: Member) => Promise<T>): Promise<T> {
    try {
      return await ask(source);
    } catch (error) {
      const code = codeOf(error);
      if (code !== 'unavailable' && code !== 'corrupt') this.writer.onFailure(source.node, asHoldfastError(error));
      throw error;
    }
  }
}

function expand(runs: readonly Run[]): Float64Array {
  const entries = new Float64Array(runs.reduce((count, run) => count + run.count, 0));
  let at = 0;
  for (const run of runs) {
    entries.fill(run.entry, at, at + run.count);
    at += run.count;
  }
  return entries;
}

function sum(extents: readonly { length: number }[]): number {
  return extents.reduce((bytes, extent) => bytes + extent.length, 0);
}
