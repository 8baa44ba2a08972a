import { spawn } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { rmdir } from 'node:fs/promises';
import { HoldfastError, asHoldfastError } from '../base/errors.js';
import { mountAt, readMountTable } from '../base/mount-table.js';
import { run } from '../base/run.js';

/**
 * Mounts of FUSE connections. The process that serves them never follows a path into them: mount, umount and stat run
 * as children, while it answers.
 */

export const FUSE_TYPE = 'fuse.holdfast';
const DEADLINE_MS = 10_000;

/** A new FUSE connection, in non-blocking mode. `failed-precondition` where the kernel offers no FUSE. */
export function openFuse(): number {
  try {
    return openSync('/dev/fuse', constants.O_RDWR | constants.O_NONBLOCK);
  } catch (error) {
    throw new HoldfastError('failed-precondition', 'can not open /dev/fuse; load the kernel module fuse', {
      cause: error,
    });
  }
}

/** Mounts the connection on an empty directory. The kernel's first request (INIT) can be read afterwards. */
export function mountFuse(fd: number, mountPoint: string, maxReadBytes: number): Promise<void> {
  const options = [
    ...['fd=3', 'rootmode=40000', 'user_id=0', 'group_id=0', `max_read=${maxReadBytes}`],
    ...['nosuid', 'nodev', 'noexec', 'noatime'],
  ].join(',');
  return new Promise((resolve, reject) => {
    const child = spawn('mount', ['-i', '-n', '-t', FUSE_TYPE, '-o', options, 'holdfast', mountPoint], {
      stdio: ['ignore', 'ignore', 'pipe', fd],
      timeout: DEADLINE_MS,
      killSignal: 'SIGKILL',
    });
    let told = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (told += text));
    child.once('error', (error) =>
      reject(
        new HoldfastError('failed-precondition', 'mount can not be started; install the Debian package mount', {
          cause: error,
        }),
      ),
    );
    child.once('close', (code, signal) => {
      if (code === 0) resolve();
      else
        reject(
          new HoldfastError('io-error', `mount on ${mountPoint} failed (${code ?? signal ?? '?'}): ${told.trim()}`),
        );
    });
  });
}

/**
 * Unmounts all that is mounted there; nothing there: nothing happens. `lazy`: out of sight at once, ended when the last
 * user closes it. `failed-precondition`: still in use.
 */
export async function unmountFuse(mountPoint: string, lazy: boolean): Promise<void> {
  while (mountAt(await readMountTable(), mountPoint) !== undefined) {
    const args = [...(lazy ? ['--lazy'] : []), '--no-mtab', '--no-canonicalize', mountPoint];
    const { code, stderr } = await run('umount', args, { timeoutMs: DEADLINE_MS, okCodes: [0, 1, 32] });
    if (code !== 0 && mountAt(await readMountTable(), mountPoint) !== undefined) {
      throw new HoldfastError('failed-precondition', `${mountPoint} can not be unmounted: ${stderr.trim()}`);
    }
  }
}

/** Removes the empty folder of a mount that is gone. Missing: nothing happens. */
export async function removeFolder(mountPoint: string): Promise<void> {
  try {
    await rmdir(mountPoint);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT'))
      throw asHoldfastError(error, 'io-error');
  }
}

/** Mount points of Holdfast's FUSE mounts at a directory and below, living or dead. */
export async function fuseMountsAt(directory: string): Promise<string[]> {
  const table = await readMountTable();
  const found = table.filter(
    ({ fsType, mountPoint }) => fsType === FUSE_TYPE && `${mountPoint}/`.startsWith(`${directory}/`),
  );
  return [...new Set(found.map(({ mountPoint }) => mountPoint))];
}

/** Makes the kernel ask for the size of a file anew. */
export async function refreshAttributes(path: string): Promise<void> {
  await run('stat', ['--cached=never', '--format=%s', path], { timeoutMs: DEADLINE_MS });
}

/** Ends a connection that was never mounted. */
export function closeFuse(fd: number): void {
  closeSync(fd);
}
