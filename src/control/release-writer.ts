import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import { CONTROLLER, decided } from '../model/decisions.js';
import { volumeKey } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { isGone } from './delete-volume.js';
import { changeVolume, type ControlParts } from './parts.js';

/**
 * R8: a person takes the writer away from its node. The node is asked to end the attachment. One that is dead can't be
 * asked: with `force` it is taken out of the record, as R5's lease rule allows; without, the next take-over passes it over.
 * `unavailable`: it can't be asked, and is not dead for certain.
 */
export async function releaseWriter(parts: ControlParts, record: VolumeRecord, force: boolean): Promise<void> {
  const { store, agents, log } = parts;
  if (record.writer === null) return;
  const { node: name } = record.writer;
  if (await isGone(parts, name)) {
    if (force) return takeOut(parts, record);
    throw new HoldfastError(
      'unavailable',
      `node ${name}, the writer of volume ${record.id}, does not renew its lease; the next node that stages the volume takes over, unless its failover is manual; add --force to take the node out of the record now`,
    );
  }
  const node = await store.get('node', name);
  if (node === undefined) return;
  log.info({ volume: record.id, node: name }, 'release asked for');
  try {
    await agents.of(node.record).releaseVolume(record.id);
  } catch (error) {
    if (!force || (codeOf(error) !== 'unavailable' && codeOf(error) !== 'deadline-exceeded')) throw error;
    throw new HoldfastError(
      'unavailable',
      `node ${name} can not be asked (${messageOf(error)}), but its lease has not expired, so it may still write; try again when it has, within a minute`,
      { cause: error },
    );
  }
}

/** Older readers may be left, so it is not `quiet`; the next take-over fences the replicas. */
async function takeOut(parts: ControlParts, { id, writer }: VolumeRecord): Promise<void> {
  const changed = await changeVolume(parts, volumeKey(id), async (record) => {
    if (record.id !== id || record.writer?.session !== writer?.session || record.writer === null) return undefined;
    const { node } = record.writer;
    if (!(await isGone(parts, node))) {
      throw new HoldfastError('aborted', `node ${node} renews its lease again; try again`);
    }
    const what = `node ${node}, whose lease had expired, is no longer the writer: released by a person with force`;
    const left = { ...record, epoch: record.epoch + 1, writer: null, quiet: false };
    return decided(left, { at: new Date().toISOString(), by: CONTROLLER, what });
  });
  if (changed !== undefined)
    parts.log.warn({ volume: id, node: writer?.node }, 'writer taken out of the record by force');
}
