import { HoldfastError } from '../base/errors.js';
import { isLeaving } from '../device/device.js';
import { growFilesystem, needsGrowth } from '../device/filesystem.js';
import type { VolumeId } from '../model/ids.js';
import type { FilesystemType } from '../model/records.js';
import { findDevice } from './node-attachment.js';
import { canonicalPath, isDeviceNode } from './node-kernel.js';
import type { ExpandRequest } from './node-parse.js';
import { toolTimeoutMs, viewOf, volumeRecord, type NodeParts, type Remaining } from './node-parts.js';

/**
 * NodeExpandVolume: attachment, device and filesystem take on the capacity in the record, each only if it is smaller,
 * so that a growth that was cut off is finished by the next call. Resolves to the device's size.
 * `out-of-range`: the record says otherwise than the request; the controller has to grow the volume first.
 */
export async function expandVolume(parts: NodeParts, request: ExpandRequest, remaining: Remaining): Promise<number> {
  const record = await volumeRecord(parts.store, request.volume);
  const mountPoint = await findFilesystem(parts, request);
  refuseOtherSize(request, record.capacityBytes);
  const sizeBytes = await growAttached(parts, request.volume, record.capacityBytes);
  if (mountPoint !== undefined && record.content.kind === 'filesystem') {
    const device = await findDevice(parts, request.volume);
    if (device !== undefined) await growToDevice(device.path, mountPoint, record.content.type, remaining);
  }
  return sizeBytes;
}

/** Attachment and device take on the record's capacity. Resolves to the device's size; 0: not attached here. */
export async function growAttached(parts: NodeParts, volume: VolumeId, capacityBytes: number): Promise<number> {
  const device = await findDevice(parts, volume);
  if (device === undefined || isLeaving(device) || (await parts.attachments.status(volume)) === undefined) return 0;
  if (device.sizeBytes >= capacityBytes) return device.sizeBytes;
  const sizeBytes = await parts.attachments.grow(volume);
  await parts.devices.grow(volume, sizeBytes);
  return Math.max(sizeBytes, device.sizeBytes);
}

/** A mounted filesystem takes on the size of its device. */
export async function growToDevice(
  device: string,
  mountPoint: string,
  type: FilesystemType,
  remaining: Remaining,
): Promise<void> {
  if (await needsGrowth(device, mountPoint, type)) {
    await growFilesystem(device, mountPoint, type, toolTimeoutMs(remaining));
  }
}

/** Where the volume's filesystem is mounted; undefined for a block volume. `not-found`: the path is not the volume's. */
async function findFilesystem(parts: NodeParts, { volume, path }: ExpandRequest): Promise<string | undefined> {
  const canonical = await canonicalPath(path);
  const found = (await viewOf(parts)).at(canonical, volume);
  if (found.kind === 'own') return isDeviceNode(found.entry) ? undefined : canonical;
  const note = await parts.notes.read(volume);
  if (note?.kind === 'block' && note.stagingPath === canonical) return undefined;
  throw new HoldfastError(
    'not-found',
    `volume ${volume} is not at volume_path ${path}; give a path where it is staged or published`,
  );
}

function refuseOtherSize({ volume, requiredBytes, limitBytes }: ExpandRequest, capacityBytes: number): void {
  if (requiredBytes > capacityBytes || (limitBytes !== 0 && limitBytes < capacityBytes)) {
    throw new HoldfastError(
      'out-of-range',
      `volume ${volume} has ${capacityBytes} bytes, outside of the asked-for ${requiredBytes} to ${limitBytes || 'any'}; grow it with ControllerExpandVolume first`,
    );
  }
}
