import { asHoldfastError, codeOf, HoldfastError } from '../base/errors.js';
import { Signal } from '../base/signal.js';
import type { NodeName, SessionId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { ReplicaSession } from '../replica/session.js';
import { inSyncOf } from './membership.js';
import { judgeUsable, type UsableVerdict } from './rules.js';
import { admissionTo, type WriterNode } from './writer-node.js';

/** A fenced replica. */
export interface Fenced {
  readonly session: ReplicaSession;
  /** When the session was asked for: it has known no newer epoch since. */
  readonly askedAt: number;
}

const RETRY_MS = 200;

/** R5: the fencing of every in-sync replica that can be reached, all at once. */
export class Fencing {
  readonly #progress = new Signal();
  /** Replicas still being tried. */
  readonly #open: Set<NodeName>;
  readonly #refusals = new Map<NodeName, HoldfastError>();
  #over = false;
  #superseded: HoldfastError | undefined;

  constructor(
    private readonly node: WriterNode,
    private readonly record: VolumeRecord,
    private readonly session: SessionId,
    /** A node whose lease has expired: its replica is tried, but nobody waits for it. */
    private readonly absent: NodeName | undefined,
    /** Filled with what was fenced and is usable. */
    private readonly fenced: Map<NodeName, Fenced>,
  ) {
    this.#open = new Set(inSyncOf(record));
  }

  /**
   * Ends when all have answered; or `fenceMs` have passed and one has; or, at the deadline, with `unavailable` where
   * none has. R10: where only marked ones answered, one without mark is looked for `crashLookMs` longer. Resolves
   * to true where only marked ones were found: unflushed writes may be lost. `fenced`: a newer epoch is known.
   */
  async run(deadline: number): Promise<boolean> {
    for (const name of this.#open) void this.#fence(name);
    try {
      await this.#look(deadline, this.node.timing.fenceMs, () => this.#noneAwaited);
      await this.#wait(deadline, () => this.fenced.size > 0 || this.#open.size === 0);
      if (this.#verdict.kind === 'all-crashed') {
        const { crashLookMs } = this.node.timing;
        await this.#look(deadline, crashLookMs, () => this.#verdict.kind === 'usable' || this.#open.size === 0);
      }
    } finally {
      this.#over = true;
    }
    if (this.#superseded) throw this.#superseded;
    return this.#keepUsable();
  }

  /** Why a replica is not among those that were fenced and are usable. */
  whyNot(name: NodeName): string {
    return this.#refusals.get(name)?.message ?? 'it did not answer';
  }

  #keepUsable(): boolean {
    const verdict = this.#verdict;
    if (verdict.kind === 'none') {
      const tried = [...this.#refusals].map(([name, { message }]) => `${name}: ${message}`).join('; ');
      // R12: with no in-sync replica it does not attach; one that comes back changes that.
      throw new HoldfastError(
        'unavailable',
        `no in-sync replica of ${this.record.id} can be reached (${tried || 'there is none'})`,
      );
    }
    for (const [name, { session }] of this.fenced) {
      if (verdict.nodes.has(name)) continue;
      this.#refusals.set(name, new HoldfastError('io-error', 'it may have lost writes in a crash'));
      session.end();
      this.fenced.delete(name);
    }
    return verdict.kind === 'all-crashed';
  }

  async #fence(name: NodeName): Promise<void> {
    const { io } = this.node;
    while (!this.#over) {
      const askedAt = io.clock.now();
      try {
        const admission = admissionTo(this.record, name, this.session);
        this.#keep(name, { session: await this.node.connect(name, this.record.id, admission), askedAt });
        break;
      } catch (error) {
        const reason = asHoldfastError(error);
        this.#refusals.set(name, reason);
        if (codeOf(reason) === 'fenced') this.#superseded = reason;
        // An in-sync replica that is not found on its disk has failed (R12).
        if (codeOf(reason) !== 'unavailable') break;
        await io.clock.sleep(RETRY_MS);
      }
    }
    this.#open.delete(name);
    this.#progress.notify();
  }

  /** One that comes after the end is no longer in the set. */
  #keep(name: NodeName, fenced: Fenced): void {
    if (this.#over) fenced.session.end();
    else this.fenced.set(name, fenced);
  }

  get #noneAwaited(): boolean {
    return [...this.#open].every((name) => name === this.absent);
  }

  get #verdict(): UsableVerdict {
    return judgeUsable(new Map([...this.fenced].map(([name, { session }]) => [name, session.state])));
  }

  /** Looks for `lookMs`; a deadline that cuts this short must not cost a replica the set: `unavailable`. */
  async #look(deadline: number, lookMs: number, enough: () => boolean): Promise<void> {
    const end = this.node.io.clock.now() + lookMs;
    await this.#wait(Math.min(deadline, end), enough);
    if (end > deadline && !this.#superseded && !enough()) {
      throw new HoldfastError('unavailable', `not every replica of ${this.record.id} answered in the time given`);
    }
  }

  async #wait(end: number, enough: () => boolean): Promise<void> {
    const { clock } = this.node.io;
    const time = { up: false };
    const cancel = clock.timer(Math.max(0, end - clock.now()), () => {
      time.up = true;
      this.#progress.notify();
    });
    while (!this.#superseded && !enough() && !time.up) await this.#progress.since(this.#progress.count);
    cancel();
  }
}
