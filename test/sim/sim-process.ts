import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { assert } from '../../src/base/assert.js';
import { PAGE_BYTES, type Io, type Slab } from '../../src/io/io.js';
import { NodeSlab } from '../../src/io/node-slab.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import type { Deliverer, MachineClock } from './sim-clock.js';
import type { SimDisk } from './sim-disk.js';
import { SimFiles } from './sim-files.js';
import { lendMemory } from './slab-memory.js';
import type { NetworkHost, SimNetwork } from './sim-network.js';

/** The machine below a process. */
export interface ProcessGround {
  readonly schedule: Schedule;
  readonly network: SimNetwork;
  readonly random: Prng;
  readonly host: NetworkHost;
  readonly clock: MachineClock;
  readonly disk: SimDisk;
  /** The machine has no such process any more. */
  readonly ended: (process: SimProcess) => void;
}

/**
 * One run of a program on a machine. Whatever comes to it — timers, completions, bytes, connections — is delivered
 * through it: dropped once it is dead, so its promises never settle; kept in order while it is paused.
 */
export class SimProcess implements Deliverer {
  /** The contract that production code runs on; all that is made with it belongs to this process. */
  readonly io: Io;
  #alive = true;
  #paused = false;
  readonly #waiting: (() => void)[] = [];
  #stopDraining: (() => void) | undefined;

  constructor(
    readonly name: string,
    private readonly ground: ProcessGround,
  ) {
    const { schedule, network, random, host, clock, disk } = ground;
    this.io = {
      files: new SimFiles({ process: this, schedule, disk }),
      network: network.of(this, host, clock, (path) => disk.size(path) !== undefined),
      clock: clock.of(this),
      random: { hex: (count) => random.hex(count), fraction: () => random.fraction() },
      slab: allocateSlab,
      digest: (bytes) => createHash('sha256').update(bytes).digest('hex'),
      checksum: (bytes) => crc32(bytes),
    };
  }

  get alive(): boolean {
    return this.#alive;
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Calls into the process: now, at its resume, or never. */
  deliver(fire: () => void): void {
    if (!this.#alive) return;
    if (this.#paused || this.#waiting.length > 0) this.#waiting.push(fire);
    else fire();
  }

  /** The result of work outside of the machine, say a call to a store, as it comes to this process. */
  bring<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      work.then(
        (result) => this.deliver(() => resolve(result)),
        // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors
        (error: unknown) => this.deliver(() => reject(error)),
      );
    });
  }

  /**
   * SIGKILL. The kernel keeps what was written and ends the connections. Operations on the disk that are under way are
   * at once done wholly, partly or not at all; none takes effect later.
   */
  kill(): void {
    if (!this.#alive) return;
    this.#end();
    this.ground.network.processKilled(this);
    this.ground.ended(this);
  }

  /** The machine has lost its power: nobody hears of it. */
  vanish(): void {
    if (!this.#alive) return;
    this.#end();
  }

  /** SIGSTOP. */
  pause(): void {
    if (!this.#alive) return;
    this.#paused = true;
    this.#stopDraining?.();
    this.#stopDraining = undefined;
  }

  /** SIGCONT. */
  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (this.#waiting.length > 0) this.#drainSoon();
  }

  #end(): void {
    this.#alive = false;
    this.#paused = false;
    this.#stopDraining?.();
    this.#waiting.length = 0;
    this.ground.disk.processEnded(this);
    this.ground.clock.forget(this);
  }

  #drainSoon(): void {
    this.#stopDraining ??= this.ground.schedule.after(0, () => {
      this.#stopDraining = undefined;
      const [next] = this.#waiting;
      next?.();
      // What was delivered may have paused or killed the process.
      if (!this.#alive) return;
      this.#waiting.shift();
      if (this.#waiting.length > 0 && !this.#paused) this.#drainSoon();
    });
  }
}

function allocateSlab(bytes: number): Slab {
  const pages = Math.ceil(bytes / PAGE_BYTES);
  assert(pages >= 1, 'a slab has at least one page');
  return new NodeSlab(lendMemory(pages * PAGE_BYTES));
}
