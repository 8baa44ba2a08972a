import { HoldfastError } from '../base/errors.js';
import type { KeyedMutex } from '../base/mutex.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { Replicas } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';

/**
 * Held from looking at the record to removing a replica that it does not name, and while one is made: what is made
 * meanwhile may be named before the removal comes to it.
 */
export type ReplicaTurns = KeyedMutex<VolumeId>;

/**
 * Removes the replica of a volume that no longer wants one here. The record is asked first: a request that comes late,
 * or again, must not take a replica that was made here anew. `failed-precondition`: the record names it.
 *
 * While the volume is being made, one that an earlier try left on another disk stands in the way, and may go.
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
  const phase = record?.id === volume ? record.phase : 'deleting';
  const named = record?.replicas.find(({ node }) => node === nodeName);
  if (phase === 'deleting' || named === undefined) return replicas.remove(volume, 'deleted');
  const held = phase === 'creating' ? await replicas.list() : [];
  const leftovers = held.filter((replica) => replica.volume === volume && replica.disk !== named.disk);
  if (leftovers.length === 0) {
    throw new HoldfastError(
      'failed-precondition',
      `the record of volume ${volume} names its replica on node ${nodeName}; it must leave the record first`,
    );
  }
  for (const { disk } of leftovers) await replicas.remove(volume, 'deleted', disk);
}
