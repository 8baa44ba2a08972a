import { bounded } from '../base/bounded.js';
import { asHoldfastError, codeOf, HoldfastError } from '../base/errors.js';
import type { Tell } from '../base/meters.js';
import { HeldSlab } from '../io/held-slab.js';
import { type Extent, type Lease, PAGE_BYTES, type Slab } from '../io/io.js';
import type { NodeName, SessionId, VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { Stage } from '../nbd/stage.js';
import type { ReplicaSession } from '../replica/session.js';
import type { AttachmentStatus } from './attachments.js';
import type { Confirmations } from './confirmations.js';
import { readCopy } from './equalise.js';
import type { Member } from './member.js';
import { Mender, readBlocks } from './mender.js';
import { RangeLocks } from './range-locks.js';
import { ReadPermit } from './read-permit.js';
import { Reconciler } from './reconciler.js';
import { RegionCloser } from './region-closer.js';
import { type Fencer, ReplicaSet, type SetOwner } from './replica-set.js';
import { Resyncs } from './resyncs.js';
import { mayAcknowledge } from './rules.js';
import type { TakenOver } from './take-over.js';
import { tellWriter } from './writer-figures.js';
import { metersOf, type WriterNode } from './writer-node.js';

/** A large trim is carried out in pieces of this size, so that it holds up little else. */
const TRIM_BYTES = 64 * 1024 * 1024;

type State = 'serving' | 'releasing' | 'released' | 'fenced' | 'failed';

/**
 * The one writer of a volume, from the end of its take-over to its release: a stage of the data path between the NBD
 * server and the replicas.
 *
 *     write → [reconciled?] → range lock → fan-out to every replica that R3 asks → all answered → acknowledged
 *     read  → [reconciled?] → range lock → permit (R9) → the nearest in-sync replica
 *
 * Around this line the replication rules run beside the I/O: connections and drops (replica-set.ts), closing of regions
 * (region-closer.ts), reconcile (reconciler.ts), resync (resyncs.ts), confirmations (confirmations.ts).
 */
export class Writer implements Stage, SetOwner {
  /** Resolves when the writer has ended, with the reason. */
  readonly lost: Promise<HoldfastError>;
  #tellLost: (reason: HoldfastError) => void = () => undefined;
  #state: State = 'serving';
  #ended: HoldfastError | undefined;
  #fencedBy: Fencer | undefined;
  /** The orderly release under way; a repeated call joins it. */
  #releasing: Promise<void> | undefined;
  #size: number;
  /** 1 for each region that some replica ever wrote; the others are zero everywhere. */
  #written: Uint8Array;
  readonly #locks = new RangeLocks();
  readonly #set: ReplicaSet;
  readonly #permit: ReadPermit;
  readonly #reconciler: Reconciler;
  readonly #closer: RegionCloser;
  readonly #mender: Mender;
  readonly #resyncs: Resyncs;

  constructor(
    private readonly node: WriterNode,
    confirmations: Confirmations,
    /** Memory for copies (reconcile, resync), apart from that of clients, whose requests may wait for a copy. */
    private readonly copySlab: Slab,
    private readonly taken: TakenOver,
  ) {
    const { timing, io } = node;
    this.lost = new Promise((resolve) => (this.#tellLost = resolve));
    this.#size = taken.record.record.capacityBytes;
    this.#written = taken.written;
    this.#set = new ReplicaSet(node, confirmations, taken, this);
    this.#permit = new ReadPermit(io.clock, timing.confirmedMs, () => this.#set.asked);
    const copied = metersOf(node).counter('holdfast_reconcile_copied_bytes_total');
    this.#reconciler = new Reconciler(taken.openRegions, node.layout, copySlab, this.#set, this, copied);
    this.#closer = new RegionCloser(
      io.clock,
      timing,
      node.layout,
      this.#locks,
      this.#set,
      (region) => this.#reconciler.isWaiting(region),
      (error) => node.log.error({ volume: this.volume, err: error }, 'regions can not be closed; trying again'),
    );
    this.#closer.adopt(taken.openRegions);
    const mayBegin = (): boolean =>
      this.#state === 'serving' && this.#reconciler.left === 0 && this.#set.inSync.some((member) => member.connected);
    this.#mender = new Mender(node, this.#set, this.#locks, copySlab, {
      owner: this,
      mayMend: () => this.#state === 'serving',
      usable: (offset, length) => this.#usable(offset, length),
      touch: (offset, length) => this.#touch(offset, length),
    });
    const mend = (): Promise<void> => this.#mender.mend();
    this.#resyncs = new Resyncs(node, this.#set, this, copySlab, this.#locks, this.#closer, mayBegin, mend);
  }

  /** Begins what runs beside the I/O. */
  start(): void {
    this.background('reconcile', () => this.#reconciler.run());
    this.background('region closing', () => this.#closer.run());
    this.background('resync', () => this.#resyncs.run());
    this.background('failure detection', () => this.#set.watch());
    this.background('mending', () => this.#mender.run());
  }

  // --- the data path ------------------------------------------------------------------------------------------------

  get sizeBytes(): number {
    return this.#size;
  }

  async read(offset: number, length: number, slab: Slab): Promise<Lease> {
    await this.#usable(offset, length);
    const release = await this.#locks.acquire(offset, length, 'shared');
    try {
      return await this.#readSomewhere(async (member) => {
        const held = await HeldSlab.take(slab, length);
        const asked = member.ask(
          (session) => session.read(offset, length, held),
          (late) => late.release(),
        );
        return asked.finally(() => held.release());
      });
    } catch (error) {
      if (codeOf(error) !== 'corrupt' || length === PAGE_BYTES) throw error;
      const readBlock = (at: number): Promise<Lease> =>
        this.#readSomewhere((member) => readCopy(member, at, PAGE_BYTES, this.copySlab));
      return await readBlocks(offset, length, slab, readBlock);
    } finally {
      release();
    }
  }

  async write(offset: number, data: Lease, fua: boolean): Promise<void> {
    await this.#change(offset, data.bytes.length, (session) => session.write(offset, data, fua));
  }

  async flush(): Promise<void> {
    if (this.#ended) throw this.#ended;
    await this.#set.fanOut.run((session) => session.flush());
    await this.#enoughInSync();
  }

  /** Regions that were never written are zero already, on every replica. */
  async trim(offset: number, length: number, fua: boolean): Promise<void> {
    const { layout } = this.node;
    let sent = false;
    for (let at = offset; at < offset + length; at += TRIM_BYTES) {
      const end = Math.min(at + TRIM_BYTES, offset + length);
      for (const part of layout.partsOf(at, end - at, (region) => this.#written[region] === 1)) {
        sent = true;
        await this.#change(part.offset, part.length, (session) => session.trim(part.offset, part.length, false));
      }
    }
    if (!sent) {
      // Nobody was asked, so it takes the right to say what the volume holds (R9).
      await this.#permitted();
      await this.#enoughInSync();
    }
    if (fua) await this.flush();
  }

  /** Volumes are thin, so zeros are always holes. */
  zero(offset: number, length: number, fua: boolean, _allocate: boolean): Promise<void> {
    return this.trim(offset, length, fua);
  }

  /** Answers for the first regions of the range, where it is large. */
  async extents(offset: number, length: number): Promise<Extent[]> {
    const part = Math.min(length, TRIM_BYTES - (offset % TRIM_BYTES));
    const { first, last } = this.node.layout.regionsOf(offset, part);
    if (!this.#written.subarray(first, last + 1).includes(1)) {
      await this.#permitted();
      return [{ length: part, hole: true }];
    }
    await this.#usable(offset, part);
    return this.#readSomewhere((member) => member.ask((session) => session.extents(offset, part)));
  }

  async #change(offset: number, length: number, apply: (session: ReplicaSession) => Promise<void>): Promise<void> {
    await this.#usable(offset, length);
    const release = await this.#locks.acquire(offset, length, 'exclusive');
    try {
      if (this.#ended) throw this.#ended;
      this.#touch(offset, length);
      await this.#set.fanOut.run(apply);
    } finally {
      release();
    }
    await this.#enoughInSync();
  }

  /** A write of the range begins. */
  #touch(offset: number, length: number): void {
    const { first, last } = this.node.layout.regionsOf(offset, length);
    this.#written.fill(1, first, last + 1);
    this.#closer.touch(first, last);
  }

  /** R6: what may differ is made equal before it is used. */
  #usable(offset: number, length: number): Promise<void> | undefined {
    if (this.#ended) throw this.#ended;
    return this.#reconciler.ensure(offset, length);
  }

  /** R3: what all have answered is acknowledged while at least `minInSync` are in the set. */
  async #enoughInSync(): Promise<void> {
    const { membership, changed } = this.#set;
    while (!mayAcknowledge(membership.inSync, membership.record.parameters.minInSync)) {
      if (this.#ended) throw this.#ended;
      await changed.since(changed.count);
    }
    if (this.#ended) throw this.#ended;
  }

  /**
   * Asks in-sync replicas, the own node's first, until one answers. R9: only with a permit. `corrupt` where the data is
   * bad on all of them: a disk that rots is no reason to drop a replica.
   */
  async #readSomewhere<T>(ask: (member: Member) => Promise<T>): Promise<T> {
    const bad = new Map<Member, HoldfastError>();
    for (;;) {
      const seen = this.#set.changed.count;
      await this.#permitted();
      const { inSync } = this.#set;
      const member = inSync.find((one) => one.connected && !bad.has(one));
      if (!member) {
        const [reason] = bad.values();
        if (reason && inSync.every((one) => bad.has(one))) throw reason;
        await this.#set.changed.since(seen);
        continue;
      }
      try {
        return await ask(member);
      } catch (error) {
        if (codeOf(error) === 'corrupt') {
          bad.set(member, asHoldfastError(error));
          this.#mender.look();
        } else if (codeOf(error) !== 'unavailable' && !this.#set.fail(member.node, asHoldfastError(error))) throw error;
      }
    }
  }

  /** R9: waits until this writer may serve reads. */
  async #permitted(): Promise<void> {
    for (;;) {
      if (this.#ended) throw this.#ended;
      const seen = this.#set.changed.count;
      if (this.#permit.valid) return;
      await this.#set.changed.since(seen);
    }
  }

  // --- life ---------------------------------------------------------------------------------------------------------

  get volume(): VolumeId {
    return this.#set.record.id;
  }

  get session(): SessionId {
    return this.taken.session;
  }

  get epoch(): number {
    return this.#set.membership.epoch;
  }

  /** Why every request fails: released, fenced or failed. */
  get ended(): HoldfastError | undefined {
    return this.#ended;
  }

  /** Looks whether the record still names this writer; where the store does not answer at once, nothing changes. */
  async refresh(): Promise<void> {
    if (this.#ended) return;
    try {
      await this.#set.membership.look();
    } catch (error) {
      if (codeOf(error) === 'fenced') this.end('fenced', asHoldfastError(error));
    }
  }

  /** It has no device, and serves no clients. */
  get maintenance(): boolean {
    return this.#set.record.writer?.maintenance === true;
  }

  /** Clients wait for an answer. */
  get busy(): boolean {
    return this.#set.fanOut.pending > 0;
  }

  /** What it goes by and how far it is. */
  sight(): { readonly status: AttachmentStatus; readonly record: VolumeRecord } {
    return { status: this.status(), record: this.#set.record };
  }

  /** Becomes the writer of an attachment. `unavailable`: the store did not answer in time; it may be tried again. */
  async adopt(timeoutMs: number): Promise<void> {
    const adopted = this.#set.membership.adopt('goes on as the writer of an attachment');
    await bounded(this.node.io.clock, timeoutMs, 'the cluster store', adopted);
  }

  /** Reads the record anew, for what others change in it; `unavailable` where the store does not answer in time. */
  async reread(timeoutMs: number): Promise<void> {
    await bounded(this.node.io.clock, timeoutMs, 'the cluster store', this.#set.membership.refresh());
  }

  /** Mends what in-sync replicas know to be bad, as far as another one is good there. */
  mend(): Promise<void> {
    return this.#mender.mend();
  }

  /** See ReplicaSet.retire. */
  retire(replica: NodeName, why: string): Promise<void> {
    return this.#set.retire(replica, why);
  }

  /** Its release has begun, and may end it at any moment: no new attachment can go on with it. */
  get leaving(): boolean {
    return this.#state === 'releasing';
  }

  /** The record names no writer any more: the release is complete. */
  get released(): boolean {
    return this.#state === 'released';
  }

  /** Takes on the record's capacity: the replicas first, then what is served. Resolves to the size served. */
  async grow(): Promise<number> {
    if (this.#ended) throw this.#ended;
    await this.#set.membership.refresh();
    const capacity = this.#set.record.capacityBytes;
    if (capacity > this.#size) {
      await this.#set.fanOut.run((session) => session.grow(capacity));
      const written = new Uint8Array(this.node.layout.regionCount(capacity));
      written.set(this.#written);
      this.#written = written;
      this.#size = capacity;
    }
    return this.#size;
  }

  /** A newer session was admitted on this node, or its attachment is ended by force: all I/O fails from now on. */
  fence(reason: HoldfastError, by: Fencer = 'node'): void {
    this.end('fenced', reason, by);
  }

  /**
   * R2, orderly release: everything is flushed and closed, and the record names no writer. No new request may come.
   * `unavailable` where that takes longer than `timeoutMs`; the message tells what it waits for. It may be repeated.
   */
  async release(timeoutMs: number): Promise<void> {
    if (this.#ended) return;
    this.#state = 'releasing';
    let cancel: () => void = () => undefined;
    const late = new Promise<'late'>((resolve) => {
      cancel = this.node.io.clock.timer(timeoutMs, () => resolve('late'));
    });
    try {
      this.#releasing ??= this.#releaseInOrder().finally(() => (this.#releasing = undefined));
      if ((await Promise.race([this.#releasing, late])) === 'late') {
        throw new HoldfastError(
          'unavailable',
          `the release of ${this.volume} waits for ${this.#waitsFor().join('; ')}`,
        );
      }
    } finally {
      cancel();
    }
  }

  async #releaseInOrder(): Promise<void> {
    try {
      await this.#set.fanOut.run((session) => session.flush());
      await this.#closer.closeAll();
      if (this.#ended) return;
      await this.#set.membership.release();
    } catch (error) {
      if (!this.#ended && codeOf(error) !== 'fenced') throw error;
      if (!this.#ended) this.#tellFenced(asHoldfastError(error), 'record');
    }
    this.end('released', new HoldfastError('unavailable', 'the attachment was released'));
  }

  /** The process stops: the record stays as it is, and the device waits for the next process. */
  stop(): void {
    this.end('released', new HoldfastError('unavailable', 'the node plugin is stopping'));
  }

  status(): AttachmentStatus {
    const { progress } = this.#resyncs;
    return {
      state: this.#state === 'released' ? 'releasing' : this.#state,
      epoch: this.epoch,
      inSync: [...this.#set.membership.inSync],
      regionsOpen: this.#closer.openCount,
      regionsToReconcile: this.#reconciler.left,
      resync: progress ? { ...progress } : null,
      maintenance: this.maintenance,
      waitsFor: this.#waitsFor(),
    };
  }

  #waitsFor(): string[] {
    if (this.#ended) {
      const { message } = this.#ended;
      return [this.#fencedBy === undefined ? message : `fenced by ${this.#fencedBy}: ${message}`];
    }
    const waits = [...this.#set.waitsFor, ...this.#mender.waitsFor, ...this.#resyncs.waitsFor];
    for (const member of this.#permit.missing) {
      if (member?.connected) waits.push(`a confirmation from ${member.node} before reads`);
    }
    const { minInSync } = this.#set.record.parameters;
    if (!mayAcknowledge(this.#set.membership.inSync, minInSync)) waits.push(`${minInSync} replicas to be in sync`);
    return waits;
  }

  /** Tells the figures of this writer. */
  tell(tell: Tell): void {
    const { membership, inSync: members } = this.#set;
    tellWriter(tell, { status: this.status(), membership, members, confirmationsMissing: this.#permit.missing.length });
  }

  end(state: Exclude<State, 'serving' | 'releasing'>, reason: HoldfastError, by: Fencer = 'record'): void {
    if (this.#ended) return;
    // An attachment that ended fails its I/O; a process that stops leaves it waiting, and its connections are gone.
    this.#ended = state === 'released' ? reason : new HoldfastError('fenced', reason.message, { cause: reason });
    this.#state = state;
    if (state === 'fenced') this.#tellFenced(reason, by);
    if (state === 'failed') this.node.log.error({ volume: this.volume, reason: reason.message }, 'writer has failed');
    this.#closer.stop();
    this.#mender.look();
    this.#set.close(this.#ended);
    this.#tellLost(this.#ended);
  }

  #tellFenced(reason: HoldfastError, by: Fencer): void {
    const { volume, epoch, session } = this;
    this.#fencedBy = by;
    this.node.log.warn({ volume, epoch, session, by, reason: reason.message }, 'writer was fenced');
    const [kind = by] = by.split(' ');
    metersOf(this.node).counter('holdfast_writers_fenced_total', { by: kind }).add();
  }

  /** Work beside the I/O. One that learns that the writer is fenced ends it; any other failure is a defect, and told. */
  background(what: string, work: () => Promise<void>): void {
    work().catch((error: unknown) => {
      if (this.#ended) return;
      if (codeOf(error) === 'fenced') this.end('fenced', asHoldfastError(error));
      else this.node.log.error({ volume: this.volume, err: error }, `${what} failed`);
    });
  }
}
