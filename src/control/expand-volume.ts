import { HoldfastError, messageOf } from '../base/errors.js';
import { volumeKey, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { placementNodes, readCluster } from './cluster-view.js';
import { changeVolume, type ControlParts } from './parts.js';
import { roomOf, type PlacementDisk } from './placement.js';
import { outOfRange, roundedWithin, type CapacityRange } from './sizes.js';

export interface Expanded {
  readonly capacityBytes: number;
  /** The filesystem on the node has to grow too. */
  readonly nodeStepNeeded: boolean;
}

/**
 * Growth, online or not. The record grows first; it is what every later take-over makes the replicas as big as. An
 * attachment is then asked to take the capacity on; where that fails the caller tries again and finds the record grown.
 * `not-found`, `out-of-range` (limits, or no room), `unavailable`.
 */
export async function expandVolume(parts: ControlParts, id: VolumeId, range: CapacityRange): Promise<Expanded> {
  const record = await raiseCapacity(parts, id, roundedWithin(range), range);
  await growAttachment(parts, record);
  return { capacityBytes: record.capacityBytes, nodeStepNeeded: record.content.kind === 'filesystem' };
}

function raiseCapacity(
  parts: ControlParts,
  id: VolumeId,
  wantedBytes: number,
  range: CapacityRange,
): Promise<VolumeRecord> {
  return parts.placing.run(async () => {
    const raised = await changeVolume(parts, volumeKey(id), async (record) => {
      if (record.id !== id) return undefined;
      if (record.phase === 'creating') {
        throw new HoldfastError(
          'failed-precondition',
          `volume ${id} is still being created; create it again to finish`,
        );
      }
      if (record.capacityBytes > range.limitBytes) {
        throw outOfRange('limit_bytes', range.limitBytes, `at least ${record.capacityBytes}, as volumes do not shrink`);
      }
      if (record.phase === 'deleting' || record.capacityBytes >= wantedBytes) return undefined;
      await checkRoom(parts, record, wantedBytes);
      return { ...record, capacityBytes: wantedBytes };
    });
    if (raised?.record.id !== id || raised.record.phase === 'deleting') {
      throw new HoldfastError('not-found', `there is no volume ${id}`);
    }
    return raised.record;
  });
}

/** Every replica's disk must have room for what is added. */
async function checkRoom(parts: ControlParts, record: VolumeRecord, wantedBytes: number): Promise<void> {
  const nodes = placementNodes(await readCluster(parts.store), parts.liveness);
  const disks = new Map(nodes.flatMap((node) => node.disks.map((disk): [string, PlacementDisk] => [disk.id, disk])));
  for (const { node, disk: diskId } of record.replicas) {
    const disk = disks.get(diskId);
    // A replica whose disk is lost is rebuilt elsewhere, in the size that the record has then.
    if (disk?.state !== 'ready') continue;
    const most = record.capacityBytes + roomOf(disk, parts.limits);
    if (most < wantedBytes) {
      throw outOfRange(
        'required_bytes',
        wantedBytes,
        `at most ${most}, as disk ${diskId} of node ${node} has no more room`,
      );
    }
  }
}

async function growAttachment({ store, agents, liveness }: ControlParts, record: VolumeRecord): Promise<void> {
  const writer = record.writer?.node;
  // A writer that is gone serves nobody: the next take-over grows the replicas.
  if (writer === undefined || liveness.state(writer) === 'expired') return;
  const node = await store.get('node', writer);
  if (node === undefined) return;
  const sizeBytes = await agents
    .of(node.record)
    .growVolume(record.id)
    .catch((error: unknown) => {
      throw unfinished(record, messageOf(error), error);
    });
  // 0: named in the record, but not attached there (any more, or not yet): it is staged in the record's size.
  if (sizeBytes !== 0 && sizeBytes < record.capacityBytes) {
    throw unfinished(record, `node ${writer} serves ${sizeBytes} bytes still`, undefined);
  }
}

function unfinished({ id, capacityBytes }: VolumeRecord, reason: string, cause: unknown): HoldfastError {
  return new HoldfastError(
    'unavailable',
    `volume ${id} does not have ${capacityBytes} bytes yet: ${reason}; try again`,
    {
      cause,
    },
  );
}
