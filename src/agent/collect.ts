import { performance } from 'node:perf_hooks';
import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { Replicas } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';

export interface CollectOptions {
  readonly store: RecordStore;
  readonly replicas: Replicas;
  readonly nodeName: NodeName;
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
  readonly #unnamedSince = new Map<VolumeId, number>();
  readonly #now: () => number;

  constructor(private readonly options: CollectOptions) {
    this.#now = options.now ?? (() => performance.now());
  }

  /** One look at all replicas. A store that does not answer: nothing is concluded from this look. */
  async look(): Promise<void> {
    const { store, replicas } = this.options;
    // Replicas first: one made after the list of records was read must not look unnamed.
    const held = await replicas.list();
    const { items } = await store.list('volume');
    const records = new Map(items.map((item) => [item.key, item.record]));
    const unnamed = held.filter(({ volume }) => !this.#names(records.get(volumeKey(volume)), volume));
    this.#forgetAllBut(unnamed.map(({ volume }) => volume));
    for (const { volume } of unnamed) await this.#consider(volume);
  }

  async #consider(volume: VolumeId): Promise<void> {
    const since = this.#unnamedSince.get(volume);
    if (since === undefined) {
      this.#unnamedSince.set(volume, this.#now());
      return;
    }
    if (this.#now() - since < this.options.graceMs) return;
    const { store, replicas, log } = this.options;
    try {
      const current = await store.get('volume', volumeKey(volume));
      if (this.#names(current?.record, volume)) return;
      await replicas.remove(volume, 'unnamed');
      this.#unnamedSince.delete(volume);
      log.info({ volume }, 'replica that no record names went to the trash');
    } catch (error) {
      log.warn({ volume, reason: messageOf(error) }, 'replica that no record names can not be removed yet');
    }
  }

  #forgetAllBut(volumes: VolumeId[]): void {
    for (const volume of this.#unnamedSince.keys()) {
      if (!volumes.includes(volume)) this.#unnamedSince.delete(volume);
    }
  }

  #names(record: VolumeRecord | undefined, volume: VolumeId): boolean {
    return record?.id === volume && record.replicas.some(({ node }) => node === this.options.nodeName);
  }
}
