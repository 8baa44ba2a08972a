import { HoldfastError } from '../base/errors.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { Replicas } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';

/**
 * Removes the replica of a volume that no longer wants one here. The record is asked first: a request that comes late,
 * or again, must not take a replica that was made here anew. `failed-precondition`: the record names it.
 *
 * While the volume is being made, one that an earlier try left on another disk stands in the way, and may go.
 */
export async function removeUnnamed(
  parts: { readonly store: Pick<RecordStore, 'get'>; readonly replicas: Replicas; readonly nodeName: NodeName },
  volume: VolumeId,
): Promise<void> {
  const { store, replicas, nodeName } = parts;
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
