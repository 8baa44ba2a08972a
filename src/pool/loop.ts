import { readdir, readFile, realpath, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { HoldfastError, codeOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { KeyedMutex } from '../base/mutex.js';
import { run } from '../base/run.js';

/**
 * Loop devices under disks that are files. A file must never have two: they would hold two page caches of the same
 * bytes. A loop device outlives the node plugin, so the one that is there already is found by the file's inode and used
 * again.
 */
const TIMEOUT_MS = 15_000;

/** One at a time for each file, within this process; between processes losetup's --nooverlap decides. */
const turns = new KeyedMutex<string>();

/** The loop device on the file, or undefined. `failed-precondition` where there are several. */
export async function loopOf(file: string): Promise<string | undefined> {
  const { dev, ino } = await stat(file, { bigint: true });
  const name = basename(await realpath(file));
  const found: Loop[] = [];
  for (const loop of await listLoops()) {
    // Others are not asked: a block device's FUSE file, say, may not answer.
    if (basename(loop.backingFile) !== name) continue;
    const backing = await stat(loop.backingFile, { bigint: true }).catch(() => undefined);
    if (backing?.dev === dev && backing.ino === ino) found.push(loop);
  }
  if (found.length > 1) {
    const names = found.map((loop) => loop.name).join(' and ');
    throw new HoldfastError(
      'failed-precondition',
      `${file} is behind ${names} at once; detach all but one (losetup -d)`,
    );
  }
  return found[0]?.name;
}

/** Puts the file behind a loop device with direct I/O, or finds the one it is behind. `made`: it was not there before. */
export function attachLoop(file: string, log: Log): Promise<{ path: string; made: boolean }> {
  return turns.run(file, async () => {
    const found = await loopOf(file);
    if (found !== undefined) return { path: found, made: false };
    const args = ['--find', '--show', '--nooverlap', file];
    try {
      return { path: (await losetup(['--direct-io=on', ...args])).trim(), made: true };
    } catch (error) {
      if (codeOf(error) !== 'io-error') throw error;
      // The filesystem under the file takes no direct I/O, or the loop was made and direct I/O refused afterwards.
      const left = await loopOf(file);
      const path = left ?? (await losetup(args)).trim();
      log.warn({ file, path, err: error }, 'no direct I/O under this disk; its writes pass through the page cache');
      return { path, made: true };
    }
  });
}

/** Detaches; a device that is still in use goes when its last user does. Not attached: nothing happens. */
export async function detachLoop(path: string): Promise<void> {
  if (!(await listLoops()).some((loop) => loop.name === path)) return;
  await losetup(['--detach', path]);
}

interface Loop {
  readonly name: string;
  readonly backingFile: string;
}

/** By sysfs: to ask a loop device itself may wait for what is behind it. */
async function listLoops(): Promise<Loop[]> {
  const names = (await readdir('/sys/block')).filter((name) => /^loop\d+$/.test(name));
  const loops = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(`/sys/block/${name}/loop/backing_file`, 'utf8').catch(() => undefined);
      return text === undefined ? [] : [{ name: `/dev/${name}`, backingFile: text.replace(/\n$/, '') }];
    }),
  );
  return loops.flat();
}

async function losetup(args: readonly string[]): Promise<string> {
  return (await run('losetup', args, { timeoutMs: TIMEOUT_MS })).stdout;
}
