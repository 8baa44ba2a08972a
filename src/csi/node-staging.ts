import { mkdir, readdir } from 'node:fs/promises';
import { asHoldfastError, codeOf, HoldfastError } from '../base/errors.js';
import type { MountEntry } from '../base/mount-table.js';
import { run } from '../base/run.js';
import { checkFilesystem, mountFilesystem, unmount } from '../device/filesystem.js';
import { isVolumeId, volumeKey, type VolumeId } from '../model/ids.js';
import type { FilesystemType, VolumeRecord } from '../model/records.js';
import { attachVolume, detachVolume, discardDevice, endAttachment, findDevice } from './node-attachment.js';
import type { Access } from './capability.js';
import { ensureFormatted } from './node-format.js';
import { growToDevice } from './node-expansion.js';
import { canonicalPath, hasGivenUp, isDeviceNode, type Occupant } from './node-kernel.js';
import type { StageRequest, UnstageRequest } from './node-parse.js';
import { readyRecord, toolTimeoutMs, Undo, viewOf, type NodeParts, type Remaining } from './node-parts.js';

/** How a volume is used, with nothing left unsaid. */
export type AgreedAccess =
  | { readonly kind: 'block' }
  | { readonly kind: 'mount'; readonly filesystem: FilesystemType; readonly mountFlags: readonly string[] };

/** How long a mounted filesystem may take to tell of its root folder, which it has in memory. */
const RESPONSE_MS = 5_000;

/** Mount options that the kernel shows word for word, so that they can be compared without a note. */
const SHOWN_FLAGS: readonly string[] = ['nosuid', 'nodev', 'noexec', 'noatime', 'nodiratime', 'sync', 'dirsync'];

/**
 * NodeStageVolume: the volume is attached here, has a block device, and its filesystem is mounted at the staging path.
 * For a block volume the device is all; nothing lies at the path. Repeats succeed and finish what was left undone;
 * a failure takes back what this call did.
 */
export async function stageVolume(parts: NodeParts, request: StageRequest, remaining: Remaining): Promise<void> {
  const record = await readyRecord(parts.store, request.volume);
  const stagingPath = await canonicalPath(request.stagingPath);
  const access = await claimStagingPath(parts, record, stagingPath, request.capability.access);
  const readOnly = access.kind === 'block' && request.capability.mode === 'SINGLE_NODE_READER_ONLY';
  const undo = new Undo();
  try {
    const { device, isNew } = await attachVolume(parts, record, { readOnly, remaining, undo });
    if (access.kind === 'mount') await mountVolume(parts, record.id, device.path, stagingPath, access, remaining, undo);
    const mountFlags = access.kind === 'mount' ? access.mountFlags : [];
    await parts.notes.write({ volume: record.id, stagingPath, kind: access.kind, mountFlags });
    if (isNew) await noteAttached(parts, record.id);
  } catch (error) {
    await undo.run(parts.log);
    throw error;
  }
}

/** Whether the volume is staged just as the request asks, and alive. Asks nothing of the store. */
export async function isStaged(parts: NodeParts, request: StageRequest): Promise<boolean> {
  const { volume, capability } = request;
  const view = await viewOf(parts);
  const state = (await parts.attachments.status(volume))?.state;
  if (view.device(volume)?.failed !== false || (state !== 'serving' && state !== 'taking-over')) return false;
  const stagingPath = await canonicalPath(request.stagingPath);
  const found = view.at(stagingPath, volume);
  if (capability.access.kind === 'block') return (await parts.notes.read(volume))?.kind === 'block';
  if (found.kind !== 'own' || isDeviceNode(found.entry)) return false;
  const { filesystem, mountFlags } = capability.access;
  if (!(await isAlive(found.entry, mountFlags))) return false;
  if (filesystem !== null && filesystem !== found.entry.fsType) return false;
  return sameFlags(mountFlags, found.entry, (await parts.notes.read(volume))?.mountFlags);
}

/**
 * NodeUnstageVolume: the filesystem is unmounted, the device removed and the writer released. Whatever of this is done
 * already, or was never done, is left out.
 */
