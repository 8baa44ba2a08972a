import { randomBytes } from 'node:crypto';
import { mkdir, readFile, readdir, rm, rmdir, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import { mountAt, readMountTable, type MountEntry } from '../base/mount-table.js';
import { run } from '../base/run.js';
import type { DiskId } from '../model/ids.js';
import type { BlockDeviceInfo } from './block-device.js';

/**
 * Mounts of disks, and their incarnations.
 *
 * R10 asks whether a disk was mounted anew since its replicas were last served: what was written and not flushed may
 * then be gone. The disks stay mounted while the plugin is away, and in that time anybody may unmount one and mount it
 * again. So the answer has to come from the mount itself. The kernel's mount id does not do: ids are given out again,
 * and a remount usually gets the very same one. A note in the plugin's state directory does not do either, alone: it
 * tells what the plugin did, not what others did.
 *
 * The kernel keeps for each mount the source it was mounted from, word for word. So the plugin mounts a disk through a
 * link with a random token in its name, `<state>/mounts/<disk id>-<token>`, and reads the token back from the mount
 * table. The token lives exactly as long as this mount. A mount made by anybody else has another source (mount(8)
 * resolves links), carries no token, and is replaced by one of ours. With the boot id, which the token alone would not
 * need, an incarnation can be told apart by eye.
 *
 * The link stays while the disk is mounted: xfs_growfs and other tools look the source up.
 */
export interface DiskMount {
  readonly directory: string;
  readonly incarnation: string;
}

const MOUNT_TIMEOUT_MS = 180_000;
const TOKEN_BYTES = 8;
const BOOT_ID = '/proc/sys/kernel/random/boot_id';

/** Mount options: no writes for reads, and a disk that is mounted twice by mistake must not pass (no nouuid). */
const OPTIONS = 'noatime,nodev,nosuid,noexec';

export interface MountPlaces {
  readonly poolDirectory: string;
  readonly stateDirectory: string;
}

/** The disk id of a device that is mounted at a disk's place in the pool already. */
export async function mountedDiskId(places: MountPlaces, device: BlockDeviceInfo): Promise<DiskId | undefined> {
  const table = await readMountTable();
  const mount = table.find((entry) => isDiskMount(entry, device) && dirname(entry.mountPoint) === places.poolDirectory);
  return mount === undefined ? undefined : basename(mount.mountPoint);
}

/**
 * The disk's mount: the one that is there, or a new one with a new incarnation. `failed-precondition`: the device is
 * mounted at another place, or another one is mounted at this disk's. `io-error`: it can't be mounted (the tool's words
 * are in the message).
 */
export async function ensureMounted(places: MountPlaces, diskId: DiskId, device: BlockDeviceInfo): Promise<DiskMount> {
  const directory = join(places.poolDirectory, diskId);
  const table = await readMountTable();
  const here = mountAt(table, directory);
  if (here === undefined) {
    const elsewhere = table.find((entry) => entry.majorMinor === device.majorMinor);
    if (elsewhere === undefined) return mountAnew(places, diskId, device, directory);
    throw new HoldfastError('failed-precondition', `${device.path} is mounted at ${elsewhere.mountPoint}; unmount it`);
  }
  if (!isDiskMount(here, device)) {
    throw new HoldfastError(
      'failed-precondition',
      `${device.path} has the identity of ${diskId}, but ${here.source} is mounted as that: one is a copy of the other`,
    );
  }
  const token = tokenOf(here, places, diskId);
  if (token !== undefined) {
    await link(places, diskId, token, device);
    return { directory, incarnation: await incarnationOf(token) };
  }
  // Somebody mounted it: ours takes its place. In use, it stays as it is and the disk fails.
  await run('umount', [directory], { timeoutMs: MOUNT_TIMEOUT_MS });
  return ensureMounted(places, diskId, device);
}

/** Why the disk can't be used as it was mounted, or undefined. */
export async function wrongMount(mount: DiskMount, device: BlockDeviceInfo): Promise<string | undefined> {
  const entry = mountAt(await readMountTable(), mount.directory);
  if (entry === undefined || !isDiskMount(entry, device)) return `it is not mounted at ${mount.directory} any more`;
  const token = mount.incarnation.slice(-TOKEN_BYTES * 2);
  if (!entry.source.endsWith(`-${token}`))
    return `somebody unmounted it and mounted it again; restart this node's plugin`;
  const readOnly = entry.options.includes('ro') || entry.superOptions.includes('ro');
  return readOnly ? 'it is mounted read-only' : undefined;
}

/** Unmounts cleanly; not mounted: nothing happens. `io-error` while it is in use. */
export async function unmount(places: MountPlaces, diskId: DiskId): Promise<void> {
  const directory = join(places.poolDirectory, diskId);
  for (const entry of await readMountTable()) {
    if (entry.mountPoint === directory) await run('umount', [directory], { timeoutMs: MOUNT_TIMEOUT_MS });
  }
  await unlinkAll(places, diskId);
  await rmdir(directory).catch(() => undefined);
}

async function mountAnew(
  places: MountPlaces,
  diskId: DiskId,
  device: BlockDeviceInfo,
  directory: string,
): Promise<DiskMount> {
  await unlinkAll(places, diskId);
  const token = randomBytes(TOKEN_BYTES).toString('hex');
  const source = await link(places, diskId, token, device);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const args = ['--no-canonicalize', '--types', 'xfs', '--options', OPTIONS, source, directory];
  try {
    await run('mount', args, { timeoutMs: MOUNT_TIMEOUT_MS });
  } catch (error) {
    await unlinkAll(places, diskId);
    await rmdir(directory).catch(() => undefined);
    throw error;
  }
  return { directory, incarnation: await incarnationOf(token) };
}

async function incarnationOf(token: string): Promise<string> {
  return `${(await readFile(BOOT_ID, 'utf8')).trim()}-${token}`;
}

function linkPath(places: MountPlaces, diskId: DiskId, token: string): string {
  return join(places.stateDirectory, 'mounts', `${diskId}-${token}`);
}

function tokenOf(entry: MountEntry, places: MountPlaces, diskId: DiskId): string | undefined {
  const token = entry.source.slice(-TOKEN_BYTES * 2);
  const ours = /^[0-9a-f]+$/.test(token) && entry.source === linkPath(places, diskId, token);
  return ours ? token : undefined;
}

async function link(places: MountPlaces, diskId: DiskId, token: string, device: BlockDeviceInfo): Promise<string> {
  const path = linkPath(places, diskId, token);
  await mkdir(join(places.stateDirectory, 'mounts'), { recursive: true });
  // After a lost state directory, or when the device has another name now.
  await rm(path, { force: true });
  await symlink(device.path, path);
  return path;
}

async function unlinkAll(places: MountPlaces, diskId: DiskId): Promise<void> {
  const directory = join(places.stateDirectory, 'mounts');
  const names = await readdir(directory).catch(() => []);
  for (const name of names) if (name.startsWith(`${diskId}-`)) await rm(join(directory, name), { force: true });
}

/** A mount of the whole filesystem on the device, rather than a bind mount of a part of it. */
function isDiskMount(entry: MountEntry, device: BlockDeviceInfo): boolean {
  return entry.majorMinor === device.majorMinor && entry.root === '/';
}
