import { readFile, readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { readMountTable, type MountEntry } from '../base/mount-table.js';
import { run } from '../base/run.js';

/** What the kernel holds for the files below a directory. */
export interface Held {
  /** Mounts below the directory, and mounts anywhere of loop devices that belong to it; the latest first. */
  readonly mounts: readonly MountEntry[];
  /** Paths of loop devices whose file lies below the directory. */
  readonly loops: readonly string[];
}

const TIMEOUT_MS = 20_000;
const ROUNDS = 12;
/** What a killed process, or somebody who looked, still holds for a moment. */
const STUCK_PAUSE_MS = 200;

/** Finds the mounts and loop devices of a directory, whoever made them. */
export async function heldBy(directory: string): Promise<Held> {
  const loops = await loopsOf(directory);
  const table = await readMountTable();
  const numbers = new Set(await Promise.all(loops.map(deviceNumber)));
  const mounts = table.filter((entry) => isBelow(entry.mountPoint, directory) || numbers.has(entry.majorMinor));
  return { mounts: mounts.reverse(), loops };
}

/** Whether a path is the directory or lies below it. */
export function isBelow(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}

/**
 * Unmounts and detaches all that the directory holds, the upper layers first. A mount that someone still uses is taken
 * out of the tree (umount --lazy) once nothing else moves, and its name is logged. Resolves to what could not be
 * cleared.
 */
export async function clearHeld(directory: string, log: Log): Promise<Held> {
  let before = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const held = await heldBy(directory);
    const count = held.mounts.length + held.loops.length;
    if (count === 0) return held;
    const stuck = count >= before;
    before = count;
    if (stuck) await sleep(STUCK_PAUSE_MS);
    // A FUSE mount comes after the loop devices on its files: once it is out of the tree, they can't be told any more.
    const isFuse = (mount: MountEntry): boolean => mount.fsType.startsWith('fuse');
    for (const mount of held.mounts) if (!isFuse(mount)) await unmount(mount, stuck, log);
    // Detaching a loop device that is in use would only be noted, and come true at its last close.
    const used = new Set((await readMountTable()).map((entry) => entry.majorMinor));
    for (const loop of held.loops) {
      if (stuck || !used.has(await deviceNumber(loop))) await attempt(log, 'losetup', ['--detach', loop]);
    }
    for (const mount of held.mounts) if (isFuse(mount)) await unmount(mount, stuck, log);
  }
  return heldBy(directory);
}

/** Unmounts all below a directory in the ordinary way, so that the filesystems are flushed. Resolves to what is in use. */
export async function unmountBelow(directory: string, log: Log): Promise<readonly MountEntry[]> {
  const mountsNow = async (): Promise<MountEntry[]> =>
    (await readMountTable()).filter((entry) => isBelow(entry.mountPoint, directory)).reverse();
  for (const mount of await mountsNow()) await unmount(mount, false, log);
  return mountsNow();
}

async function unmount(mount: MountEntry, lazy: boolean, log: Log): Promise<void> {
  if (lazy) log.warn({ mountPoint: mount.mountPoint }, 'mount is in use; taking it out of the tree');
  await attempt(log, 'umount', lazy ? ['--lazy', mount.mountPoint] : [mount.mountPoint]);
}

async function attempt(log: Log, command: string, args: string[]): Promise<void> {
  try {
    await run(command, args, { timeoutMs: TIMEOUT_MS });
  } catch (error) {
    log.debug({ command, args, reason: messageOf(error) }, 'not yet');
  }
}

async function loopsOf(directory: string): Promise<string[]> {
  const names = (await readdir('/sys/block')).filter((name) => /^loop[0-9]+$/.test(name));
  const files = await Promise.all(
    names.map((name) => readFile(`/sys/block/${name}/loop/backing_file`, 'utf8').catch(() => '')),
  );
  return names.filter((_, index) => isBelow((files[index] ?? '').trim(), directory)).map((name) => `/dev/${name}`);
}

async function deviceNumber(loop: string): Promise<string> {
  const text = await readFile(`/sys/block/${loop.replace('/dev/', '')}/dev`, 'utf8').catch(() => '');
  return text.trim();
}
