import { HoldfastError, codeOf } from '../base/errors.js';
import { filesystemUsage } from '../device/filesystem.js';
import type { BlockDevice } from '../device/device.js';
import type { VolumeId } from '../model/ids.js';
import type { DiskRecord, VolumeRecord } from '../model/records.js';
import type { AttachmentStatus } from '../writer/attachments.js';
import { canonicalPath, isDeviceNode } from './node-kernel.js';
import type { StatsRequest } from './node-parse.js';
import { toolTimeoutMs, viewOf, volumeRecord, type NodeParts, type Remaining } from './node-parts.js';

export interface Usage {
  readonly unit: 'BYTES' | 'INODES';
  readonly total: number;
  /** Absent for a block volume: only its user knows. */
  readonly used?: number;
  readonly available?: number;
}

/** An adverse condition in the words of CSI: status, CamelCase reason, and a sentence for people. */
export interface Condition {
  readonly status: 'DEGRADED' | 'INACCESSIBLE';
  readonly reason: string;
  readonly message: string;
}

/** An adverse condition of the node's pool in the words of CSI. */
export interface StorageCondition {
  readonly status: 'STORAGE_DEGRADED';
  readonly reason: string;
  readonly message: string;
}

/** NodeGetVolumeStats. Asks nothing of the store. `not-found`: the volume is not at this path. */
export async function volumeUsage(parts: NodeParts, request: StatsRequest, remaining: Remaining): Promise<Usage[]> {
  const { volume, path } = request;
  const canonical = await canonicalPath(path);
  const view = await viewOf(parts);
  const device = view.device(volume);
  const found = view.at(canonical, volume);
  const note = await parts.notes.read(volume);
  const isBlock =
    found.kind === 'own' ? isDeviceNode(found.entry) : note?.kind === 'block' && note.stagingPath === canonical;
  if (device !== undefined && isBlock) return [{ unit: 'BYTES', total: device.sizeBytes }];
  if (found.kind !== 'own') {
    throw new HoldfastError(
      'not-found',
      `volume ${volume} is not at volume_path ${path}; give a path where it is staged or published`,
    );
  }
  const usage = await filesystemUsage(canonical, toolTimeoutMs(remaining));
  return [
    { unit: 'BYTES', ...usage.bytes },
    { unit: 'INODES', ...usage.inodes },
  ];
}

/**
 * NodeGetVolumeHealth: what is wrong with the volume as seen from here; empty where nothing is.
 * While the store does not answer, an attached volume is judged without its record.
 */
export async function volumeConditions(parts: NodeParts, volume: VolumeId): Promise<Condition[]> {
  const status = await parts.attachments.status(volume);
  const device = (await parts.devices.list()).find((known) => known.volume === volume);
  let record: VolumeRecord | undefined;
  try {
    record = await volumeRecord(parts.store, volume);
  } catch (error) {
    if (codeOf(error) === 'not-found' || status === undefined) throw error;
  }
  return judgeVolume(status, device, record);
}

/** The rule alone: one row for each adverse condition. */
export function judgeVolume(
  status: AttachmentStatus | undefined,
  device: BlockDevice | undefined,
  record: VolumeRecord | undefined,
): Condition[] {
  const conditions: Condition[] = [];
  const state = status?.state;
  if (device?.failed === true || state === 'fenced' || state === 'failed') {
    const message = `the attachment on this node has ended (${state ?? 'failed'}); stage the volume again`;
    conditions.push({ status: 'INACCESSIBLE', reason: 'AttachmentEnded', message });
  }
  if (device === undefined && state === 'serving' && status?.maintenance !== true) {
    const message = 'the block device is gone (its process has ended); unpublish, unstage and stage the volume again';
    conditions.push({ status: 'INACCESSIBLE', reason: 'DeviceMissing', message });
  }
  if (status !== undefined && status.waitsFor.length > 0) {
    conditions.push({
      status: 'INACCESSIBLE',
      reason: 'IoWaits',
      message: `I/O waits for ${status.waitsFor.join(', ')}`,
    });
  }
  const inSync = status?.inSync ?? record?.replicas.filter((replica) => replica.inSync).map(({ node }) => node) ?? [];
  const wanted = record?.parameters.replicas ?? inSync.length;
  if (record !== undefined && inSync.length === 0) {
    conditions.push({ status: 'INACCESSIBLE', reason: 'NoReplicaInSync', message: 'no replica is in sync' });
  } else if (inSync.length < wanted) {
    const message = `${inSync.length} of ${wanted} replicas in sync (${inSync.join(', ')})`;
    conditions.push({ status: 'DEGRADED', reason: 'ReplicasMissing', message });
  }
  if (status?.resync) {
    const { node, regionsDone, regionsTotal } = status.resync;
    const message = `replica on ${node} is resynced: ${regionsDone} of ${regionsTotal} regions`;
    conditions.push({ status: 'DEGRADED', reason: 'Resyncing', message });
  }
  return conditions;
}

/** NodeGetStorageHealth: a node whose disks fail still reaches its volumes' other replicas, so it is degraded at worst. */
export function judgePool(
  disks: readonly Pick<DiskRecord, 'diskId' | 'state' | 'reason'>[],
  refused: readonly { readonly path: string; readonly reason: string }[],
): StorageCondition[] {
  const failed = disks.filter(({ state }) => state === 'failed');
  return [
    ...degraded(
      'DiskFailed',
      failed.map(({ diskId, reason }) => `${diskId}: ${reason}`),
    ),
    ...degraded(
      'DiskRefused',
      refused.map(({ path, reason }) => `${path}: ${reason}`),
    ),
  ];
}

function degraded(reason: string, messages: readonly string[]): StorageCondition[] {
  return messages.length === 0 ? [] : [{ status: 'STORAGE_DEGRADED', reason, message: messages.join('; ') }];
}
