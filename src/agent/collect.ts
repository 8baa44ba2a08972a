import { performance } from 'node:perf_hooks';
import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { volumeKey } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { Replicas, ReplicaSummary } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';
import { checkCluster } from './cluster.js';
import type { ReplicaTurns } from './remove.js';

export interface CollectOptions {
  readonly store: RecordStore;
  readonly replicas: Replicas;
  readonly turns: ReplicaTurns;
  readonly clusterId: string;
  /** A replica must have been seen without a record for so long. */
  readonly graceMs: number;
  readonly log: Log;
  /** Monotonic milliseconds; for tests. */
  readonly now?: () => number;
}

/**
 * Given a replica on this node that no record names, seen so for the whole grace time while the store answered, then
 * it goes to its disk's trash.
 */
export class ReplicaCollector {
  /** By place: one of two replicas of a volume here may be an old one. */
  readonly #unnamedSince = new Map<string, number>();
  readonly #now: () => number;

  constructor(private readonly options: CollectOptions) {
    this.#now = options.now ?? (() => performance.now());
  }

  /**
   * One look at all replicas. A store that does not answer, or is that of another cluster: nothing is concluded from
   * this look.
   */
  async look(): Promise<void> {
    const { store, replicas, clusterId } = this.options;
    // One that was made anew, or is another's, names none of them.
    await checkCluster(store, clusterId);
    // Replicas first: one made after the list of records was read must not look unnamed.
    const held = await replicas.list();
    const { items } = await store.list('volume');
    const records = new Map(items.map((item) => [item.key, item.record]));
    const unnamed = held.filter((replica) => !this.#names(records.get(volumeKey(replica.volume)), replica));
    this.#forgetAllBut(unnamed);
    for (const replica of unnamed) await this.#consider(replica);
  }

  async #consider(replica: ReplicaSummary): Promise<void> {
    const { volume, disk } = replica;
    const since = this.#unnamedSince.get(placeOf(replica));
    if (since === undefined) {
      this.#unnamedSince.set(placeOf(replica), this.#now());
      return;
    }
    if (this.#now() - since < this.options.graceMs) return;
    const { turns, log } = this.options;
    try {
      if (!(await turns.run(volume, () => this.#removeUnnamed(replica)))) return;
      this.#unnamedSince.delete(placeOf(replica));
      log.info({ volume, disk }, 'replica that no record names went to the trash');
    } catch (error) {
      const reason = messageOf(error);
      log.warn({ volume, disk, reason }, 'replica that no record names can not be removed yet');
    }
  }

  /** False: a record names it by now. */
  async #removeUnnamed(replica: ReplicaSummary): Promise<boolean> {
    const { store, replicas } = this.options;
    const { volume, disk } = replica;
    const current = await store.get('volume', volumeKey(volume));
    if (this.#names(current?.record, replica)) return false;
    await replicas.remove(volume, 'unnamed', disk);
    return true;
  }

  #forgetAllBut(unnamed: readonly ReplicaSummary[]): void {
    const places = new Set(unnamed.map(placeOf));
    for (const place of this.#unnamedSince.keys()) if (!places.has(place)) this.#unnamedSince.delete(place);
  }

  #names(record: VolumeRecord | undefined, { volume, disk }: ReplicaSummary): boolean {
    return record?.id === volume && record.replicas.some((named) => named.disk === disk);
  }
}

function placeOf({ volume, disk }: ReplicaSummary): string {
  return `${volume} ${disk}`;
}
