import { HoldfastError } from '../base/errors.js';
import type { KeyedMutex } from '../base/mutex.js';
import { volumeKey, type DiskId, type NodeName, type VolumeId } from '../model/ids.js';
import type { Replicas } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';

/**
 * Held from looking at the record to removing a replica that it does not name, and while one is made: what is made
 * meanwhile may be named before the removal comes to it.
 */
export type ReplicaTurns = KeyedMutex<VolumeId>;

/**
 * Removes the replicas here of a volume that no longer wants them. The record is asked first: a request that comes late,
 * or again, must not take a replica that was made here anew; nor one whose disk was moved here, which the record names by
 * the node that it was on. `failed-precondition`: there is no other.
 */
export function removeUnnamed(parts: RemoveParts, volume: VolumeId): Promise<void> {
  return parts.turns.run(volume, () => removeInTurn(parts, volume));
}

export interface RemoveParts {
  readonly store: Pick<RecordStore, 'get'>;
  readonly replicas: Replicas;
  readonly turns: ReplicaTurns;
  readonly nodeName: NodeName;
}

async function removeInTurn({ store, replicas, nodeName }: RemoveParts, volume: VolumeId): Promise<void> {
  const record = (await store.get('volume', volumeKey(volume)))?.record;
  if (record?.id !== volume || record.phase === 'deleting') return replicas.remove(volume, 'deleted');
  const isNamed = (disk: DiskId): boolean => record.replicas.some((named) => named.disk === disk);
  const held = (await replicas.list()).filter((replica) => replica.volume === volume);
  const unnamed = held.filter(({ disk }) => !isNamed(disk));
  if (held.length > 0 && unnamed.length === 0) {
    throw new HoldfastError(
      'failed-precondition',
      `the record of volume ${volume} names its replica on node ${nodeName}; it must leave the record first`,
    );
  }
  for (const { disk } of unnamed) await replicas.remove(volume, 'deleted', disk);
}
