import { HoldfastError } from '../base/errors.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { Replicas } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';

/**
 * Removes the replica of a volume that no longer wants one here. The record is asked first: a request that comes late,
 * or again, must not take a replica that was made here anew. `failed-precondition`: the record names it.
 */
export async function removeUnnamed(
  parts: { readonly store: Pick<RecordStore, 'get'>; readonly replicas: Replicas; readonly nodeName: NodeName },
  volume: VolumeId,
): Promise<void> {
  const record = (await parts.store.get('volume', volumeKey(volume)))?.record;
  const named = record?.id === volume && record.replicas.some(({ node }) => node === parts.nodeName);
  if (named && record.phase === 'ready') {
    throw new HoldfastError(
      'failed-precondition',
      `the record of volume ${volume} names its replica on node ${parts.nodeName}; it must leave the record first`,
    );
  }
  await parts.replicas.remove(volume, 'deleted');
}
