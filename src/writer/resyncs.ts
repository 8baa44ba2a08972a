import { asHoldfastError, codeOf, HoldfastError, messageOf } from '../base/errors.js';
import type { Slab } from '../io/io.js';
import type { NodeName } from '../model/ids.js';
import type { ReplicaRecord } from '../model/records.js';
import type { Member } from './member.js';
import type { RangeLocks } from './range-locks.js';
import type { RegionCloser } from './region-closer.js';
import type { Fencer, ReplicaSet, SetOwner } from './replica-set.js';
import { Resync, type ResyncProgress } from './resync.js';
import { metersOf, type WriterNode } from './writer-node.js';

const LONGEST_PAUSE_MS = 60_000;

interface Failure {
  readonly reason: string;
  /** How often in a row it failed after it had begun to copy. */
  readonly count: number;
  readonly dueAt: number;
  readonly progress: ResyncProgress;
}

/**
 * R7: given a replica in the record that is not in sync, then it is resynced and added to the set, one at a time, as
 * soon as it can be reached and nothing is left to reconcile.
 */
export class Resyncs {
  #running: Resync | undefined;
  /** Set while a resync waits for its turn. */
  #waits: string | undefined;
  /** Replicas whose last resync failed: why, and when the next may begin. */
  readonly #failures = new Map<NodeName, Failure>();

  constructor(
    private readonly node: WriterNode,
    private readonly set: ReplicaSet,
    private readonly owner: SetOwner,
    private readonly slab: Slab,
    private readonly locks: RangeLocks,
    private readonly closer: RegionCloser,
    /** Resyncs may begin: the writer serves, and nothing is left to reconcile. */
    private readonly mayBegin: () => boolean,
    private readonly mend: () => Promise<void>,
  ) {}

  get progress(): ResyncProgress | undefined {
    return this.#running?.progress;
  }

  /** Runs until the writer ends. */
  async run(): Promise<void> {
    while (!this.owner.ended) {
      await this.node.io.clock.sleep(this.node.timing.resyncPauseMs);
      for (const replica of this.set.record.replicas) {
        if (!this.mayBegin()) break;
        const dueAt = this.#failures.get(replica.node)?.dueAt ?? 0;
        if (replica.inSync || this.set.has(replica.node) || this.node.io.clock.now() < dueAt) continue;
        await this.#resync(replica);
      }
    }
  }

  /** Why replicas are not in sync, in words. */
  get waitsFor(): string[] {
    const waits = this.#waits === undefined ? [] : [this.#waits];
    const behind = this.set.record.replicas.filter(({ inSync }) => !inSync).map(({ node }) => node);
    const failed = [...this.#failures].filter(
      ([name]) => behind.includes(name) && name !== this.#running?.progress.node,
    );
    return [...waits, ...failed.map(([name, { reason }]) => `the replica on ${name} to be resynced (${reason})`)];
  }

  /** A resync that got as far as copying and failed is not begun anew at once: its reason may stand for long. */
  #failed(name: NodeName, error: unknown, progress: ResyncProgress, copied: boolean): void {
    const { clock, random } = this.node.io;
    const count = copied ? (this.#failures.get(name)?.count ?? 0) + 1 : 0;
    // Those that were turned away for the same bound must not all come back at once; nor is one that is gone back soon.
    const turnedAway = codeOf(error) === 'resource-exhausted' || codeOf(error) === 'not-found';
    const pauses = count > 0 ? 2 ** count : turnedAway ? 1 + random.fraction() : 0;
    const pauseMs = Math.min(this.node.timing.resyncPauseMs * pauses, LONGEST_PAUSE_MS);
    this.#failures.set(name, { reason: messageOf(error), count, dueAt: clock.now() + pauseMs, progress });
  }

  async #resync(replica: ReplicaRecord): Promise<void> {
    const { set, closer } = this;
    const { node: name } = replica;
    const { log, io } = this.node;
    const volume = set.record.id;
    const target = set.newMember(name);
    const before = this.#failures.get(name)?.progress;
    const resync = new Resync(this.#source(), target, before);
    let endTurn = (): void => undefined;
    let asked: Fencer = `replica ${name}`;
    try {
      const askedAt = io.clock.now();
      target.connect(await set.openSession(name), askedAt);
      endTurn = await this.#turn(target);
      closer.resyncBegins();
      // Every region closed before now lies below the epoch, and its entry can be taken as it is copied.
      asked = 'record';
      await set.membership.raiseEpoch();
      asked = `replica ${name}`;
      set.addTarget(target);
      this.#running = resync;
      log.info({ volume, replica: name }, 'resync begins');
      // What waits for an answer of the target may hold the ranges that the resync waits for: its loss ends both.
      const lost = target.gone.then((reason) => Promise.reject(reason));
      await Promise.race([this.#copy(resync, target), lost]);
      asked = 'record';
      await set.addMember(target, replica);
      log.info({ volume, replica: name, regions: resync.progress.regionsTotal }, 'resync is done');
      this.#failures.delete(name);
      this.#ended('done');
    } catch (error) {
      if (codeOf(error) === 'fenced') this.owner.end('fenced', asHoldfastError(error), asked);
      else log.debug({ volume, replica: name, reason: messageOf(error) }, 'resync ended');
      // A replica that is gone may have left the record.
      if (codeOf(error) === 'not-found') this.owner.background('reading the record', () => set.membership.refresh());
      const { progress } = resync;
      this.#failed(name, error, progress, progress.regionsDone > (before?.regionsDone ?? 0));
      this.#ended('failed');
    } finally {
      endTurn();
      this.#waits = undefined;
      this.#running = undefined;
      closer.resyncEnds(set.settleTarget(target), resync.openOnTarget);
    }
  }

  /**
   * The turn of this data path, waited for with nothing held but an idle session; then that of the target's, which is
   * never waited for, so that no two can wait for each other: `resource-exhausted`.
   */
  async #turn(target: Member): Promise<() => void> {
    this.#waits = `the replica on ${target.node} to be resynced (others come first)`;
    const end = await this.node.resyncBounds.take();
    this.#waits = undefined;
    try {
      if (!this.mayBegin()) throw new HoldfastError('unavailable', 'the writer does not serve');
      if (await target.ask((session) => session.beginResync())) return end;
      throw new HoldfastError('resource-exhausted', `node ${target.node} is busy with other resyncs`);
    } catch (error) {
      end();
      throw error;
    }
  }

  /** All but the add. */
  async #copy(resync: Resync, target: Member): Promise<void> {
    // It may have grown since the session was opened.
    await target.ask((session) => session.grow(this.owner.sizeBytes));
    await resync.run();
    await target.ask((session) => session.serving());
  }

  #ended(outcome: 'done' | 'failed'): void {
    metersOf(this.node).counter('holdfast_resyncs_total', { outcome }).add();
  }

  #source(): ConstructorParameters<typeof Resync>[0] {
    const { set, owner } = this;
    return {
      layout: this.node.layout,
      slab: this.slab,
      locks: this.locks,
      closer: this.closer,
      bounds: this.node.resyncBounds,
      copied: metersOf(this.node).counter('holdfast_resync_copied_bytes_total', { volume: set.record.id }),
      get sizeBytes() {
        return owner.sizeBytes;
      },
      get epoch() {
        return set.membership.epoch;
      },
      members: () => set.inSync,
      onFailure: (name, error) => set.fail(name, error),
      mend: this.mend,
    };
  }
}
