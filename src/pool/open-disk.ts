import { stat } from 'node:fs/promises';
import { HoldfastError, codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { run } from '../base/run.js';
import type { DiskId } from '../model/ids.js';
import { blockDevice, checkUnused, type BlockDeviceInfo } from './block-device.js';
import { contentsOf } from './contents.js';
import { Disk } from './disk.js';
import { diskIdOf, isHoldfastLabel, labelOf, newUuid, readIdentity, writeIdentity } from './identity.js';
import { attachLoop, detachLoop } from './loop.js';
import { ensureMounted, mountedDiskId, unmount, type DiskMount, type MountPlaces } from './mounting.js';

/**
 * One path of the configuration becomes a disk of the pool.
 *
 *     blank ──mkfs.xfs──▶ labelled, empty ──mount, holdfast.json──▶ disk
 *
 * Each arrow may be cut short by a crash and is taken up again at the next start: an unfinished mkfs is recognised by
 * the filesystem's own mark, an empty filesystem with this cluster's label has never been used. Nothing else is ever
 * formatted or written to.
 */
const MKFS_TIMEOUT_MS = 600_000;

/** The least that mkfs.xfs takes. */
export const MIN_DISK_BYTES = 300 * 1024 * 1024;

/** What a disk stands on. */
export interface DiskOrigin {
  /** The loop device, where the disk is a file. */
  readonly loop: string | undefined;
}

export interface OpenDiskOptions {
  readonly places: MountPlaces;
  readonly clusterId: string;
  /** Disks that are open already, and the paths they were found at. */
  readonly taken: ReadonlyMap<DiskId, string>;
  readonly log: Log;
}

/**
 * Throws what is to be refused: nothing was changed, and a loop device made for it is gone again. A disk that is known
 * to be this cluster's, but can't be mounted or read, is no refusal: it comes as failed.
 */
export async function openDisk(path: string, options: OpenDiskOptions): Promise<{ disk: Disk; origin: DiskOrigin }> {
  const { device, loop, made } = await deviceOf(path, options.log);
  try {
    const diskId = (await mountedDiskId(options.places, device)) ?? (await prepare(device, options));
    const twin = options.taken.get(diskId);
    if (twin !== undefined) {
      throw new HoldfastError(
        'already-exists',
        `${path} has the identity ${diskId} of ${twin}: one is a copy of the other`,
      );
    }
    return { disk: await mountDisk(diskId, device, options), origin: { loop } };
  } catch (error) {
    if (made) await detachLoop(device.path).catch(() => undefined);
    throw new HoldfastError(codeOf(error), named(path, messageOf(error)), { cause: error });
  }
}

async function deviceOf(
  path: string,
  log: Log,
): Promise<{ device: BlockDeviceInfo; loop: string | undefined; made: boolean }> {
  const found = await stat(path).catch((error: unknown) => {
    throw new HoldfastError('not-found', `${path} can't be found: ${messageOf(error)}`, { cause: error });
  });
  if (!found.isFile()) {
    const device = await blockDevice(path);
    checkSize(path, device.sizeBytes);
    return { device, loop: undefined, made: false };
  }
  checkSize(path, found.size);
  const loop = await attachLoop(path, log);
  return { device: await blockDevice(loop.path), loop: loop.path, made: loop.made };
}

/** Makes a blank disk, recognises a known one; everything else is refused. */
async function prepare(device: BlockDeviceInfo, { clusterId, log }: OpenDiskOptions): Promise<DiskId> {
  await checkUnused(device);
  const label = labelOf(clusterId);
  const contents = await contentsOf(device.path, device.sizeBytes);
  switch (contents.kind) {
    case 'blank':
      return makeFilesystem(device, label, [], log);
    case 'unfinished-xfs':
      if (contents.label !== label) throw foreign(`an unfinished xfs labelled '${contents.label}'`);
      return makeFilesystem(device, label, ['-f'], log);
    case 'xfs':
      if (contents.label === label) return diskIdOf(contents.uuid);
      if (!isHoldfastLabel(contents.label)) throw foreign(`xfs labelled '${contents.label}'`);
      throw foreign(`a disk of another Holdfast cluster (label ${contents.label}, this cluster's is ${label})`);
    case 'foreign':
      throw foreign(contents.found);
  }
}

async function makeFilesystem(
  device: BlockDeviceInfo,
  label: string,
  force: readonly string[],
  log: Log,
): Promise<DiskId> {
  const uuid = newUuid();
  log.info({ device: device.path, disk: diskIdOf(uuid) }, 'making a filesystem on a blank disk');
  const metadata = `crc=1,reflink=1,uuid=${uuid}`;
  await run('mkfs.xfs', ['-q', ...force, '-L', label, '-m', metadata, device.path], { timeoutMs: MKFS_TIMEOUT_MS });
  return diskIdOf(uuid);
}

async function mountDisk(
  diskId: DiskId,
  device: BlockDeviceInfo,
  options: OpenDiskOptions,
  again = false,
): Promise<Disk> {
  const { places, clusterId, log } = options;
  const failed = (error: unknown): Disk => Disk.failed(diskId, device, messageOf(error), log);
  let mount: DiskMount;
  try {
    mount = await ensureMounted(places, diskId, device);
  } catch (error) {
    if (codeOf(error) === 'failed-precondition') throw error;
    return failed(error);
  }
  const { ebsVolumeId } = device;
  try {
    const identity = await readIdentity(mount.directory, { diskId, clusterId, ebsVolumeId });
    if (identity === undefined) {
      const made = { diskId, clusterId };
      await writeIdentity(mount.directory, ebsVolumeId === undefined ? made : { ...made, ebsVolumeId });
    }
    log.info({ disk: diskId, device: device.path, directory: mount.directory }, 'disk is mounted');
    return await Disk.mounted(diskId, device, mount, log);
  } catch (error) {
    // A disk that answers with errors (a filesystem that shut down) is known by its place.
    if (!(error instanceof HoldfastError) || error.code === 'io-error') {
      if (again) return failed(error);
      // At start nothing of ours uses it yet: a new mount of a sound device mends what had shut down, and its new
      // incarnation tells the replicas (R10).
      log.warn({ disk: diskId, err: error }, 'disk answers with errors; mounting it anew');
      const unmounted = await unmount(places, diskId).then(
        () => true,
        () => false,
      );
      return unmounted ? mountDisk(diskId, device, options, true) : failed(error);
    }
    await unmount(places, diskId).catch(() => undefined);
    throw error;
  }
}

function checkSize(path: string, sizeBytes: number): void {
  if (sizeBytes >= MIN_DISK_BYTES) return;
  throw new HoldfastError(
    'out-of-range',
    `${path} has ${sizeBytes} bytes; a disk must have at least ${MIN_DISK_BYTES}`,
  );
}

function foreign(found: string): HoldfastError {
  return new HoldfastError(
    'failed-precondition',
    `it holds ${found}, and is never formatted; to give it to the pool, wipe it by hand (wipefs --all and blkdiscard -z)`,
  );
}

/** The message, which begins with the path that the configuration names. */
function named(path: string, message: string): string {
  return message.startsWith(path) ? message : `${path}: ${message}`;
}
