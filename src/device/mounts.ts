import { mkdir, open, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { HoldfastError, asHoldfastError } from '../base/errors.js';
import { mountAt, readMountTable } from '../base/mount-table.js';
import { run } from '../base/run.js';
import type { FilesystemType } from '../model/records.js';

/** Mounts. Where one hangs, the child process hangs, not this one. */

const MOUNT_TIMEOUT_MS = 60_000;
const UNMOUNT_TIMEOUT_MS = 60_000;
const BIND_TIMEOUT_MS = 10_000;
/** Mounts on top of each other that one `unmount` clears. */
const MAX_STACKED = 64;

/** Options that every mount of a filesystem gets. An xfs clone has its source's UUID, and must be mountable beside it. */
const STANDARD_OPTIONS: Readonly<Record<FilesystemType, readonly string[]>> = { ext4: [], xfs: ['nouuid'] };

/**
 * Mounts a filesystem on a directory, which is made where it is missing. A mount that outlasts its time is killed, but
 * may still come about when the device answers: `deadline-exceeded` asks for `unmount`.
 */
export async function mountFilesystem(
  device: string,
  target: string,
  type: FilesystemType,
  flags: readonly string[],
  timeoutMs = MOUNT_TIMEOUT_MS,
): Promise<void> {
  await mkdir(target, { recursive: true });
  const options = [...STANDARD_OPTIONS[type], ...flags];
  const chosen = options.length === 0 ? [] : ['-o', options.join(',')];
  await run('mount', ['-t', type, ...chosen, device, target], { timeoutMs });
}

/**
 * Shows `source`, a directory or a device node, at `target` too, which is made where it is missing. Read-only holds for
 * a directory's files; a device node shown read-only can still be opened for writing (blockdev --setro forbids that).
 */
export async function bindMount(
  source: string,
  target: string,
  readOnly: boolean,
  timeoutMs = BIND_TIMEOUT_MS,
): Promise<void> {
  await makeTarget(source, target);
  await run('mount', ['--bind', source, target], { timeoutMs });
  if (!readOnly) return;
  try {
    // The first mount takes no options of its own: they need a remount.
    await run('mount', ['-o', 'remount,bind,ro', target], { timeoutMs });
  } catch (error) {
    await unmount(target, {});
    throw error;
  }
}

/**
 * Unmounts all that is mounted at a path, dead mounts too. Missing or not mounted: nothing happens. `lazy`: out of
 * sight at once, ended when the last user leaves it. `failed-precondition`: in use.
 */
export async function unmount(target: string, options: { lazy?: boolean; timeoutMs?: number } = {}): Promise<void> {
  const path = await canonicalPath(target);
  for (let cleared = 0; cleared < MAX_STACKED; cleared++) {
    const before = mountAt(await readMountTable(), path);
    if (before === undefined) return;
    // Nothing below the path is looked at: it may be dead.
    const args = [...(options.lazy === true ? ['--lazy'] : []), '--no-canonicalize', path];
    const timeoutMs = options.timeoutMs ?? UNMOUNT_TIMEOUT_MS;
    const { code, stderr } = await run('umount', args, { timeoutMs, okCodes: [0, 1, 32] });
    if (code !== 0 && mountAt(await readMountTable(), path)?.mountId === before.mountId) {
      throw new HoldfastError('failed-precondition', `${target} can not be unmounted: ${stderr.trim()}`);
    }
  }
  throw new HoldfastError('failed-precondition', `more than ${MAX_STACKED} mounts lie on ${target}`);
}

async function makeTarget(source: string, target: string): Promise<void> {
  const isDirectory = (await stat(source).catch(missing(source))).isDirectory();
  if (isDirectory) {
    await mkdir(target, { recursive: true });
    return;
  }
  await mkdir(dirname(target), { recursive: true });
  try {
    await (await open(target, 'wx')).close();
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST'))
      throw asHoldfastError(error, 'io-error');
  }
}

function missing(path: string): (error: unknown) => never {
  return (error) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      throw new HoldfastError('not-found', `${path} is not there`, { cause: error });
    }
    throw asHoldfastError(error, 'io-error');
  };
}

/** The path as the kernel's table has it. Its last part is not followed: it may be dead. */
async function canonicalPath(path: string): Promise<string> {
  const parent = await realpath(dirname(path)).catch(() => dirname(path));
  return join(parent, basename(path));
}
