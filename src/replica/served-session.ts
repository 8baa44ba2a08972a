import { HoldfastError } from '../base/errors.js';
import type { Extent, Lease, Slab } from '../io/io.js';
import type { Range } from '../model/layout.js';
import type { PieceDigest, Replica } from './replica.js';
import type { Run } from './region-table.js';
import type { ReplicaSession, ReplicaState } from './session.js';

/** Runs told in one answer of the region table. */
export const RUNS_PER_ANSWER = 16_384;

/** Ranges of bad blocks told in one answer. */
const RANGES_PER_ANSWER = 1_024;

/**
 * The one session that may use a replica now, as the replica's side keeps it. Every request passes `#run`, which is
 * where an ended session's requests are thrown away and where those under way are counted (R11): `drained` resolves
 * when the session has ended and the last of them has been carried out.
 */
export class ServedSession implements ReplicaSession {
  readonly lost: Promise<HoldfastError>;
  readonly drained: Promise<void>;
  /** The writer has told that it serves. */
  served = false;
  /** Its writer is on another node. */
  remote = false;
  /** A resync copies to the replica. */
  #resyncing = false;
  #underWay = 0;
  #ended: HoldfastError | undefined;
  #tellLost: (reason: HoldfastError) => void = () => undefined;
  #tellDrained: () => void = () => undefined;

  constructor(
    private readonly replica: Replica,
    readonly id: string,
    readonly state: ReplicaState,
    /** Memory for the replica's own reads (digests). */
    private readonly slab: Slab,
    /** One more resync may copy to a replica here. */
    private readonly mayResync: () => boolean = () => true,
  ) {
    this.lost = new Promise((resolve) => (this.#tellLost = resolve));
    this.drained = new Promise((resolve) => (this.#tellDrained = resolve));
  }

  end(reason = new HoldfastError('unavailable', 'the session was ended')): void {
    if (this.#ended) return;
    this.#ended = reason;
    this.#tellLost(reason);
    this.#settle();
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  get resyncing(): boolean {
    return this.#resyncing && !this.ended;
  }

  get sizeBytes(): number {
    return this.replica.sizeBytes;
  }

  read(offset: number, length: number, slab: Slab): Promise<Lease> {
    return this.#run(() => this.replica.read(offset, length, slab));
  }

  write(offset: number, data: Lease, fua: boolean): Promise<void> {
    return this.#run(async () => {
      // The writer may answer its client, and let go of the memory, before a slow disk has taken it.
      data.retain();
      try {
        await this.replica.write(offset, data, fua);
      } finally {
        data.release();
      }
    });
  }

  flush(): Promise<void> {
    return this.#run(() => this.replica.flush());
  }

  trim(offset: number, length: number, fua: boolean): Promise<void> {
    return this.#run(() => this.replica.trim(offset, length, fua));
  }

  zero(offset: number, length: number, fua: boolean, allocate: boolean): Promise<void> {
    return this.#run(() => this.replica.zero(offset, length, fua, allocate));
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.#run(() => this.replica.extents(offset, length));
  }

  table(): Promise<Run[]> {
    return this.tableFrom(0, Infinity);
  }

  /** A part of the table, for an answer of bounded size. */
  tableFrom(region: number, limit: number): Promise<Run[]> {
    return this.#run(() => Promise.resolve(this.replica.runs(region, limit)));
  }

  closeRegions(regions: readonly number[], stamp: number): Promise<void> {
    return this.#run(() => this.replica.closeRegions(regions.map((region) => ({ region, stamp }))));
  }

  takeEntries(entries: readonly { region: number; stamp: number }[]): Promise<void> {
    return this.#run(() => this.replica.closeRegions(entries));
  }

  clearMark(): Promise<void> {
    return this.#run(() => this.replica.clearMark());
  }

  digests(offset: number, length: number, blockBytes: number): Promise<PieceDigest[]> {
    return this.#run(() => this.replica.digests(offset, length, blockBytes, this.slab));
  }

  damage(): Promise<Range[]> {
    return this.#run(() => Promise.resolve(this.replica.damage.ranges(RANGES_PER_ANSWER)));
  }

  grow(capacityBytes: number): Promise<void> {
    return this.#run(() => this.replica.grow(capacityBytes));
  }

  beginResync(): Promise<boolean> {
    this.#resyncing ||= this.mayResync();
    return Promise.resolve(this.#resyncing);
  }

  serving(): Promise<void> {
    this.served = true;
    this.#resyncing = false;
    return Promise.resolve();
  }

  async #run<T>(request: () => Promise<T>): Promise<T> {
    if (this.#ended) throw this.#ended;
    this.#underWay++;
    try {
      return await request();
    } finally {
      this.#underWay--;
      // R10: a failed sync, whoever asked for it, leaves a mark that this session was not told of.
      if (this.replica.lostWrites) this.end(new HoldfastError('io-error', 'a flush failed; the replica is marked'));
      this.#settle();
    }
  }

  #settle(): void {
    if (this.#ended && this.#underWay === 0) this.#tellDrained();
  }
}
