import { constants } from 'node:fs';
import { open, readFile, readdir, realpath, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { HoldfastError, messageOf } from '../base/errors.js';

const SECTOR_BYTES = 512;

const EXCLUSIVE = constants.O_RDONLY | constants.O_EXCL;

/** What the kernel tells of a block device. */
export interface BlockDeviceInfo {
  /** e.g. /dev/nvme1n1, with links resolved. */
  readonly path: string;
  /** As in the mount table. */
  readonly majorMinor: string;
  readonly sizeBytes: number;
  /** Of an EBS volume, e.g. vol-0123456789abcdef0; its NVMe serial number is that id without the dash. */
  readonly ebsVolumeId: string | undefined;
}

/** `not-found`: no such device. `invalid-argument`: no block device. */
export async function blockDevice(path: string): Promise<BlockDeviceInfo> {
  const real = await realpath(path).catch((error: unknown) => {
    throw new HoldfastError('not-found', `${path} is not there: ${messageOf(error)}`, { cause: error });
  });
  if (!(await stat(real)).isBlockDevice()) {
    throw new HoldfastError('invalid-argument', `${path} is neither a file nor a block device`);
  }
  const directory = `/sys/class/block/${basename(real)}`;
  const [majorMinor, size, serial] = await Promise.all([
    readFile(`${directory}/dev`, 'utf8'),
    readFile(`${directory}/size`, 'utf8'),
    readFile(`${directory}/device/serial`, 'utf8').catch(() => ''),
  ]).catch((error: unknown) => {
    throw new HoldfastError('not-found', `${real} has vanished: ${messageOf(error)}`, { cause: error });
  });
  return {
    path: real,
    majorMinor: majorMinor.trim(),
    sizeBytes: Number(size) * SECTOR_BYTES,
    ebsVolumeId: /^vol-?[0-9a-f]+$/.test(serial.trim()) ? serial.trim().replace(/^vol-?/, 'vol-') : undefined,
  };
}

/** `failed-precondition` where a device mapper, RAID or the like holds the device, or anything has it open for itself. */
export async function checkUnused(device: BlockDeviceInfo): Promise<void> {
  const holders = await readdir(`/sys/class/block/${basename(device.path)}/holders`).catch(() => []);
  if (holders.length > 0) {
    throw new HoldfastError('failed-precondition', `${device.path} is part of ${holders.join(', ')}`);
  }
  try {
    // Linux refuses O_EXCL on a block device that is mounted, is swap, or is being formatted.
    await (await open(device.path, EXCLUSIVE)).close();
  } catch (error) {
    const busy = error instanceof Error && 'code' in error && error.code === 'EBUSY';
    throw busy
      ? new HoldfastError(
          'failed-precondition',
          `${device.path} is in use (mounted elsewhere, swap, or being formatted)`,
        )
      : new HoldfastError('io-error', `${device.path} can't be opened: ${messageOf(error)}`, { cause: error });
  }
}
