import { Prng } from './prng.js';
import { Schedule } from './schedule.js';
import { SimDisk } from './sim-disk.js';
import { SimMachine } from './sim-machine.js';
import { SimNetwork } from './sim-network.js';

/** Machines, each with a disk, in one network and one time: all of it from one seed. */
export class SimWorld {
  readonly schedule = new Schedule();
  readonly random: Prng;
  readonly network: SimNetwork;

  constructor(seed: number) {
    this.random = new Prng(seed);
    this.network = new SimNetwork(this.schedule, this.random);
  }

  machine(name: string): SimMachine {
    const { schedule, network } = this;
    const disk = new SimDisk(schedule, this.random);
    return new SimMachine({ schedule, network, random: this.random.fork(), name, disk });
  }

  /** Lets time pass until `body`, which runs on simulated I/O, is through. Fails where nothing is left to wait for. */
  async run<T>(body: () => Promise<T>, limitMs = 3_600_000): Promise<T> {
    let outcome: { value: T } | { error: unknown } | undefined;
    void body().then(
      (value) => (outcome = { value }),
      (error: unknown) => (outcome = { error }),
    );
    await this.schedule.run({ untilMs: this.schedule.now + limitMs, done: () => outcome !== undefined });
    if (outcome === undefined) throw new Error('it waits for something that never happens');
    if ('error' in outcome) throw outcome.error;
    return outcome.value;
  }

  /** Lets time pass. */
  pass(ms: number): Promise<void> {
    return this.schedule.run({ untilMs: this.schedule.now + ms });
  }
}
