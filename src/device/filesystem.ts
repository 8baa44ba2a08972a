import { HoldfastError } from '../base/errors.js';
import { run } from '../base/run.js';
import type { FilesystemType } from '../model/records.js';
import { mayUseResources } from './capability.js';
import { deviceSize } from './probe.js';

export { bindMount, mountFilesystem, unmount } from './mounts.js';
export { deviceSize, probe, type Content } from './probe.js';

/**
 * Filesystems on block devices. Everything that may touch a device runs as a child process with a deadline: a device
 * whose writer is away makes its callers wait in the kernel, and that must not be this process.
 */

const FORMAT_TIMEOUT_MS = 300_000;
const CHECK_TIMEOUT_MS = 600_000;
const GROW_TIMEOUT_MS = 300_000;
const LOOK_TIMEOUT_MS = 15_000;

/** The kernel's tools refuse less, or make something useless. */
export const MINIMUM_FILESYSTEM_BYTES: Readonly<Record<FilesystemType, number>> = {
  ext4: 16 * 1024 * 1024,
  xfs: 300 * 1024 * 1024,
};

/** A device may exceed its filesystem by this much: what is left at the end may be too little to be of use. */
const UNUSED_END_BYTES = 1024 * 1024;

/**
 * Makes a filesystem. What the device held before is lost: the caller knows that it may be. `out-of-range`: too small.
 * `io-error`: refused (also where the device is mounted) or failed.
 */
export async function makeFilesystem(
  device: string,
  type: FilesystemType,
  options: readonly string[],
  timeoutMs = FORMAT_TIMEOUT_MS,
): Promise<void> {
  const sizeBytes = await deviceSize(device);
  if (sizeBytes < MINIMUM_FILESYSTEM_BYTES[type]) {
    const least = MINIMUM_FILESYSTEM_BYTES[type];
    throw new HoldfastError('out-of-range', `${device} has ${sizeBytes} bytes; ${type} needs at least ${least}`);
  }
  // Forced once: they overwrite what an interrupted attempt left, and refuse a mounted device all the same.
  const force = { ext4: ['-q', '-F', '-m', '0'], xfs: ['-q', '-f'] }[type];
  await run(`mkfs.${type}`, [...force, ...options, device], { timeoutMs });
}

/**
 * Makes an unmounted filesystem fit for mounting. ext4: replays the journal and repairs what is safe to repair
 * (e2fsck -p); where it could not be grown later, for want of the capability, it takes on its device's size now. xfs:
 * nothing, since its log is replayed by the mount. `corrupt`: a person must look at it.
 */
export async function checkFilesystem(
  device: string,
  type: FilesystemType,
  timeoutMs = CHECK_TIMEOUT_MS,
): Promise<void> {
  if (type === 'xfs') return;
  await checkExt4(device, [], timeoutMs);
  if (!(await isSmaller(device, await ext4Size(device))) || (await mayUseResources())) return;
  // resize2fs insists on a full check of what is not mounted.
  await checkExt4(device, ['-f'], timeoutMs);
  await run('resize2fs', [device], { timeoutMs });
}

async function checkExt4(device: string, options: readonly string[], timeoutMs: number): Promise<void> {
  const args = ['-p', ...options, device];
  const { code, stdout, stderr } = await run('e2fsck', args, { timeoutMs, okCodes: ANY_CODE });
  if ((code & E2FSCK.failed) !== 0) {
    throw new HoldfastError('io-error', `e2fsck of ${device} exited with ${code}: ${summary(stdout, stderr)}`);
  }
  if ((code & E2FSCK.uncorrected) !== 0) {
    const remedy = 'run e2fsck by hand, or restore a snapshot';
    throw new HoldfastError(
      'corrupt',
      `the ext4 filesystem on ${device} is damaged (${remedy}): ${summary(stdout, stderr)}`,
    );
  }
}

/** Bits of e2fsck's exit code (e2fsck(8)): 1 and 2 mean that errors were corrected. */
const E2FSCK = { uncorrected: 4, failed: 8 | 16 | 32 | 128 } as const;
const ANY_CODE = Array.from({ length: 256 }, (_, code) => code);

