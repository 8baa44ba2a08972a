import { asHoldfastError, codeOf } from '../base/errors.js';
import type { Counter } from '../base/meters.js';
import type { Slab } from '../io/io.js';
import type { Layout } from '../model/layout.js';
import { equalise } from './equalise.js';
import type { Member } from './member.js';
import type { ReplicaSet, SetOwner } from './replica-set.js';

/**
 * R6: after a take-over, every region that a fenced replica reported open may differ. It is compared and copied from
 * one in-sync replica to the others before anything in it is read or written: on demand first, the rest in the
 * background.
 */
export class Reconciler {
  readonly #waiting: Set<number>;
  readonly #underWay = new Map<number, Promise<void>>();

  constructor(
    regions: Iterable<number>,
    private readonly layout: Layout,
    private readonly slab: Slab,
    private readonly set: ReplicaSet,
    private readonly owner: SetOwner,
    /** Bytes copied. */
    private readonly copied: Counter,
  ) {
    this.#waiting = new Set(regions);
  }

  get left(): number {
    return this.#waiting.size;
  }

  isWaiting(region: number): boolean {
    return this.#waiting.has(region);
  }

  /** Undefined where the range may be used at once. */
  ensure(offset: number, length: number): Promise<void> | undefined {
    if (this.#waiting.size === 0) return undefined;
    const { first, last } = this.layout.regionsOf(offset, length);
    const needed: Promise<void>[] = [];
    for (let region = first; region <= last; region++) {
      if (this.#waiting.has(region)) needed.push(this.#reconcile(region));
    }
    return needed.length === 0 ? undefined : Promise.all(needed).then(() => undefined);
  }

  /** Reconciles all that is left, one region after the other. */
  async run(): Promise<void> {
    for (const region of this.#waiting) await this.#reconcile(region);
  }

  #reconcile(region: number): Promise<void> {
    const known = this.#underWay.get(region);
    if (known) return known;
    const work = this.#equalise(region).finally(() => this.#underWay.delete(region));
    this.#underWay.set(region, work);
    return work;
  }

  async #equalise(region: number): Promise<void> {
    const { regionBytes } = this.layout;
    const offset = region * regionBytes;
    const length = Math.min(regionBytes, this.owner.sizeBytes - offset);
    for (;;) {
      if (this.owner.ended) throw this.owner.ended;
      const seen = this.set.changed.count;
      const members = this.set.inSync;
      if (members.every((member) => member.connected) && (await this.#equaliseAmong(members, offset, length))) break;
      await this.set.changed.since(seen);
    }
    this.#waiting.delete(region);
  }

  /** False where a member failed on the way, or the set has changed meanwhile: it is to be done again. */
  async #equaliseAmong(members: readonly Member[], offset: number, length: number): Promise<boolean> {
    let [asked] = members;
    if (!asked) return false;
    if (members.length === 1) return true;
    const { slab, copied } = this;
    try {
      const job = { members, slab, copied, asking: (member: Member) => (asked = member) };
      await equalise(job, offset, length, this.layout.compareBytes);
    } catch (error) {
      if (codeOf(error) !== 'unavailable') this.set.fail(asked.node, asHoldfastError(error));
      return false;
    }
    return sameMembers(members, this.set.inSync);
  }
}

function sameMembers(one: readonly Member[], other: readonly Member[]): boolean {
  return one.length === other.length && one.every((member) => other.includes(member));
}