export async function unstageVolume(parts: NodeParts, request: UnstageRequest, remaining: Remaining): Promise<void> {
  const { volume } = request;
  const stagingPath = await canonicalPath(request.stagingPath);
  const found = await unmountOwn(parts, volume, stagingPath, remaining);
  if (isVolumeId(volume)) {
    await detachUnused(parts, volume);
    await parts.notes.remove(volume);
  }
  if (found === 'nothing') await refuseFilesAt(stagingPath);
}

async function detachUnused(parts: NodeParts, volume: VolumeId): Promise<void> {
  if ((await findDevice(parts, volume))?.failed === true) {
    await endAttachment(parts, volume);
  } else {
    await refuseWhileMounted(parts, volume);
    await detachVolume(parts, volume);
  }
}

/**
 * Unmounts everything at the path that is the volume's or nobody's any more; what belongs to others stays.
 * `failed-precondition`: still in use.
 */
export async function unmountOwn(
  parts: NodeParts,
  volume: VolumeId,
  path: string,
  remaining: Remaining,
): Promise<'unmounted' | 'nothing' | 'foreign'> {
  for (let unmounted = false; ; unmounted = true) {
    const view = await viewOf(parts);
    const found = view.at(path, volume);
    if (found.kind === 'other') {
      throw new HoldfastError(
        'failed-precondition',
        `${path} holds volume ${found.volume}, not ${volume}; it is left as it is`,
      );
    }
    if (found.kind === 'foreign') return 'foreign';
    if (found.kind === 'none') return unmounted ? 'unmounted' : 'nothing';
    const dead = found.kind === 'stale' || view.device(volume)?.failed === true;
    await unmount(path, { lazy: dead, timeoutMs: toolTimeoutMs(remaining) });
  }
}

/** The access that record and request agree on, with the staging path free for it or already holding just that. */
async function claimStagingPath(
  parts: NodeParts,
  record: VolumeRecord,
  path: string,
  wanted: Access,
): Promise<AgreedAccess> {
  const view = await viewOf(parts);
  const found = view.at(path, record.id);
  const note = await parts.notes.read(record.id);
  const access = agreeAccess(record, wanted, found.kind === 'own' ? 'already-exists' : 'invalid-argument');
  await refuseOthersAt(parts, record.id, path, found);
  if (note?.kind === 'mount' && note.stagingPath !== path && view.at(note.stagingPath, record.id).kind === 'own') {
    throw new HoldfastError(
      'failed-precondition',
      `volume ${record.id} is staged at ${note.stagingPath}; unstage it there first`,
    );
  }
  if (found.kind === 'stale') {
    await unmount(path, { lazy: true });
    return claimStagingPath(parts, record, path, wanted);
  }
  if (found.kind !== 'own') return access;
  const mountFlags = access.kind === 'mount' ? access.mountFlags : [];
  if (view.device(record.id)?.failed === true || !(await isAlive(found.entry, note?.mountFlags ?? mountFlags))) {
    parts.log.warn({ volume: record.id, path }, 'a dead filesystem at the staging path is replaced');
    await discardDevice(parts, record.id);
    return access;
  }
  if (access.kind === 'mount' && !sameFlags(mountFlags, found.entry, note?.mountFlags)) {
    throw new HoldfastError(
      'already-exists',
      `volume ${record.id} is staged at ${path} with other mount flags; unstage it first`,
    );
  }
  return access;
}

async function refuseOthersAt(parts: NodeParts, volume: VolumeId, path: string, found: Occupant): Promise<void> {
  if (found.kind === 'other') {
    throw new HoldfastError(
      'already-exists',
      `staging_target_path ${path} holds volume ${found.volume}; it must be another path`,
    );
  }
  if (found.kind === 'foreign') {
    const { fsType, source } = found.entry;
    throw new HoldfastError(
      'failed-precondition',
      `staging_target_path ${path} holds a mount that is not Holdfast's (${fsType} of ${source}); unmount it or give another path`,
    );
  }
  const devices = await parts.devices.list();
  const other = (await parts.notes.list()).find(
    (note) =>
      note.stagingPath === path &&
      note.volume !== volume &&
      note.kind === 'block' &&
      devices.some((device) => device.volume === note.volume && !device.failed),
  );
  if (other !== undefined) {
    throw new HoldfastError(
      'already-exists',
      `volume ${other.volume} is staged at staging_target_path ${path}; it must be another path`,
    );
  }
}

