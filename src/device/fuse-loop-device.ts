import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Io } from '../io/io.js';
import { FuseChannel } from './fuse-channel.js';
import type { FuseFile } from './fuse-file.js';
import {
  closeFuse,
  fuseMountsAt,
  mountFuse,
  openFuse,
  refreshAttributes,
  removeFolder,
  unmountFuse,
} from './fuse-mount.js';
import type { FuseLimits } from './fuse-reply.js';
import {
  attachLoop,
  detachLoop,
  isHeld,
  isLoopOn,
  listLoops,
  loopSize,
  updateCapacity,
  type LoopDevice,
} from './loop.js';
import type { Readiness } from './readiness.js';
import { boundAmong, placesOf } from './shown.js';
import type { SteadyStage } from './steady-stage.js';

/** Transfers are split to this by the kernel; it bounds the memory of a device, and larger ones are no faster. */
const LIMITS: FuseLimits = { maxTransferBytes: 256 * 1024, maxBackground: 512 };
/** Data of one direction in transfer. 1 MiB carries 1 GB/s at 1 ms for each request. */
const WINDOW_BYTES = 1024 * 1024;
/** A request as it is received: its data, and a page for what stands before it. */
const RECEIVE_BYTES = LIMITS.maxTransferBytes + 4096;

const GROW_TRIES = 20;
const GROW_STEP_MS = 50;
const ABANDON_TRIES = 50;
const ABANDON_STEP_MS = 100;

export interface FuseLoopParts {
  readonly io: Io;
  readonly readiness: Readiness;
  readonly log: Log;
  readonly stage: SteadyStage;
  /** Where the file appears: in a folder of its own. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly readOnly: boolean;
}

/**
 * One block device: a FUSE file whose requests go to a stage, and a loop device on it. Each has a FUSE mount of its
 * own, so that one whose writer is away holds up no other, and goes without a trace.
 */
export class FuseLoopDevice {
  #sizeBytes: number;
  readonly #channel: FuseChannel;
  #loop = '';
  #removing = false;

  private constructor(
    private readonly parts: FuseLoopParts,
    fd: number,
  ) {
    const { io, path, readiness, stage, log, readOnly } = parts;
    this.#sizeBytes = parts.sizeBytes;
    const name = path.slice(dirname(path).length + 1);
    this.#channel = new FuseChannel({
      fd,
      file: (): FuseFile => ({ name, sizeBytes: this.#sizeBytes, readOnly, limits: LIMITS }),
      stage,
      readiness,
      received: io.slab(RECEIVE_BYTES + WINDOW_BYTES),
      answers: io.slab(WINDOW_BYTES),
      log,
    });
  }

  /** Makes mount and loop device, or nothing at all. What an earlier attempt left at the place is removed. */
  static async make(parts: FuseLoopParts): Promise<FuseLoopDevice> {
    const mountPoint = dirname(parts.path);
    await freePlace(mountPoint, parts.log);
    await mkdir(mountPoint, { recursive: true, mode: 0o700 });
    const fd = openFuse();
    try {
      await mountFuse(fd, mountPoint, LIMITS.maxTransferBytes);
    } catch (error) {
      closeFuse(fd);
      await removeFolder(mountPoint).catch(() => undefined);
      throw error;
    }
    const device = new FuseLoopDevice(parts, fd);
    try {
      device.#loop = await attachLoop(parts.path, parts.readOnly);
    } catch (error) {
      // losetup may be waiting for the export, and makes its device when it goes on.
      parts.stage.fail('the device could not be made');
      await device.#abandon();
      throw error;
    }
    return device;
  }

