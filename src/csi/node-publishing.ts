import { lstat, mkdir, open, rmdir, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { asHoldfastError, HoldfastError } from '../base/errors.js';
import { run } from '../base/run.js';
import { present } from '../base/assert.js';
import type { BlockDevice } from '../device/device.js';
import { bindMount } from '../device/filesystem.js';
import type { VolumeId } from '../model/ids.js';
import { canonicalPath, ignoreMissing, isDeviceNode, isReadOnly, type KernelView } from './node-kernel.js';
import type { PublishRequest, UnpublishRequest } from './node-parse.js';
import { toolTimeoutMs, viewOf, type NodeParts, type Remaining } from './node-parts.js';
import { isStaged, stageVolume, unmountOwn } from './node-staging.js';

/** A pod's folders below a volume are mounts of the kubelet's own making, not publications. */
const SUBPATHS = '/volume-subpaths/';

/**
 * NodePublishVolume: the staged filesystem, or the device node, is bound to the target path. Whatever lies at the
 * staging path is not trusted: a volume that is not staged, or whose attachment has ended, is staged anew first.
 */
export async function publishVolume(parts: NodeParts, request: PublishRequest, remaining: Remaining): Promise<void> {
  const { volume, capability, readOnly } = request;
  if (!(await isStaged(parts, request))) await stageVolume(parts, request, remaining);

  const stagingPath = await canonicalPath(request.stagingPath);
  const targetPath = await canonicalPath(request.targetPath);
  const view = await viewOf(parts);
  const others = publications(view, volume).filter(({ mountPoint }) => ![stagingPath, targetPath].includes(mountPoint));
  if (capability.mode === 'SINGLE_NODE_SINGLE_WRITER' && others.length > 0) {
    const where = others.map(({ mountPoint }) => mountPoint).join(', ');
    throw new HoldfastError(
      'failed-precondition',
      `volume ${volume} may be published once only and is at ${where} already; unpublish it there first`,
    );
  }
  if (isPublished(view, request, targetPath)) return;
  await unmountOwn(parts, volume, targetPath, remaining);

  const device = present(view.device(volume), 'a staged volume has a device');
  if (capability.access.kind === 'block') {
    await setWritable(device, !readOnly, others.map(isReadOnly), remaining);
    await makeFile(targetPath);
    await bindMount(device.path, targetPath, readOnly);
  } else {
    await makeFolder(targetPath);
    await bindMount(stagingPath, targetPath, readOnly);
  }
}

/**
 * NodeUnpublishVolume: what is mounted at the target path is unmounted and the path removed. Missing paths and mounts
 * that are not Holdfast's are left as they are; a folder with files that is no mount is never emptied.
 */
export async function unpublishVolume(
  parts: NodeParts,
  request: UnpublishRequest,
  remaining: Remaining,
): Promise<void> {
  const targetPath = await canonicalPath(request.targetPath);
  const found = await unmountOwn(parts, request.volume, targetPath, remaining);
  if (found !== 'foreign') await removeTarget(targetPath);
}

/** Mounts of the volume that somebody asked for by NodePublishVolume, and its staging. */
function publications(view: KernelView, volume: VolumeId): ReturnType<KernelView['mountsOf']> {
  return view
    .mountsOf(volume)
    .filter((entry) => (entry.root === '/' || isDeviceNode(entry)) && !entry.mountPoint.includes(SUBPATHS));
}

/** True: just so already. False: free, or holding something dead. */
function isPublished(view: KernelView, { volume, capability, readOnly }: PublishRequest, path: string): boolean {
  const found = view.at(path, volume);
  switch (found.kind) {
    case 'none':
    case 'stale':
      return false;
    case 'other':
      throw new HoldfastError(
        'already-exists',
        `target_path ${path} holds volume ${found.volume}; it must be another path`,
      );
    case 'foreign':
      throw new HoldfastError(
        'failed-precondition',
        `target_path ${path} holds a mount that is not Holdfast's; unmount it or give another path`,
      );
    case 'own':
  }
  if (isDeviceNode(found.entry) !== (capability.access.kind === 'block') || isReadOnly(found.entry) !== readOnly) {
    throw new HoldfastError(
      'already-exists',
      `volume ${volume} is published at target_path ${path} ${isReadOnly(found.entry) ? 'read-only' : 'for writing'} already; unpublish it first`,
    );
  }
  return true;
}

/** A read-only bind does not keep writes from a device node, so the device itself is told. All publications share it. */
async function setWritable(
  device: BlockDevice,
  writable: boolean,
  othersReadOnly: boolean[],
  remaining: Remaining,
): Promise<void> {
  if (device.readOnly) {
    if (!writable) return;
    throw new HoldfastError(
      'failed-precondition',
      `volume ${device.volume} was staged read-only; publish it with readonly set`,
    );
  }
  if (othersReadOnly.includes(writable)) {
    throw new HoldfastError(
      'failed-precondition',
      `block volume ${device.volume} is published ${writable ? 'read-only' : 'for writing'} elsewhere on this node; all its publications must agree`,
    );
  }
  await run('blockdev', [writable ? '--setrw' : '--setro', device.path], { timeoutMs: toolTimeoutMs(remaining) });
}

async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o750 });
  } catch (error) {
    throw asHoldfastError(error, 'failed-precondition');
  }
}

async function makeFile(path: string): Promise<void> {
  await makeFolder(dirname(path));
  const found = await lstat(path).catch(ignoreMissing);
  if (found?.isDirectory()) {
    await rmdir(path).catch((error: unknown) => {
      throw asHoldfastError(error, 'failed-precondition');
    });
  }
  if (found?.isFile()) return;
  try {
    await (await open(path, 'wx', 0o600)).close();
  } catch (error) {
    throw asHoldfastError(error, 'failed-precondition');
  }
}

async function removeTarget(path: string): Promise<void> {
  const found = await lstat(path).catch(ignoreMissing);
  if (found === undefined) return;
  try {
    if (found.isDirectory()) await rmdir(path);
    else if (found.size === 0) await unlink(path);
    else
      throw new HoldfastError(
        'failed-precondition',
        `target_path ${path} is a file with content, and no volume; it is left as it is`,
      );
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOTEMPTY') {
      throw new HoldfastError(
        'failed-precondition',
        `target_path ${path} is no mount and holds files; they are left as they are, move them away`,
      );
    }
    throw asHoldfastError(error, 'failed-precondition');
  }
}
