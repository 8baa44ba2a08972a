import { closeSync, fstatSync, openSync } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { HoldfastError } from '../base/errors.js';
import { Mutex } from '../base/mutex.js';
import type { Clock } from '../io/io.js';
import { tryLock } from './system-calls.js';

/** The kernel drops the lock with the process that had it, however that ends, which may take a moment. */
const WAIT_MS = 2_000;
const STEP_MS = 50;

/**
 * The right to serve a directory of mounts, for as long as this process lives. The lock is on the directory itself: of
 * all that a process keeps, only a directory with mounts below it can't be deleted behind its back.
 */
export class DirectoryLock {
  readonly #turn = new Mutex();
  #fd: number | undefined;

  constructor(
    private readonly directory: string,
    private readonly clock: Clock,
  ) {}

  /**
   * Makes the directory where it is missing, and locks it unless it is locked already. `already-exists`: another process
   * serves it.
   */
  hold(): Promise<void> {
    return this.#turn.run(() => this.#hold());
  }

  release(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  async #hold(): Promise<void> {
    await mkdir(this.directory, { recursive: true, mode: 0o700 });
    if (await this.#isHeld()) return;
    const fd = openSync(this.directory, 'r');
    for (let waitedMs = 0; !tryLock(fd); waitedMs += STEP_MS) {
      if (waitedMs >= WAIT_MS) {
        closeSync(fd);
        throw new HoldfastError('already-exists', `${this.directory} is locked: another device process serves it`);
      }
      await this.clock.sleep(STEP_MS);
    }
    this.release();
    this.#fd = fd;
  }

  /** Empty, it may have been deleted and made again. */
  async #isHeld(): Promise<boolean> {
    if (this.#fd === undefined) return false;
    const [now, held] = [await stat(this.directory), fstatSync(this.#fd)];
    return now.dev === held.dev && now.ino === held.ino;
  }
}