/** What is wrong with an unmounted filesystem that can't be mounted, in words, for a person. It changes nothing. */
export async function diagnoseFilesystem(device: string, type: FilesystemType, timeoutMs = 60_000): Promise<string> {
  const [command, options] = { xfs: ['xfs_repair', ['-n']] as const, ext4: ['e2fsck', ['-f', '-n']] as const }[type];
  const { code, stdout, stderr } = await run(command, [...options, device], { timeoutMs, okCodes: ANY_CODE });
  return code === 0 ? 'no damage found' : `${command} exited with ${code}: ${summary(stdout, stderr)}`;
}

/**
 * Lets a mounted filesystem take on its device's size, online. Big enough already: nothing happens. An attempt that was
 * interrupted is finished by the next one. `failed-precondition`: the kernel grows a mounted ext4 only for
 * CAP_SYS_RESOURCE.
 */
export async function growFilesystem(
  device: string,
  mountPoint: string,
  type: FilesystemType,
  timeoutMs = GROW_TIMEOUT_MS,
): Promise<void> {
  if (type === 'xfs') {
    // Unlike resize2fs it is given the mount point.
    await run('xfs_growfs', ['-d', mountPoint], { timeoutMs });
    return;
  }
  if (!(await mayUseResources()) && (await needsGrowth(device, mountPoint, type))) {
    const remedy = 'run the node plugin with it, or unmount: the next stage grows the filesystem';
    throw new HoldfastError(
      'failed-precondition',
      `a mounted ext4 grows with CAP_SYS_RESOURCE only (${device}); ${remedy}`,
    );
  }
  await run('resize2fs', [device], { timeoutMs });
}

/** Whether a mounted filesystem is smaller than its device by more than what may be left unused at the end. */
export async function needsGrowth(device: string, mountPoint: string, type: FilesystemType): Promise<boolean> {
  return isSmaller(device, await filesystemSize(device, mountPoint, type));
}

async function isSmaller(device: string, sizeBytes: number): Promise<boolean> {
  return (await deviceSize(device)) - sizeBytes > UNUSED_END_BYTES;
}

/** The size of a mounted filesystem on its device, in bytes: its own overhead included. */
export async function filesystemSize(device: string, mountPoint: string, type: FilesystemType): Promise<number> {
  if (type === 'ext4') return ext4Size(device);
  const { stdout } = await run('xfs_info', [mountPoint], { timeoutMs: LOOK_TIMEOUT_MS });
  return product(stdout, /^data\s*=\s*bsize=(\d+)\s+blocks=(\d+)/m, device);
}

async function ext4Size(device: string): Promise<number> {
  const { stdout } = await run('dumpe2fs', ['-h', device], { timeoutMs: LOOK_TIMEOUT_MS });
  return product(stdout, /^Block count:\s*(\d+)[^]*?^Block size:\s*(\d+)/m, device);
}

function product(text: string, pattern: RegExp, device: string): number {
  const [, first, second] = pattern.exec(text) ?? [];
  if (first === undefined || second === undefined) {
    throw new HoldfastError('corrupt', `the size of the filesystem on ${device} can not be told`);
  }
  return Number(first) * Number(second);
}

export interface Usage {
  readonly total: number;
  readonly used: number;
  /** Free for everybody. */
  readonly available: number;
}

/** Use of the filesystem that `path` lies in. `deadline-exceeded` where it does not answer. */
export async function filesystemUsage(
  path: string,
  timeoutMs = LOOK_TIMEOUT_MS,
): Promise<{ readonly bytes: Usage; readonly inodes: Usage }> {
  const args = ['--file-system', '--format=%S %b %f %a %c %d', path];
  const { stdout } = await run('stat', args, { timeoutMs });
  const [unit = 0, blocks = 0, free = 0, available = 0, inodes = 0, freeInodes = 0] = stdout
    .trim()
    .split(' ')
    .map(Number);
  return {
    bytes: { total: blocks * unit, used: (blocks - free) * unit, available: available * unit },
    inodes: { total: inodes, used: inodes - freeInodes, available: freeInodes },
  };
}

function summary(stdout: string, stderr: string): string {
  return `${stdout}\n${stderr}`.trim().split('\n').slice(-4).join('; ');
}
