import { readFile, readdir } from 'node:fs/promises';
import { HoldfastError, asHoldfastError } from '../base/errors.js';
import { run } from '../base/run.js';
import { PAGE_BYTES } from '../io/io.js';
import { boundDevices } from './shown.js';

/**
 * Loop devices on the files of a FUSE mount. Whatever opens such a file or device runs as a child process; this
 * process only looks into /sys, which touches neither.
 */

const DEADLINE_MS = 15_000;
/** How long a program that looks at every new device (udev) may keep one open after its detaching was asked for. */
const LAST_CLOSE_MS = 2_000;
const LAST_CLOSE_STEP_MS = 25;
const SECTOR_BYTES = 512;
/** Devices that are tried one by one where not just any free one will do. */
const ATTACH_TRIES = 8;

export interface LoopDevice {
  /** e.g. /dev/loop7 */
  readonly path: string;
  readonly backingFile: string;
}

/** Puts a loop device on a file: direct I/O, sectors of 4096 bytes, no partitions. */
export async function attachLoop(file: string, readOnly: boolean): Promise<string> {
  const args = ['--direct-io=on', '--sector-size', String(PAGE_BYTES), ...(readOnly ? ['--read-only'] : [])];
  const path = await attachFree(args, file);
  if ((await loopAttribute(path, 'dio')) !== '1') {
    await detachLoop(path, file);
    throw new HoldfastError('failed-precondition', `${path} on ${file} can not use direct I/O with this kernel`);
  }
  return path;
}

/**
 * The first free device, but for one that was detached behind our back and is still bound to a path: whoever opens that
 * path would reach this file.
 */
async function attachFree(args: readonly string[], file: string): Promise<string> {
  const taken = new Set((await listLoops()).map(({ path }) => path));
  const avoided = (await boundDevices()).filter((path) => !taken.has(path));
  if (avoided.length === 0) {
    return (await run('losetup', [...args, '--find', '--show', file], { timeoutMs: DEADLINE_MS })).stdout.trim();
  }
  const free = numbers(taken.size + avoided.length + ATTACH_TRIES)
    .map((number) => `/dev/loop${number}`)
    .filter((path) => !taken.has(path) && !avoided.includes(path));
  for (const path of free) {
    // Another may have taken it just now.
    const { code } = await run('losetup', [...args, path, file], { timeoutMs: DEADLINE_MS, okCodes: [0, 1] });
    if (code === 0) return path;
  }
  throw new HoldfastError(
    'unavailable',
    `no free loop device for ${file}; still bound to paths: ${avoided.join(', ')}`,
  );
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}

/** All loop devices that have a backing file. */
export async function listLoops(): Promise<LoopDevice[]> {
  const names = (await readdir('/sys/block')).filter((name) => /^loop\d+$/.test(name));
  const found = await Promise.all(
    names.map(async (name) => ({
      path: `/dev/${name}`,
      backingFile: await loopAttribute(`/dev/${name}`, 'backing_file'),
    })),
  );
  return found.filter((loop): loop is LoopDevice => loop.backingFile !== undefined);
}

/** Whether the device is on this file now. */
export async function isLoopOn(path: string, file: string): Promise<boolean> {
  return (await loopAttribute(path, 'backing_file')) === file;
}

/**
 * Detaches the device from the file; not on this file (any more): nothing happens. `failed-precondition`: somebody has
 * it open; the kernel detaches it at the last close.
 */
export async function detachLoop(path: string, file: string): Promise<void> {
  if (!(await isLoopOn(path, file))) return;
  // Its exit code says nothing here: another may have detached the device just before.
  await run('losetup', ['--detach', path], { timeoutMs: DEADLINE_MS, okCodes: [0, 1] });
  for (let waitedMs = 0; await isLoopOn(path, file); waitedMs += LAST_CLOSE_STEP_MS) {
    if (waitedMs >= LAST_CLOSE_MS) throw new HoldfastError('failed-precondition', `${path} is open; close it first`);
    await new Promise((resolve) => setTimeout(resolve, LAST_CLOSE_STEP_MS));
  }
}

/** Exit codes of the child that looks for an exclusive holder. */
const HELD = 3;
const MISSING = 4;
const LOOK_FOR_HOLDER = `
  const { openSync, constants } = require('node:fs');
  try {
    openSync(process.argv[1], constants.O_RDONLY | constants.O_EXCL | constants.O_NONBLOCK);
  } catch (error) {
    process.exit(error.code === 'EBUSY' ? ${HELD} : error.code === 'ENOENT' || error.code === 'ENXIO' ? ${MISSING} : 5);
  }`;

/**
 * Whether something holds the device exclusively: a mount in any namespace, device mapper, swap. A node that is bound to
 * a path holds nothing: see `placesOf`.
 */
export async function isHeld(path: string): Promise<boolean> {
  const args = ['--eval', LOOK_FOR_HOLDER, path];
  const { code } = await run(process.execPath, args, { timeoutMs: DEADLINE_MS, okCodes: [0, HELD, MISSING] });
  return code === HELD;
}

/** Lets the device take on the size of its file; resolves to the size it has then, in bytes. */
export async function updateCapacity(path: string): Promise<number> {
  await run('losetup', ['--set-capacity', path], { timeoutMs: DEADLINE_MS });
  return loopSize(path);
}

export async function loopSize(path: string): Promise<number> {
  return Number(await readFile(`/sys/block/${nameOf(path)}/size`, 'utf8')) * SECTOR_BYTES;
}

async function loopAttribute(path: string, attribute: string): Promise<string | undefined> {
  try {
    return (await readFile(`/sys/block/${nameOf(path)}/loop/${attribute}`, 'utf8')).replace(/\n$/, '');
  } catch (error) {
    // Without a backing file there is no such folder.
    if (error instanceof Error && 'code' in error && GONE.has(String(error.code))) return undefined;
    throw asHoldfastError(error, 'io-error');
  }
}

const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ENODEV', 'ENXIO']);

function nameOf(path: string): string {
  return path.slice('/dev/'.length);
}
