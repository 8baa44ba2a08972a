import { lstat, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import { boundDevice, mountAt, readMountTable, showsDevice, type MountEntry } from '../base/mount-table.js';
import { isLeaving, type BlockDevice } from '../device/device.js';
import { volumeOfFile } from '../device/device-paths.js';
import { listLoops } from '../device/loop.js';
import type { VolumeId } from '../model/ids.js';

/*
 * What lies at a path, as the kernel tells it. Notes can be lost and paths can be links, so every decision of the CSI
 * Node service is taken on this: the mount table, and the list of block devices. Nothing here touches what is mounted:
 * a filesystem whose I/O waits would hold the thread that asks (kernel-nbd: a process must not touch its own device).
 */

/** Major number of loop devices (Documentation/admin-guide/devices.txt). */
const LOOP_MAJOR = '7';

const MAX_LINKS = 40;

export type Occupant =
  | { readonly kind: 'none' }
  /** The volume's own filesystem or device node. */
  | { readonly kind: 'own'; readonly entry: MountEntry }
  /** That of another volume of this node. */
  | { readonly kind: 'other'; readonly entry: MountEntry; readonly volume: VolumeId }
  /** A mount of a loop device that was a volume's, or that has no file any more. */
  | { readonly kind: 'stale'; readonly entry: MountEntry }
  /** Something that Holdfast did not mount. */
  | { readonly kind: 'foreign'; readonly entry: MountEntry };

/** A block device with its number. */
interface NumberedDevice {
  readonly device: BlockDevice;
  /** e.g. `7:3`; undefined where the device node is missing. */
  readonly majorMinor: string | undefined;
}

/** A loop device on a file that is not Holdfast's. */
interface ForeignLoop {
  /** e.g. `loop3` */
  readonly name: string;
  readonly majorMinor: string | undefined;
}

/** The mounts and devices of one moment. */
export class KernelView {
  constructor(
    private readonly table: readonly MountEntry[],
    private readonly devices: readonly NumberedDevice[],
    private readonly foreignLoops: readonly ForeignLoop[] = [],
  ) {}

  device(volume: VolumeId): BlockDevice | undefined {
    return this.devices.find((known) => known.device.volume === volume)?.device;
  }

  /** What is mounted at a canonical path, seen from `volume`. */
  at(path: string, volume: VolumeId): Occupant {
    const entry = mountAt(this.table, path);
    if (entry === undefined) return { kind: 'none' };
    const owner = this.devices.find((known) => isMountOf(entry, known));
    if (owner?.device.volume === volume) return { kind: 'own', entry };
    if (owner !== undefined) return { kind: 'other', entry, volume: owner.device.volume };
    return this.#isStale(entry) ? { kind: 'stale', entry } : { kind: 'foreign', entry };
  }

  /** All mounts of the volume's filesystem and device node, the latest first, so that they can be ended in this order. */
  mountsOf(volume: VolumeId): MountEntry[] {
    const known = this.devices.find((candidate) => candidate.device.volume === volume);
    return known === undefined ? [] : this.table.filter((entry) => isMountOf(entry, known)).reverse();
  }

  #isStale(entry: MountEntry): boolean {
    const isLoop = entry.majorMinor.startsWith(`${LOOP_MAJOR}:`) || boundDevice(entry)?.startsWith('loop') === true;
    return isLoop && !this.foreignLoops.some(({ name, majorMinor }) => showsDevice(entry, name, majorMinor));
  }
}

/** Reads the mount table and numbers the devices. One that is leaving is no volume's any more, nor is its number. */
export async function viewKernel(devices: readonly BlockDevice[]): Promise<KernelView> {
  const staying = devices.filter((device) => !isLeaving(device));
  const numbered = await Promise.all(
    staying.map(async (device) => ({ device, majorMinor: await deviceNumber(device.path) })),
  );
  return new KernelView(await readMountTable(), numbered, await foreignLoops());
}

async function foreignLoops(): Promise<ForeignLoop[]> {
  const foreign = (await listLoops()).filter(({ backingFile }) => volumeOfFile(backingFile) === undefined);
  return Promise.all(
    foreign.map(async ({ path }) => {
      const name = basename(path);
      return { name, majorMinor: (await readFile(`/sys/block/${name}/dev`, 'utf8').catch(() => undefined))?.trim() };
    }),
  );
}

/** A device node bound to a file, rather than a filesystem. */
export function isDeviceNode(entry: MountEntry): boolean {
  return boundDevice(entry) !== undefined;
}

/** The mount itself or its filesystem takes no writes. */
export function isReadOnly(entry: MountEntry): boolean {
  return entry.options.includes('ro') || entry.superOptions.includes('ro');
}

/**
 * The filesystem has given up after an error: it says so, or became read-only without having been asked to. (xfs shows
 * nothing here and answers EIO to stat.)
 */
export function hasGivenUp(entry: MountEntry, askedReadOnly: boolean): boolean {
  const signs = askedReadOnly ? ['emergency_ro', 'shutdown'] : ['ro', 'emergency_ro', 'shutdown'];
  return signs.some((option) => entry.superOptions.includes(option));
}

/**
 * The path with all links resolved, its last name too. Folders that don't exist yet are taken as they are written.
 * What is mounted at the path itself is not touched.
 */
export async function canonicalPath(path: string): Promise<string> {
  let current = resolve(path);
  for (let links = 0; links < MAX_LINKS; links++) {
    const here = join(await canonicalFolder(dirname(current)), basename(current));
    if (mountAt(await readMountTable(), here) !== undefined) return here;
    const found = await lstat(here).catch(ignoreMissing);
    if (!found?.isSymbolicLink()) return here;
    current = resolve(dirname(here), await readlink(here));
  }
  throw new HoldfastError('invalid-argument', `path ${path} leads through more than ${MAX_LINKS} links`);
}

async function canonicalFolder(folder: string): Promise<string> {
  try {
    return await realpath(folder);
  } catch (error) {
    ignoreMissing(error);
    return folder === '/' ? folder : join(await canonicalFolder(dirname(folder)), basename(folder));
  }
}

/** Lets "there is no such file" pass as undefined; anything else is thrown as what it means. */
export function ignoreMissing(error: unknown): undefined {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT') return undefined;
  const meaning = code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENAMETOOLONG' ? 'invalid-argument' : 'io-error';
  throw new HoldfastError(meaning, (error as Error).message, { cause: error });
}

function isMountOf(entry: MountEntry, known: NumberedDevice): boolean {
  return showsDevice(entry, basename(known.device.path), known.majorMinor);
}

/** The number of a device node; stat of a node asks nothing of the device. */
async function deviceNumber(path: string): Promise<string | undefined> {
  const found = await stat(path, { bigint: true }).catch(() => undefined);
  if (!found?.isBlockDevice()) return undefined;
  const major = ((found.rdev >> 8n) & 0xfffn) | ((found.rdev >> 32n) & ~0xfffn);
  const minor = (found.rdev & 0xffn) | ((found.rdev >> 12n) & ~0xffn);
  return `${String(major)}:${String(minor)}`;
}
