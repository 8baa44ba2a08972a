import { bounded } from '../base/bounded.js';
import { asHoldfastError, codeOf, type ErrorCode, HoldfastError } from '../base/errors.js';
import { Signal } from '../base/signal.js';
import type { NodeName } from '../model/ids.js';
import type { ReplicaRecord, VolumeRecord } from '../model/records.js';
import type { ReplicaSession } from '../replica/session.js';
import type { Confirmations } from './confirmations.js';
import { FanOut } from './fan-out.js';
import { Member } from './member.js';
import { Membership } from './membership.js';
import { afterDrop, isSameReplica, mayRetire, mayShrinkTo, mustStay } from './rules.js';
import type { TakenOver } from './take-over.js';
import { admissionTo, inTime, metersOf, noteOf, type WriterNode } from './writer-node.js';

const RECONNECT_PAUSE_MS = 200;
const SWEEP_MS = 500;

/**
 * Who fenced a writer: a replica that knows a newer epoch, what the record shows, a newer session on its own node, or
 * the forced end of its attachment.
 */
export type Fencer = `replica ${NodeName}` | 'record' | 'node' | 'revoke';

/** Why a replica is dropped (R4), where that is not the code of its error. */
export type DropReason = 'not-back' | 'no-answer' | 'crashed' | 'stopping' | ErrorCode;

/** The writer, as its replica set sees it. */
export interface SetOwner {
  readonly sizeBytes: number;
  readonly ended: HoldfastError | undefined;
  end(state: 'fenced' | 'failed', reason: HoldfastError, by?: Fencer): void;
  /** Runs work beside the I/O. */
  background(what: string, work: () => Promise<void>): void;
}

/**
 * The replicas that a writer writes to: who is in sync by the record, who is connected, who is on the way out (R4), and
 * the target of a running resync. What it changes is told by `changed`.
 */
export class ReplicaSet {
  readonly changed = new Signal();
  readonly membership: Membership;
  readonly fanOut: FanOut;
  /** In-sync replicas, and those that may be by an unanswered CAS. */
  readonly #members = new Map<NodeName, Member>();
  /** Members on their way out of the set, and why. */
  readonly #failing = new Map<NodeName, string>();
  /** Members being connected again. */
  readonly #returning = new Set<Member>();
  readonly #confirming = new Map<Member, () => void>();
  #looking = false;
  /** What the last in-sync replica refused with: of interest until it has answered again, is back, or is no longer asked. */
  #refusal: { readonly node: NodeName; readonly reason: string; readonly at: number } | undefined;
  #target: Member | undefined;
  #required: ReadonlySet<NodeName>;

