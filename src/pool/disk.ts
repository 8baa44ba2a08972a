import { open, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { DiskId } from '../model/ids.js';
import type { BlockDeviceInfo } from './block-device.js';
import { wrongMount, type DiskMount } from './mounting.js';

/** A disk that takes no write for so long has failed, until it does. */
const ANSWER_TIMEOUT_MS = 5_000;

/** Overwritten in place at every check. */
const HEALTH_FILE = 'health';

export type DiskState = 'ready' | 'failed';

/** One look at a disk. */
export interface DiskReport {
  readonly diskId: DiskId;
  readonly capacityBytes: number;
  readonly usedBytes: number;
  readonly state: DiskState;
  readonly reason: string;
}

/**
 * A disk of this node's pool: known by its identity, and mounted unless it failed at the start. Its health comes from
 * I/O that gets done: a check writes and syncs a block. It holds at most one thread of the process's pool, however long
 * the disk hangs.
 */
export class Disk {
  #state: DiskState = 'ready';
  #reason = '';
  #capacityBytes = 0;
  #usedBytes = 0;
  #probe: Promise<void> | undefined;

  private constructor(
    readonly diskId: DiskId,
    readonly device: BlockDeviceInfo,
    private readonly mount: DiskMount | undefined,
    private readonly log: Log,
  ) {}

  static async mounted(diskId: DiskId, device: BlockDeviceInfo, mount: DiskMount, log: Log): Promise<Disk> {
    const disk = new Disk(diskId, device, mount, log);
    await disk.check();
    return disk;
  }

  /** A disk that is known, but could not be mounted or read. It stays failed until the plugin starts again. */
  static failed(diskId: DiskId, device: BlockDeviceInfo, reason: string, log: Log): Disk {
    const disk = new Disk(diskId, device, undefined, log);
    disk.#set('failed', reason);
    return disk;
  }

  get devicePath(): string {
    return this.device.path;
  }

  /** Where it is mounted; empty for a disk that failed at the start. */
  get directory(): string {
    return this.mount?.directory ?? '';
  }

  /** Another one after every new mount (R10); empty for a disk that failed at the start. */
  get incarnation(): string {
    return this.mount?.incarnation ?? '';
  }

  get state(): DiskState {
    return this.#state;
  }

  /** Why it failed; empty while it is ready. */
  get reason(): string {
    return this.#reason;
  }

  /** Size of its filesystem; 0 where it was never read. */
  get capacityBytes(): number {
    return this.#capacityBytes;
  }

  /** As of now, or where the disk does not answer as of the last time that it did. */
  async usedBytes(): Promise<number> {
    await this.check();
    return this.#usedBytes;
  }

  async report(): Promise<DiskReport> {
    await this.check();
    const { diskId, state, reason } = this;
    return { diskId, capacityBytes: this.#capacityBytes, usedBytes: this.#usedBytes, state, reason };
  }

  /** Brings state, reason and sizes up to date; takes at most ANSWER_TIMEOUT_MS. Never rejects. */
  async check(): Promise<void> {
    if (this.mount === undefined) return;
    this.#probe ??= this.#look(this.mount).finally(() => (this.#probe = undefined));
    let late: NodeJS.Timeout | undefined;
    const timeout = new Promise<void>((resolve) => {
      late = setTimeout(() => {
        this.#set('failed', `it took no write for ${ANSWER_TIMEOUT_MS} ms`);
        resolve();
      }, ANSWER_TIMEOUT_MS);
    });
    await Promise.race([this.#probe, timeout]);
    clearTimeout(late);
  }

  async #look(mount: DiskMount): Promise<void> {
    try {
      const wrong = await wrongMount(mount, this.device);
      if (wrong !== undefined) {
        this.#set('failed', wrong);
        return;
      }
      await writeBlock(join(mount.directory, HEALTH_FILE));
      const { bsize, blocks, bfree } = await statfs(mount.directory);
      this.#capacityBytes = bsize * blocks;
      this.#usedBytes = bsize * (blocks - bfree);
      this.#set('ready', '');
    } catch (error) {
      this.#set('failed', `it can't be written: ${messageOf(error)}`);
    }
  }

  #set(state: DiskState, reason: string): void {
    if (state === this.#state && reason === this.#reason) return;
    this.#state = state;
    this.#reason = reason;
    const about = { disk: this.diskId, device: this.device.path };
    if (state === 'failed') this.log.error({ ...about, reason }, 'disk has failed');
    else this.log.info(about, 'disk works again');
  }
}

/** A full disk is no failed one: the block is allocated once and then overwritten. */
async function writeBlock(path: string): Promise<void> {
  const file = await open(path, 'a').catch(unlessFull);
  if (file === undefined) return;
  await file.close();
  const block = await open(path, 'r+');
  try {
    await block.write('ok\n', 0).catch(unlessFull);
    await block.sync();
  } finally {
    await block.close();
  }
}

function unlessFull(error: unknown): undefined {
  if (error instanceof Error && 'code' in error && error.code === 'ENOSPC') return undefined;
  throw error;
}
