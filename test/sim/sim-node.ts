import type { VolumeId } from '../../src/model/ids.js';
import { Plugin } from './plugin.js';
import type { SimCluster } from './sim-cluster.js';
import { SimDisk } from './sim-disk.js';
import type { SimDevice } from './sim-device.js';
import { SimFiles } from './sim-files.js';
import { SimMachine, type SimProcess } from './sim-machine.js';

/** A node of the simulated cluster: machine, plugin, devices. */
export class SimNode {
  readonly machine: SimMachine;
  readonly devices = new Map<VolumeId, SimDevice>();
  /** Of the disk in its pool now. */
  diskId: string;
  plugin: Plugin;
  /** The machine's own, beside the pool's. */
  readonly #stateDisk: SimDisk;
  /** Seen from outside: since when what was written to a volume and not flushed may be missing on its disk. */
  readonly mayHaveLost = new Map<VolumeId, number>();
  /** The plugin or the machine is to be started again by whoever took it down. */
  #down = false;

  constructor(
    readonly cluster: SimCluster,
    readonly name: string,
  ) {
    const { schedule, network, random } = cluster;
    const disk = new SimDisk(schedule, random.fork());
    this.machine = new SimMachine({ schedule, network, random: random.fork(), name, disk });
    this.#stateDisk = new SimDisk(schedule, random.fork());
    this.diskId = `disk-${name}`;
    this.plugin = this.#newPlugin();
  }

  get down(): boolean {
    return this.#down;
  }

  /** A flush may fail at any moment, or what was not flushed may be gone already. */
  mayLose(volume: VolumeId): boolean {
    return this.mayHaveLost.has(volume) || this.machine.disk.faults.syncErrors > 0;
  }

  /** The replica held everything at `time`, or is what the volume held from then on. */
  heldEverything(volume: VolumeId, time: number): void {
    if ((this.mayHaveLost.get(volume) ?? Infinity) < time) this.mayHaveLost.delete(volume);
  }

  /** Flushes succeed again; what failed to be flushed until now may be gone. */
  endSyncErrors(): void {
    const { faults } = this.machine.disk;
    if (faults.syncErrors > 0) this.unflushedIsLost();
    faults.syncErrors = 0;
  }

  /** What was not flushed may be gone from its disk. */
  unflushedIsLost(): void {
    for (const volume of this.cluster.volumes) this.mayHaveLost.set(volume, this.cluster.schedule.now);
  }

  /** SIGKILL of the plugin. */
  kill(): void {
    this.#down = true;
    this.#stateDisk.processEnded(this.plugin.process);
    this.plugin.process.kill();
  }

  /** Power cut. */
  crash(): void {
    this.#down = true;
    this.unflushedIsLost();
    this.devices.clear();
    this.#stateDisk.processEnded(this.plugin.process);
    this.machine.crash();
    this.#stateDisk.crash();
  }

  /** Its disk is gone for good; a new one is in its place. */
  loseDisk(): void {
    this.crash();
    this.machine.disk.wipe();
    this.diskId = `${this.diskId}-next`;
  }

  /** After `kill` or `crash`. */
  start(): void {
    if (!this.#down) return;
    this.#down = false;
    this.plugin = this.#newPlugin();
    this.begin();
  }

  /** Lets the plugin begin; a failure of its start is one of the run. */
  begin(): void {
    const { plugin } = this;
    plugin.start().catch((error: unknown) => {
      if (plugin.process.alive) this.cluster.startFailed(this, error);
    });
  }

  stateFiles(process: SimProcess): SimFiles {
    return new SimFiles({ process, schedule: this.cluster.schedule, disk: this.#stateDisk });
  }

  #newPlugin(): Plugin {
    return new Plugin(this, this.machine.startProcess('plugin'));
  }
}