function agreeAccess(record: VolumeRecord, wanted: Access, code: 'already-exists' | 'invalid-argument'): AgreedAccess {
  const { id, content } = record;
  if (wanted.kind === 'block') {
    if (content.kind === 'block') return { kind: 'block' };
    throw new HoldfastError(
      code,
      `volume_capability is block, but volume ${id} holds ${content.type}; it must be mount`,
    );
  }
  if (content.kind === 'block') {
    throw new HoldfastError(
      code,
      `volume_capability is mount, but volume ${id} is a raw block volume; it must be block`,
    );
  }
  if (wanted.filesystem !== null && wanted.filesystem !== content.type) {
    throw new HoldfastError(
      code,
      `volume_capability.mount.fs_type is ${wanted.filesystem}, but volume ${id} holds ${content.type}; it must be that or empty`,
    );
  }
  return { kind: 'mount', filesystem: content.type, mountFlags: wanted.mountFlags };
}

async function mountVolume(
  parts: NodeParts,
  volume: VolumeId,
  device: string,
  path: string,
  access: AgreedAccess & { kind: 'mount' },
  remaining: Remaining,
  undo: Undo,
): Promise<void> {
  const view = await viewOf(parts);
  if (view.at(path, volume).kind !== 'own') {
    await ensureFormatted(parts.store, volume, device, access.filesystem, remaining);
    // Pods may still have it mounted where only the staging path was lost: then it is the same filesystem, in use.
    if (view.mountsOf(volume).length === 0) {
      await checkFilesystem(device, access.filesystem, toolTimeoutMs(remaining));
    }
    await makeFolder(path);
    undo.add('unmount the staging path', () => unmount(path, { lazy: true }));
    await mountFilesystem(device, path, access.filesystem, access.mountFlags, toolTimeoutMs(remaining));
  }
  if (!access.mountFlags.includes('ro')) await growToDevice(device, path, access.filesystem, remaining);
}

/** Whether the filesystem mounted there still works. One that only waits for I/O is alive: `deadline-exceeded`. */
async function isAlive(entry: MountEntry, mountFlags: readonly string[]): Promise<boolean> {
  if (hasGivenUp(entry, mountFlags.includes('ro'))) return false;
  try {
    await run('stat', ['--format=%i', entry.mountPoint], { timeoutMs: RESPONSE_MS });
    return true;
  } catch (error) {
    if (codeOf(error) === 'io-error') return false;
    throw error;
  }
}

/** By the note where there is one; else by what the kernel shows word for word. */
function sameFlags(wanted: readonly string[], entry: MountEntry, noted: readonly string[] | undefined): boolean {
  if (noted !== undefined) return [...wanted].sort().join() === [...noted].sort().join();
  const shown = [...entry.options, ...entry.superOptions];
  return SHOWN_FLAGS.every((flag) => wanted.includes(flag) === shown.includes(flag));
}

async function refuseWhileMounted(parts: NodeParts, volume: VolumeId): Promise<void> {
  const left = (await viewOf(parts)).mountsOf(volume).map((entry) => entry.mountPoint);
  if (left.length > 0) {
    throw new HoldfastError(
      'failed-precondition',
      `volume ${volume} is still mounted at ${left.join(', ')}; unpublish it there first`,
    );
  }
}

/** The orchestrator's folder is never emptied: files in it are not the volume's. */
async function refuseFilesAt(path: string): Promise<void> {
  const names = await readdir(path).catch(() => []);
  if (names.length > 0) {
    throw new HoldfastError(
      'failed-precondition',
      `${path} is no mount and holds files; they are left as they are, move them away`,
    );
  }
}

async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { recursive: true, mode: 0o750 });
  } catch (error) {
    throw asHoldfastError(error, 'failed-precondition');
  }
}

/** For people only, so a failure changes nothing. */
async function noteAttached(parts: NodeParts, volume: VolumeId): Promise<void> {
  try {
    const found = await parts.store.get('volume', volumeKey(volume));
    if (found?.record.id !== volume) return;
    const changed = { ...found.record, lastAttachedAt: new Date().toISOString() };
    await parts.store.update('volume', found.key, changed, found.version);
  } catch (error) {
    parts.log.debug({ volume, err: error }, 'time of attachment could not be noted');
  }
}
