import type { Clock } from '../io/io.js';
import type { Layout } from '../model/layout.js';
import type { RangeLocks } from './range-locks.js';
import type { ReplicaSet } from './replica-set.js';
import type { Timing } from './timing.js';

/** Regions closed in one flush. */
const BATCH = 512;

/**
 * R2: the writer's knowledge of open regions, and their closing.
 *
 * To close is to hold the regions (new writes to them wait), drain them, flush every in-sync replica, tell every in-sync
 * replica to set them closed with the epoch, and let writes in again when all have answered.
 */
export class RegionCloser {
  /** Open regions and when each was last written, the coldest first. */
  readonly #open = new Map<number, number>();
  /** Regions closed while a resync runs: open on its target still. */
  #openOnTarget: Set<number> | undefined;
  #stopped = false;
  /** The same fault is told once. */
  #failing = false;

  constructor(
    private readonly clock: Clock,
    private readonly timing: Timing,
    private readonly layout: Layout,
    private readonly locks: RangeLocks,
    private readonly set: ReplicaSet,
    /** Regions not to be closed yet: reconcile has not been there. */
    private readonly unreconciled: (region: number) => boolean,
    private readonly onFailure: (error: unknown) => void,
  ) {}

  get openCount(): number {
    return this.#open.size;
  }

  /** Did a write to the region begin since the resync did? Then the source's entry is not what it was. */
  writtenSinceResync(region: number): boolean {
    return this.#open.has(region) || (this.#openOnTarget?.has(region) ?? false);
  }

  /** A write to the regions begins. */
  touch(first: number, last: number): void {
    const now = this.clock.now();
    for (let region = first; region <= last; region++) {
      this.#open.delete(region);
      this.#open.set(region, now);
    }
  }

  /** Regions that replicas have open already. */
  adopt(regions: Iterable<number>): void {
    for (const region of regions) if (!this.#open.has(region)) this.#open.set(region, this.clock.now());
  }

  /** A resync begins: what is closed from now on stays open on its target. */
  resyncBegins(): void {
    this.#openOnTarget = new Set();
  }

  /** The resync has ended. `added`: its target is in sync now, and these and the given regions are to be closed again. */
  resyncEnds(added: boolean, alsoOpen: Iterable<number>): void {
    if (added) this.adopt([...alsoOpen, ...(this.#openOnTarget ?? [])]);
    this.#openOnTarget = undefined;
  }

  /** Closes, round after round, what has been idle or is too much, until `stop`. */
  async run(): Promise<void> {
    while (!this.#stopped) {
      const due = this.#due();
      if (due.length === 0) await this.clock.sleep(Math.min(1_000, this.timing.idleCloseMs));
      else await this.#closeOrWait(due);
    }
  }

  /** A close that failed (on the last replica, or it would have been dropped) is tried again later. */
  async #closeOrWait(regions: readonly number[]): Promise<void> {
    try {
      await this.#close(regions);
      this.#failing = false;
    } catch (error) {
      if (!this.#stopped && !this.#failing) this.onFailure(error);
      this.#failing = true;
      await this.clock.sleep(1_000);
    }
  }

  stop(): void {
    this.#stopped = true;
  }

  /** At an orderly release, when no request is under way. */
  async closeAll(): Promise<void> {
    // A writer that ends meanwhile closes nothing more: its regions stay open.
    while (!this.#stopped) {
      const regions = [...this.#open.keys()].filter((region) => !this.unreconciled(region)).slice(0, BATCH);
      if (regions.length === 0) return;
      await this.#close(regions);
    }
  }

  #due(): number[] {
    const due: number[] = [];
    const idleSince = this.clock.now() - this.timing.idleCloseMs;
    const excess = this.#open.size - this.timing.maxOpenRegions;
    for (const [region, writtenAt] of this.#open) {
      if (due.length === BATCH) break;
      if (writtenAt > idleSince && due.length >= excess) break;
      if (!this.unreconciled(region)) due.push(region);
    }
    return due;
  }

  async #close(regions: readonly number[]): Promise<void> {
    const release = await this.locks.acquireAll(
      regions.map((region) => this.layout.rangeOf(region)),
      'exclusive',
    );
    try {
      if (this.#stopped) return;
      await this.set.fanOut.run((session) => session.flush());
      // Whoever is in sync now was flushed: with the rest, or by its resync, since which the held regions had no write.
      const told = this.set.membership.inSync;
      const epoch = this.set.membership.epoch;
      await this.set.fanOut.run((session) => session.closeRegions(regions, epoch), told);
      // One that was added meanwhile has them open: they stay in the list for a later round.
      const added = [...this.set.membership.inSync].some((node) => !told.has(node));
      for (const region of regions) {
        if (!added) this.#open.delete(region);
        this.#openOnTarget?.add(region);
      }
    } finally {
      release();
    }
  }
}