  constructor(
    private readonly node: WriterNode,
    private readonly confirmations: Confirmations,
    private readonly taken: TakenOver,
    private readonly owner: SetOwner,
  ) {
    const { records, io, log } = node;
    const note = noteOf(node);
    this.membership = new Membership(records, io.clock, log, taken.session, taken.record, note, () => this.#update());
    this.#required = this.membership.inSync;
    this.fanOut = new FanOut(
      () => this.#required,
      (name) => this.#works(name),
      (name, error) => this.fail(name, error),
    );
    for (const [name, { session, askedAt }] of taken.fenced) {
      const member = this.newMember(name);
      this.#members.set(name, member);
      this.fanOut.add(member);
      member.connect(session, askedAt);
      session.serving().catch(() => undefined);
    }
  }

  get record(): VolumeRecord {
    return this.membership.record;
  }

  /** The in-sync replicas, the own node's first. */
  get inSync(): Member[] {
    const members = [...this.#members.values()].filter((member) => this.membership.inSync.has(member.node));
    return members.sort((one, other) => Number(other.local) - Number(one.local));
  }

  /** Whom R3 and R9 ask: members of every in-sync set that the record may hold, and the resync target. */
  get asked(): (Member | undefined)[] {
    return [...this.#required].map((name) => (this.#target?.node === name ? this.#target : this.#members.get(name)));
  }

  has(name: NodeName): boolean {
    return this.#members.has(name);
  }

  newMember(name: NodeName): Member {
    const { node } = this;
    const member = new Member(name, name === node.name, node.io.clock, (lost, reason) => this.#onLost(lost, reason));
    if (member.local) return member;
    const stop = this.confirmations.subscribe(name, {
      volume: this.record.id,
      session: this.taken.session,
      epoch: () => this.membership.epoch,
      confirmed: (askedAt) => {
        member.confirmedAt = Math.max(member.confirmedAt, askedAt);
        this.changed.notify();
      },
      denied: () => this.#look(),
      unknown: (askedAt) => {
        if (member.connectedAt < askedAt)
          member.lose(new HoldfastError('unavailable', `${name} knows no session of this writer`));
      },
      stopping: () => this.fail(name, new HoldfastError('unavailable', `the plugin of ${name} stops`), 'stopping'),
    });
    this.#confirming.set(member, stop);
    return member;
  }

  /**
   * R5 on the replica's side, with the epoch and session of this writer. The replica has the size that is served.
   * Bounded: `unavailable`.
   */
  async openSession(name: NodeName): Promise<ReplicaSession> {
    const { io, timing } = this.node;
    const admission = admissionTo(this.record, name, this.taken.session);
    const opening = this.node.connect(name, this.record.id, admission);
    const session = await bounded(io.clock, timing.answerMs, `a session on ${name}`, opening, (late) => late.end());
    await inTime(this.node, name, session, () => session.grow(this.owner.sizeBytes));
    return session;
  }

  /**
   * R4: a replica has failed. True: nothing more is sent to it, and it leaves the set (or its resync ends). False: it
   * is the last one, which is never dropped.
   */
  fail(name: NodeName, error: HoldfastError, why: DropReason = codeOf(error)): boolean {
    if (codeOf(error) === 'fenced') {
      this.owner.end('fenced', error, `replica ${name}`);
      return true;
    }
    if (this.owner.ended || this.#failing.has(name)) return true;
    if (this.#target?.node === name) {
      this.#target.disconnect(error);
      return true;
    }
    const member = this.#members.get(name);
    if (!member) return true;
    // A replica that may have been added by a CAS under way counts: the drop waits for that CAS.
    const others = [...this.membership.possible].some((other) => other !== name && !this.#failing.has(other));
    if (!others) {
      // What the last replica refuses a resync target may have carried out: it is out until it is fenced anew.
      this.#target?.disconnect(new HoldfastError('unavailable', 'the source refused a request'));
      this.#refusal = { node: name, reason: error.message, at: this.node.io.clock.now() };
      return false;
    }
    this.node.log.warn({ volume: this.record.id, replica: name, why, reason: error.message }, 'dropping replica');
    metersOf(this.node).counter('holdfast_replica_drops_total', { replica: name, reason: why }).add();
    this.#failing.set(name, error.message);
    member.disconnect(new HoldfastError('unavailable', error.message));
    this.owner.background('drop', () => this.#drop());
    this.changed.notify();
    return true;
  }

  /** R4: no answer for `answerMs` is a failure. Runs until the writer ends. */
  async watch(): Promise<void> {
    const { answerMs } = this.node.timing;
    while (!this.owner.ended) {
      for (const member of [...this.#members.values(), this.#target]) {
        if (member === undefined || member.oldestMs <= answerMs) continue;
        this.fail(member.node, new HoldfastError('io-error', `no answer for ${answerMs} ms`), 'no-answer');
      }
      await this.node.io.clock.sleep(SWEEP_MS);
    }
  }

  // --- the target of a resync (R7) ----------------------------------------------------------------------------------

  /** From now on the target gets every write, those in flight too, and counts for R3 and R9. */
  addTarget(target: Member): void {
    this.#target = target;
    this.#update();
    this.fanOut.add(target);
  }

  /**
   * The target is copied and flushed: adds it to the in-sync set by CAS. From here on R4 applies to it. `not-found`: the
   * record names it no longer, or one that took its place.
   */
  async addMember(target: Member, replica: ReplicaRecord): Promise<void> {
    this.#members.set(target.node, target);
    await this.membership.changeSet(
      (set) => {
        if (!this.record.replicas.some((named) => isSameReplica(named, replica))) {
          throw new HoldfastError('not-found', `the record no longer names this replica on ${target.node}`);
        }
        return set.has(target.node) ? undefined : new Set([...set, target.node]);
      },
      () => `the replica on ${target.node} is in sync: its resync is done`,
    );
  }

  /** The resync has ended, one way or the other. True: its target is in sync now. */
  settleTarget(target: Member): boolean {
    const added = this.membership.inSync.has(target.node) && this.#members.get(target.node) === target;
    this.#target = undefined;
    if (!added) {
      this.#members.delete(target.node);
      this.#forget(target, new HoldfastError('unavailable', 'the resync has ended'));
    } else if (!target.connected) {
      this.#onLost(target, new HoldfastError('unavailable', 'lost while it was added'));
    }
    this.#update();
    if (added) this.#dropWaiting();
    return added;
  }

  /** The writer has ended. */
  close(reason: HoldfastError): void {
    this.membership.end();
    this.fanOut.fail(reason);
    for (const member of [...this.#members.values(), this.#target]) if (member) this.#forget(member, reason);
    this.changed.notify();
  }

  /** What I/O may be waiting for here, in words. */
  get waitsFor(): string[] {
    const waits: string[] = [];
    for (const [name, reason] of this.#failing) waits.push(`the record to drop the replica on ${name} (${reason})`);
    for (const member of this.#members.values()) {
      if (this.#failing.has(member.node)) continue;
      if (!member.connected) waits.push(`the replica on ${member.node} to come back`);
      else if (member.oldestMs > this.node.timing.answerMs) waits.push(`the replica on ${member.node} to answer`);
      const refusal = this.#refusal;
      if (refusal?.node === member.node && this.node.io.clock.now() - refusal.at <= this.node.timing.answerMs) {
        waits.push(`the last replica to work again (${refusal.reason})`);
      }
    }
    return waits;
  }

  /** A replica knows a newer epoch, or is gone: the record tells whether this writer still stands. One look at a time. */
  #look(): void {
    if (this.#looking) return;
    this.#looking = true;
    this.owner.background('look at the record', () =>
      this.membership.refresh().finally(() => {
        this.#looking = false;
      }),
    );
  }

  #update(): void {
    const { possible } = this.membership;
    this.#required = this.#target ? new Set([...possible, this.#target.node]) : possible;
    this.fanOut.recheck();
    this.changed.notify();
  }

  #forget(member: Member, reason: HoldfastError): void {
    this.#confirming.get(member)?.();
    this.#confirming.delete(member);
    this.fanOut.remove(member.node);
    member.disconnect(reason);
  }

  async #drop(): Promise<void> {
    await this.membership.changeSet(
      (inSync) => {
        const left = afterDrop(inSync, new Set(this.#failing.keys()));
        return left && mayShrinkTo(left, (name) => this.#isConnected(name)) ? left : undefined;
      },
      (left) => {
        const dropped = [...this.#failing].filter(([name]) => !left.has(name) && this.membership.inSync.has(name));
        return dropped.map(([name, reason]) => `the replica on ${name} was dropped: ${reason}`).join('; ');
      },
    );
    this.#forgetDropped();
    this.#keepLast();
    this.#update();
  }

  /**
   * A replica that is not wanted any more leaves the set and the record; whoever asked may have done so long ago.
   * `failed-precondition`: it is needed.
   */
  async retire(name: NodeName, why: string): Promise<void> {
    // How many are wanted may have changed.
    await this.membership.refresh();
    const check = (inSync: ReadonlySet<NodeName>): void => {
      const absent = new Set([...inSync].filter((other) => this.#failing.has(other) || !this.#isConnected(other)));
      const least = mustStay(this.record.parameters, absent.has(name));
      if (mayRetire(name, inSync, absent, least)) return;
      throw new HoldfastError(
        'failed-precondition',
        `the replica on ${name} can not leave volume ${this.record.id}: ${least} others must stay in sync`,
      );
    };
    await this.membership.retire(name, check, `the replica on ${name} left the volume: ${why}`);
    this.#forgetDropped();
    this.#update();
  }

  #forgetDropped(): void {
    for (const [name, member] of this.#members) {
      if (this.membership.inSync.has(name) || member === this.#target) continue;
      this.#members.delete(name);
      this.#failing.delete(name);
      this.#forget(member, new HoldfastError('unavailable', 'dropped from the in-sync set'));
    }
  }

  /** Whoever is left and can't be dropped is the last one after all, and is waited for. */
  #keepLast(): void {
    if (afterDrop(this.membership.inSync, new Set(this.#failing.keys()))) return;
    for (const [name, reason] of this.#failing) {
      this.#failing.delete(name);
      const member = this.#members.get(name);
      if (member && !member.connected) this.#onLost(member, new HoldfastError('unavailable', reason));
    }
  }

  #onLost(member: Member, reason: HoldfastError): void {
    if (codeOf(reason) === 'fenced') this.owner.end('fenced', reason, `replica ${member.node}`);
    if (this.owner.ended || this.#members.get(member.node) !== member) return;
    this.node.log.warn({ volume: this.record.id, replica: member.node, reason: reason.message }, 'replica lost');
    if (!this.#returning.has(member)) this.owner.background('reconnect', () => this.#reconnect(member));
    this.changed.notify();
  }

  async #reconnect(member: Member): Promise<void> {
    this.#returning.add(member);
    try {
      await this.#reconnectUntil(member, this.node.io.clock.now() + this.node.timing.reconnectMs);
    } finally {
      this.#returning.delete(member);
    }
  }

  async #reconnectUntil(member: Member, deadline: number): Promise<void> {
    const { clock } = this.node.io;
    let lookedAt = -Infinity;
    while (!this.owner.ended && !member.connected && this.#mayReturn(member)) {
      try {
        if (await this.#connectOnce(member)) continue;
      } catch (error) {
        const reason = asHoldfastError(error);
        if (codeOf(reason) === 'not-found' && clock.now() - lookedAt >= this.node.timing.reconnectMs) {
          // The volume itself may be gone, or is about to be.
          lookedAt = clock.now();
          this.#look();
        }
        if (codeOf(reason) === 'fenced') this.owner.end('fenced', reason, `replica ${member.node}`);
        else if (codeOf(reason) !== 'unavailable' || clock.now() >= deadline) {
          const told = new HoldfastError('io-error', `not back: ${reason.message}`, { cause: reason });
          this.fail(member.node, told, 'not-back');
        }
      }
      // One that crashed while its add waits for the store is dropped only after that, and would be asked again at once.
      await clock.sleep(RECONNECT_PAUSE_MS);
    }
  }

  /** One that is being dropped must not come back before the record has decided. */
  #mayReturn(member: Member): boolean {
    return this.#members.get(member.node) === member && !this.#failing.has(member.node);
  }

  /** False: it crashed, or it is not wanted any more. */
  async #connectOnce(member: Member): Promise<boolean> {
    const askedAt = this.node.io.clock.now();
    const session = await this.openSession(member.node);
    if (session.state.crashMark) {
      session.end();
      this.#onCrashed(member);
      return false;
    }
    await inTime(this.node, member.node, session, () => session.serving());
    if (this.owner.ended || !this.#mayReturn(member)) {
      session.end();
      return false;
    }
    member.connect(session, askedAt);
    this.#works(member.node);
    this.node.log.info({ volume: this.record.id, replica: member.node }, 'replica is back');
    this.fanOut.resend(member);
    this.changed.notify();
    this.#dropWaiting();
    return true;
  }

  /** What it refused with before is no reason to wait any more. */
  #works(name: NodeName): void {
    if (this.#refusal?.node === name) this.#refusal = undefined;
  }

  #isConnected(name: NodeName): boolean {
    return this.#members.get(name)?.connected ?? false;
  }

  /** A drop waits until one of the others is connected. */
  #dropWaiting(): void {
    if (this.#failing.size > 0) this.owner.background('drop', () => this.#drop());
  }

  /** R10: no writer goes on with a replica that crashed. */
  #onCrashed(member: Member): void {
    const reason = new HoldfastError('io-error', `the replica on ${member.node} may have lost writes in a crash`);
    if (!this.fail(member.node, reason, 'crashed')) this.owner.end('failed', reason);
  }
}
