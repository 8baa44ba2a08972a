import { HoldfastError, codeOf } from '../base/errors.js';
import type { MainMethods } from '../data-thread.js';
import type { Clock } from '../io/io.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { NodeRecord } from '../model/records.js';
import type { LeaseObserver } from '../store/lease.js';
import type { RecordStore } from '../store/store.js';
import type { RecordCache } from '../store/watch.js';

export interface DataServicesOptions {
  readonly store: RecordStore;
  /** Where nodes are; still right while the store is away. */
  readonly nodes: Pick<RecordCache<'node'>, 'get'>;
  readonly leases: LeaseObserver;
  readonly clock: Clock;
  /** What is asked of other nodes. */
  readonly agents: { of(node: NodeRecord): { yieldVolume(volume: VolumeId): Promise<boolean> } };
}

/** What the data threads ask of the main thread: the store, leases and addresses. None of it is part of an I/O. */
export function dataServices({ store, nodes, leases, clock, agents }: DataServicesOptions): MainMethods {
  const find = async (node: NodeName): Promise<NodeRecord | undefined> =>
    nodes.get(node)?.record ?? (await store.get('node', node))?.record;
  return {
    getVolume: async (volume) => {
      // A record is found by the volume's name: that of another volume, which has the name now, is nothing to this one.
      const found = await store.get('volume', volumeKey(volume));
      return found?.record.id === volume ? found : undefined;
    },
    updateVolume: (record, version) => store.update('volume', volumeKey(record.id), record, version),
    leaseExpired: async (node, timeoutMs) => {
      const late = new AbortController();
      const cancel = clock.timer(Math.max(0, timeoutMs), () => late.abort());
      try {
        await leases.waitExpired(node, late.signal);
        return true;
      } catch (error) {
        if (codeOf(error) === 'cancelled') return false;
        throw error;
      } finally {
        cancel();
      }
    },
    askToYield: async (node, volume) => {
      const record = await find(node);
      if (record === undefined) throw new HoldfastError('unavailable', `node ${node} is not known here`);
      await agents.of(record).yieldVolume(volume);
    },
    dataAddress: async (node, index) => {
      const record = await find(node);
      const port = record?.dataPorts[index];
      if (record === undefined || port === undefined) {
        throw new HoldfastError('unavailable', `node ${node} has no data thread ${index} that is known here`);
      }
      return { kind: 'tcp', host: record.host, port };
    },
  };
}
