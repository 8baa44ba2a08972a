import { mkdir, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { DiskId } from '../model/ids.js';
import type { Disk, DiskReport } from './disk.js';
import { detachLoop } from './loop.js';
import { unmount, type MountPlaces } from './mounting.js';
import { openDisk, type DiskOrigin } from './open-disk.js';
import { Trash } from './trash.js';

export interface PoolOptions {
  /** Files or block devices. */
  readonly disks: readonly string[];
  /** Disks are mounted in folders of this one, named by their ids. */
  readonly poolDirectory: string;
  readonly stateDirectory: string;
  readonly clusterId: string;
  readonly log: Log;
  /** How long what is in the trash stays. Default: a day. */
  readonly trashGraceMs?: number;
}

const TRASH_GRACE_MS = 24 * 60 * 60 * 1000;

/** How long a call waits for sweeps of trash; they go on without it. */
const SWEEP_WAIT_MS = 3_000;

/** What was named as a disk and is not in the pool. Nothing on it was changed. */
export interface RefusedDisk {
  readonly path: string;
  readonly reason: string;
}

interface Member {
  readonly disk: Disk;
  readonly origin: DiskOrigin;
  readonly trash: Trash;
}

/** The disks of this node. */
export class Pool {
  /** Sweeps of trash that run. */
  readonly #sweeps = new Map<Member, Promise<unknown>>();
  readonly #ended = new AbortController();

  constructor(
    private readonly places: MountPlaces,
    private readonly members: readonly Member[],
    readonly refused: readonly RefusedDisk[],
  ) {}

  /** All that have an identity of this cluster, failed ones too. */
  get disks(): readonly Disk[] {
    return this.members.map(({ disk }) => disk);
  }

  readyDisks(): Disk[] {
    return this.disks.filter((disk) => disk.state === 'ready');
  }

  /** Checks all disks; takes seconds at most, also when one hangs. Never rejects. */
  report(): Promise<DiskReport[]> {
    return Promise.all(this.disks.map((disk) => disk.report()));
  }

  /**
   * Removes what has been in the trash of a disk for its time. On a disk where an earlier call is still at it, nothing is
   * begun; a call takes seconds at most, also when a disk hangs, so that the others are emptied again. All are tried,
   * then the first failure is thrown.
   */
  async emptyTrash(): Promise<void> {
    for (const member of this.members) {
      if (member.disk.state === 'ready' && !this.#sweeps.has(member)) this.#beginSweep(member);
    }
    const failures = await this.#swept();
    if (failures.length > 0) throw failures[0];
  }

  /**
   * With `unmount`: every disk is unmounted and the loop devices that files are behind are detached; all are tried,
   * then the first failure is thrown (a disk still in use: `io-error`). Without: all stays mounted for the next plugin,
   * and attachments on this node don't notice.
   */
  async close(options: { unmount: boolean }): Promise<void> {
    this.#ended.abort();
    await this.#swept();
    if (!options.unmount) return;
    const failures: unknown[] = [];
    for (const { disk, origin } of this.members) {
      try {
        await unmount(this.places, disk.diskId);
        if (origin.loop !== undefined) await detachLoop(origin.loop);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  #beginSweep(member: Member): void {
    if (this.#ended.signal.aborted) return;
    const sweep = member.trash.sweep(this.#ended.signal).finally(() => this.#sweeps.delete(member));
    // One that fails when nobody waits any more is tried anew by the next call.
    sweep.catch(() => undefined);
    this.#sweeps.set(member, sweep);
  }

  /** Waits for the sweeps that run, but not for long; resolves to the failures. */
  async #swept(): Promise<unknown[]> {
    const late = new AbortController();
    const timeout = sleep(SWEEP_WAIT_MS, undefined, { signal: late.signal }).catch(() => undefined);
    const failures: unknown[] = [];
    const sweeps = [...this.#sweeps.values()].map((sweep) => sweep.catch((error: unknown) => failures.push(error)));
    await Promise.race([Promise.all(sweeps), timeout]);
    late.abort();
    return failures;
  }
}

/**
 * Opens every disk: blank ones are made, known ones mounted (or found mounted), all others refused with one line in the
 * log. No disk keeps another from its service, so this fails only where the directories themselves can't be used.
 */
export async function openPool(options: PoolOptions): Promise<Pool> {
  const { poolDirectory, stateDirectory, clusterId, log } = options;
  if (clusterId === '') throw new HoldfastError('invalid-argument', 'clusterId must not be empty');
  const places = { poolDirectory: await made(poolDirectory), stateDirectory: await made(stateDirectory) };
  const members: Member[] = [];
  const refused: RefusedDisk[] = [];
  const taken = new Map<DiskId, string>();
  for (const path of options.disks) {
    try {
      const { disk, origin } = await openDisk(path, { places, clusterId, taken, log });
      taken.set(disk.diskId, path);
      members.push({ disk, origin, trash: trashOf(disk, options) });
    } catch (error) {
      const reason = messageOf(error);
      log.error({ path, reason }, 'disk is refused');
      refused.push({ path, reason });
    }
  }
  return new Pool(places, members, refused);
}

function trashOf(disk: Disk, { trashGraceMs, log }: PoolOptions): Trash {
  return new Trash(join(disk.directory, 'trash'), trashGraceMs ?? TRASH_GRACE_MS, log);
}

/** The directory, made where it is missing, by the path that the mount table shows. */
async function made(directory: string): Promise<string> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  if (!(await stat(directory)).isDirectory()) {
    throw new HoldfastError('invalid-argument', `${directory} is no directory`);
  }
  return realpath(directory);
}
