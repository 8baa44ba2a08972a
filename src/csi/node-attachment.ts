import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import { run } from '../base/run.js';
import { isLeaving, type BlockDevice } from '../device/device.js';
import { unmount } from '../device/filesystem.js';
import type { VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { Attachment, AttachmentStatus } from '../writer/attachments.js';
import { attachTimeoutMs, viewOf, type NodeParts, type Remaining, type Undo } from './node-parts.js';

/*
 * A volume's attachment and its block device, as one thing with one life. The device outlives the plugin, and I/O that
 * waits in it must never reach a later attachment (R5). So a device that is found here either goes on with its
 * attachment, or is failed and removed before a new attachment begins.
 */

/** It must not go on, though the record may still name this node (R10). */
function hasEnded(state: AttachmentStatus['state'] | undefined): boolean {
  return state === 'fenced' || state === 'failed';
}

/** How long the data of a filesystem that is to be taken away may take to reach the volume. */
const FLUSH_MS = 5_000;

const RESUME_TIMEOUT_MS = 30_000;

/** How long a tool may take that asks nothing of the volume. */
const RESPONSE_MS = 5_000;

/** Becomes the volume's writer and makes its block device, of the size in the record. Repeats find both. */
export async function attachVolume(
  parts: NodeParts,
  record: VolumeRecord,
  options: { readOnly: boolean; remaining: Remaining; undo: Undo },
): Promise<{ device: BlockDevice; isNew: boolean }> {
  const { attachments, devices } = parts;
  const volume = record.id;
  const before = await findDevice(parts, volume);
  const goesOn =
    before !== undefined &&
    !isLeaving(before) &&
    (await continueAttachment(parts, before, attachTimeoutMs(options.remaining)));
  if (before !== undefined && !goesOn) await discardDevice(parts, volume);

  const status = await attachments.status(volume);
  const wasAttached = status !== undefined && !hasEnded(status.state) && status.maintenance !== true;
  const attachment = await attachments.attach(volume, { resume: false, timeoutMs: attachTimeoutMs(options.remaining) });
  if (!wasAttached) options.undo.add('release the volume', () => attachments.release(volume));
  const sizeBytes = attachment.sizeBytes < record.capacityBytes ? await attachments.grow(volume) : attachment.sizeBytes;

  if (!goesOn) options.undo.add('remove the block device', () => abandonDevice(parts, volume));
  const device = await devices.create(volume, attachment.address, sizeBytes, options.readOnly);
  if (device.readOnly !== options.readOnly) {
    throw new HoldfastError(
      'already-exists',
      `volume ${volume} is attached ${device.readOnly ? 'read-only' : 'for writing'} here already`,
    );
  }
  if (!goesOn) await clearReadOnly(device);
  if (device.sizeBytes < sizeBytes) await devices.grow(volume, sizeBytes);
  return { device, isNew: !goesOn };
}

/**
 * Lets the attachment behind a device that lived before go on. False: it has ended, and the device fails all I/O.
 * `unavailable`, `deadline-exceeded`: not known yet; I/O goes on waiting.
 */
export async function continueAttachment(parts: NodeParts, device: BlockDevice, timeoutMs: number): Promise<boolean> {
  if (device.failed) return false;
  const { attachments, devices, log } = parts;
  if (hasEnded((await attachments.status(device.volume))?.state)) {
    await devices.fail(device.volume);
    return false;
  }
  let attachment: Attachment;
  try {
    attachment = await attachments.attach(device.volume, { resume: true, timeoutMs });
  } catch (error) {
    if (codeOf(error) !== 'fenced' && codeOf(error) !== 'failed-precondition') throw error;
    log.warn({ volume: device.volume, reason: messageOf(error) }, 'attachment has ended');
    await devices.fail(device.volume);
    return false;
  }
  // One that is leaving only has its last users' I/O to finish: nobody asked for a new one in its place.
  if (!isLeaving(device)) {
    await devices.create(device.volume, attachment.address, attachment.sizeBytes, device.readOnly);
  }
  return true;
}

/**
 * Settles a device with its attachment: a live one is let be, one that lived before goes on or ends, one that has
 * ended is cleared away as far as its users let it.
 */
export async function settleDevice(parts: NodeParts, volume: VolumeId): Promise<void> {
  const device = await findDevice(parts, volume);
  if (device === undefined) return;
  const status = await parts.attachments.status(volume);
  // A writer without a device only brings replicas into line: it is not this device's.
  const state = status?.maintenance === true ? undefined : status?.state;
  if (!device.failed && (state === 'serving' || state === 'taking-over' || state === 'releasing')) return;
  if (device.failed || !(await continueAttachment(parts, device, RESUME_TIMEOUT_MS)))
    await endAttachment(parts, volume);
}

/**
 * The orderly end of an attachment that nobody uses: device, then writer.
 * `failed-precondition`: the device is still open.
 */
export async function detachVolume(parts: NodeParts, volume: VolumeId): Promise<void> {
  const device = await findDevice(parts, volume);
  if (device !== undefined) await clearReadOnly(device);
  await parts.devices.remove(volume);
  await releaseVolume(parts, volume);
}

/**
 * The end of an attachment whoever uses it: what its filesystem holds is flushed as far as that works, all further I/O
 * fails, and this node leaves the record. Mounts stay, dead, until they are unpublished and unstaged: what lies under
 * them is the host's own disk, and a pod that opens its path again must not write there. The device stays with them.
 */
export async function endAttachment(parts: NodeParts, volume: VolumeId): Promise<void> {
  const device = await findDevice(parts, volume);
  if (device !== undefined) {
    if (!device.failed) await flushMounts(parts, volume);
    await parts.devices.fail(volume);
    await removeUnlessOpen(parts, volume);
  }
  await revokeVolume(parts, volume);
}

/** The end of an attachment with its mounts, where nothing of this node is to stay. */
export async function takeDownAttachment(parts: NodeParts, volume: VolumeId): Promise<void> {
  await flushMounts(parts, volume);
  await clearMounts(parts, volume);
  await endAttachment(parts, volume);
}

/**
 * Clears away a device that must not be used again, with its mounts.
 * `failed-precondition`: somebody (a container's own mounts) still holds it open.
 */
export async function discardDevice(parts: NodeParts, volume: VolumeId): Promise<void> {
  await clearMounts(parts, volume);
  await parts.devices.remove(volume);
}

export async function findDevice(parts: NodeParts, volume: VolumeId): Promise<BlockDevice | undefined> {
  return (await parts.devices.list()).find((device) => device.volume === volume);
}

/**
 * A loop device that was told to take no writes stays so after it is detached, and so for whoever gets its number next:
 * the mark of a read-only publication is taken off at the end, and one that somebody left is taken off at the start.
 */
async function clearReadOnly(device: BlockDevice): Promise<void> {
  if (device.readOnly) return;
  const mark = await readFile(`/sys/block/${basename(device.path)}/ro`, 'utf8').catch(() => '');
  if (mark.trim() === '1') await run('blockdev', ['--setrw', device.path], { timeoutMs: RESPONSE_MS });
}

/** A volume without a record names no writer: nothing is left to release. */
async function releaseVolume(parts: NodeParts, volume: VolumeId): Promise<void> {
  await parts.attachments.release(volume).catch(unlessNotFound);
}

async function revokeVolume(parts: NodeParts, volume: VolumeId): Promise<void> {
  await parts.attachments.revoke(volume).catch(unlessNotFound);
}

function unlessNotFound(error: unknown): void {
  if (codeOf(error) !== 'not-found') throw error;
}

/** Failing it first ends the tools that hang on it. */
async function abandonDevice(parts: NodeParts, volume: VolumeId): Promise<void> {
  await parts.devices.fail(volume);
  await parts.devices.remove(volume);
}

async function removeUnlessOpen(parts: NodeParts, volume: VolumeId): Promise<void> {
  try {
    await parts.devices.remove(volume);
  } catch (error) {
    if (codeOf(error) !== 'failed-precondition') throw error;
    parts.log.debug({ volume, reason: messageOf(error) }, 'device of an ended attachment is still open');
  }
}

async function flushMounts(parts: NodeParts, volume: VolumeId): Promise<void> {
  const mount = (await viewOf(parts)).mountsOf(volume).find((entry) => entry.root === '/');
  if (mount === undefined) return;
  try {
    await run('sync', ['--file-system', mount.mountPoint], { timeoutMs: FLUSH_MS });
  } catch (error) {
    parts.log.warn({ volume, reason: messageOf(error) }, 'filesystem could not be flushed before its attachment ends');
  }
}

async function clearMounts(parts: NodeParts, volume: VolumeId): Promise<void> {
  for (const { mountPoint } of (await viewOf(parts)).mountsOf(volume)) await unmount(mountPoint, { lazy: true });
}