  /** The loop device, e.g. /dev/loop7. */
  get loop(): string {
    return this.#loop;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** `leaving`: a removal has begun, so it may vanish at its last close. `gone`: its number may be another's. */
  async presence(): Promise<'here' | 'leaving' | 'gone'> {
    if (!(await isLoopOn(this.#loop, this.parts.path))) return 'gone';
    return this.#removing ? 'leaving' : 'here';
  }

  /** First the file's size, then the loop device's. A repeat finishes what was left half done. */
  async grow(sizeBytes: number): Promise<void> {
    this.#sizeBytes = Math.max(this.#sizeBytes, sizeBytes);
    this.parts.stage.sizeBytes = this.#sizeBytes;
    if ((await loopSize(this.#loop)) >= this.#sizeBytes) return;
    for (let tries = 0; tries < GROW_TRIES; tries++) {
      // The kernel ignores an answer about the size while writes change the file, so it may have to ask again.
      await refreshAttributes(this.parts.path);
      if ((await updateCapacity(this.#loop)) >= this.#sizeBytes) return;
      await this.parts.io.clock.sleep(GROW_STEP_MS);
    }
    throw new HoldfastError('unavailable', `${this.#loop} did not take on ${this.#sizeBytes} bytes; try again`);
  }

  /**
   * `failed-precondition` while it is mounted, its node is bound to a path, or it is open; nothing has changed then, but
   * that an open one may go at its last close.
   */
  async remove(): Promise<void> {
    const { path } = this.parts;
    if (await isLoopOn(this.#loop, path)) {
      if (!this.#removing) await refuseWhileUsed(this.#loop);
      this.#removing = true;
      await detachLoop(this.#loop, path);
    }
    this.#removing = true;
    await this.#unmount();
  }

  /** Removes what there is of a device that could not be made. */
  async #abandon(): Promise<void> {
    const { path, log, io } = this.parts;
    for (let tries = 0; ; tries++) {
      try {
        for (const loop of await listLoops()) if (loop.backingFile === path) await detachLoop(loop.path, path);
        await this.#unmount();
        return;
      } catch (error) {
        if (tries >= ABANDON_TRIES) {
          log.error({ path, err: error }, 'what was made of a device stays until the next attempt');
          return;
        }
      }
      await io.clock.sleep(ABANDON_STEP_MS);
    }
  }

  async #unmount(): Promise<void> {
    const mountPoint = dirname(this.parts.path);
    await unmountFuse(mountPoint, false);
    await this.#channel.ended;
    await removeFolder(mountPoint);
  }
}

/** The kernel gives the number of a device that is removed to the next one. */
async function refuseWhileUsed(loop: string): Promise<void> {
  const places = await placesOf(loop);
  if (places.length > 0) {
    throw new HoldfastError('failed-precondition', `${loop} is still seen at ${places.join(', ')}; unmount it there`);
  }
  if (await isHeld(loop))
    throw new HoldfastError('failed-precondition', `${loop} is mounted or held; unmount it first`);
}

/** As `clearPlace`. `failed-precondition`: something had to stay. */
export async function freePlace(place: string, log: Log): Promise<void> {
  const [kept] = await clearPlace(place, log);
  if (kept === undefined) return;
  const where = (await placesOf(kept.path)).join(', ');
  throw new HoldfastError('failed-precondition', `${kept.path}, which nobody serves, is still seen at ${where}`);
}

/**
 * Removes what nobody serves any more from `place`, a mount point or a folder of such: loop devices (those still open go
 * at their last close), mounts, and their folders. A device whose node is still bound to a path stays as it is, with its
 * mount; all its I/O fails. Resolves to those.
 */
export async function clearPlace(place: string, log: Log): Promise<LoopDevice[]> {
  const left = (await listLoops()).filter(({ backingFile }) => backingFile.startsWith(`${place}/`));
  const kept = await boundAmong(left);
  for (const { path, backingFile } of left.filter((loop) => !kept.includes(loop))) {
    await detachLoop(path, backingFile).then(
      () => log.info({ path, backingFile }, 'loop device left over was detached'),
      (error: unknown) => log.warn({ path, backingFile, err: error }, 'loop device left over goes at its last close'),
    );
  }
  for (const mountPoint of await fuseMountsAt(place)) {
    if (kept.some(({ backingFile }) => dirname(backingFile) === mountPoint)) continue;
    await unmountFuse(mountPoint, true);
    await removeFolder(mountPoint);
    log.info({ mountPoint }, 'mount left over was removed');
  }
  return kept;
}
