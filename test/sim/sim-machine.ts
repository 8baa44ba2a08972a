import { assert } from '../../src/base/assert.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import { MachineClock } from './sim-clock.js';
import type { SimDisk } from './sim-disk.js';
import { NetworkHost, type SimNetwork } from './sim-network.js';
import { SimProcess } from './sim-process.js';

export { SimProcess } from './sim-process.js';

/** How long ago, by its own clock, a machine was started when the run begins. */
const MAX_UPTIME_MS = 1_000_000;

/** A machine: a clock, a disk, a place in the network, and processes. */
export class SimMachine {
  readonly name: string;
  /** The disk of processes that start from now on. */
  disk: SimDisk;
  readonly #schedule: Schedule;
  readonly #network: SimNetwork;
  readonly #random: Prng;
  readonly #host: NetworkHost;
  readonly #clock: MachineClock;
  readonly #processes = new Set<SimProcess>();

  constructor(parts: { schedule: Schedule; network: SimNetwork; random: Prng; name: string; disk: SimDisk }) {
    this.name = parts.name;
    this.disk = parts.disk;
    this.#schedule = parts.schedule;
    this.#network = parts.network;
    this.#random = parts.random;
    this.#host = new NetworkHost(parts.name);
    this.#network.join(this.#host);
    this.#clock = new MachineClock(parts.schedule, parts.random.below(MAX_UPTIME_MS));
  }

  /** How fast its clock runs against virtual time. */
  get clockRate(): number {
    return this.#clock.rate;
  }

  set clockRate(rate: number) {
    assert(rate > 0, 'a monotonic clock goes forward');
    this.#clock.rate = rate;
  }

  /** Its clock goes on `ms` later. */
  jumpClock(ms: number): void {
    assert(ms >= 0, 'a monotonic clock goes forward');
    this.#clock.jump(ms);
  }

  /** Starts the machine too, where it is down. */
  startProcess(name: string): SimProcess {
    if (!this.#host.up) this.#network.booted(this.#host);
    const process = new SimProcess(name, {
      schedule: this.#schedule,
      network: this.#network,
      random: this.#random.fork(),
      host: this.#host,
      clock: this.#clock,
      disk: this.disk,
      ended: (ended) => this.#processes.delete(ended),
    });
    this.#processes.add(process);
    return process;
  }

  /** Power cut: every process ends without a word, and its disk keeps what it happens to keep. */
  crash(): void {
    for (const process of this.#processes) process.vanish();
    this.#processes.clear();
    this.#network.vanished(this.#host);
    this.disk.crash();
  }
}
