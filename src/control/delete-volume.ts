import { HoldfastError, messageOf } from '../base/errors.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { Versioned, VolumeRecord } from '../model/records.js';
import { changeVolume, type ControlParts } from './parts.js';

/**
 * How a volume ends: `deleting` is swapped into the record only where nobody is its writer, and a take-over is refused
 * unless the record is `ready`; as both compare the record's version, one of the two wins. Then the replicas go, then
 * the record. A node that can't be reached finds by itself that its replica has no record.
 */
export async function deleteVolume(parts: ControlParts, id: VolumeId): Promise<void> {
  await endMaintenance(parts, id);
  const marked = await markDeleting(parts, id);
  if (marked !== undefined) await finishDelete(parts, marked);
}

/** A writer without a device is nobody's use of the volume: its node is asked to give it up. */
async function endMaintenance({ store, agents, liveness, log }: ControlParts, id: VolumeId): Promise<void> {
  const writer = (await store.get('volume', volumeKey(id)))?.record.writer;
  if (writer?.maintenance !== true || liveness.state(writer.node) === 'expired') return;
  const node = await store.get('node', writer.node);
  if (node === undefined) return;
  try {
    await agents.of(node.record).yieldVolume(id);
  } catch (error) {
    log.info({ volume: id, node: writer.node, reason: messageOf(error) }, 'maintenance does not end yet');
  }
}

/** `failed-precondition`: in use. `undefined`: there is no such volume, or a newer one bears its name. */
export async function markDeleting(parts: ControlParts, id: VolumeId): Promise<Versioned<VolumeRecord> | undefined> {
  const found = await changeVolume(parts, volumeKey(id), async (record) => {
    if (record.id !== id || record.phase === 'deleting') return undefined;
    if (record.writer === null) return { ...record, phase: 'deleting' };
    const { node } = record.writer;
    if (!(await isGone(parts, node))) {
      if (record.writer.maintenance === true) {
        throw new HoldfastError(
          'aborted',
          `node ${node} still brings the replicas of volume ${id} into line; try again`,
        );
      }
      throw new HoldfastError('failed-precondition', `volume ${id} is in use on node ${node}; unstage it there first`);
    }
    // As in a take-over, a writer whose lease has expired is passed over; the epoch fences it where it still lives.
    return { ...record, phase: 'deleting', writer: null, epoch: record.epoch + 1 };
  });
  return found?.record.id === id ? found : undefined;
}

/** Removes the replicas that can be reached, then the record of a volume in `deleting`. */
export async function finishDelete(
  parts: ControlParts,
  { key, version, record }: Versioned<VolumeRecord>,
): Promise<void> {
  await Promise.all(record.replicas.map(({ node }) => removeReplica(parts, node, record.id)));
  try {
    await parts.store.delete('volume', key, version);
  } catch (error) {
    if (!(error instanceof HoldfastError) || (error.code !== 'not-found' && error.code !== 'conflict')) throw error;
    const left = await parts.store.get('volume', key);
    if (left?.record.id === record.id) throw new HoldfastError('aborted', `volume ${record.id} was changed; try again`);
  }
}

async function removeReplica(
  { store, agents, liveness, strays, log }: ControlParts,
  name: NodeName,
  id: VolumeId,
): Promise<void> {
  try {
    const node = await store.get('node', name);
    if (node === undefined) return;
    if (liveness.state(name) === 'expired') {
      strays.add(name, id);
      return;
    }
    await agents.of(node.record).removeReplica(id);
  } catch (error) {
    strays.add(name, id);
    log.warn({ volume: id, node: name, reason: messageOf(error) }, 'replica not removed yet');
  }
}

/** Whether a node can't be a writer any more: its lease has expired, or it left the cluster. */
export async function isGone({ store, liveness }: ControlParts, name: NodeName): Promise<boolean> {
  return liveness.state(name) === 'expired' || (await store.get('node', name)) === undefined;
}
