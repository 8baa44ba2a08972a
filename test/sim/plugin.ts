import { DiskAnnouncer, publishNode } from '../../src/agent/announce.js';
import { withdrawFromGone } from '../../src/agent/withdraw.js';
import { ReplicaCollector } from '../../src/agent/collect.js';
import { removeUnnamed } from '../../src/agent/remove.js';
import type { Replicas } from '../../src/replica/replicas.js';
import { dataServices } from '../../src/agent/data-services.js';
import { codeOf, HoldfastError, messageOf } from '../../src/base/errors.js';
import { KeyedMutex } from '../../src/base/mutex.js';
import { DataPath } from '../../src/data-path.js';
import type { Files, Io, Slab } from '../../src/io/io.js';
import type { DiskId, VolumeId } from '../../src/model/ids.js';
import { LeaseKeeper, LeaseObserver } from '../../src/store/lease.js';
import { pause } from '../../src/store/pause.js';
import type { RecordStore } from '../../src/store/store.js';
import { SimDevice } from './sim-device.js';
import { simLog } from './sim-log.js';
import type { SimProcess } from './sim-machine.js';
import type { SimNode } from './sim-node.js';

export const DISK_DIRECTORY = '/disk';
/** On the machine's own disk, which is not the pool's. */
const STATE_DIRECTORY = '/state';
const SOCKET = '/run/holdfast.sock';
const SLAB_BYTES = 4 * 1024 * 1024;
const COPY_SLAB_BYTES = 128 * 1024;
const LEASE_INTERVAL_MS = 3_000;
const SETTLE_EVERY_MS = 3_000;
const RESUME_MS = 30_000;
const CALL_MS = 5_000;
const COLLECT_EVERY_MS = 5_000;
/** Of the simulated cluster. */
export const CLUSTER_ID = 'simulated';
const COLLECT_GRACE_MS = 8_000;
const DISK_BYTES = 64 * 1024 ** 3;
const ATTACH_MS = 25_000;
const NO_DEVICE = { path: '', sizeBytes: 0, readOnly: false, failed: false };
const RELEASE_MS = 20_000;

/**
 * One run of the node plugin: the production data path, lease and store client in one process, and the few duties of
 * src/node.ts and src/csi around them, without mounts.
 */
export class Plugin {
  readonly path: DataPath;
  readonly store: RecordStore;
  /** All I/O memory of the process, for checks of leaks. */
  readonly slabs: Slab[] = [];
  readonly #io: Io;
  readonly #turns = new KeyedMutex<VolumeId>();
  readonly #replicaTurns = new KeyedMutex<VolumeId>();
  readonly #ending = new AbortController();
  ready = false;

  constructor(
    readonly node: SimNode,
    readonly process: SimProcess,
  ) {
    const { cluster, name } = node;
    const { scenario } = cluster;
    const io: Io = {
      ...process.io,
      files: routed(process.io.files, node.stateFiles(process)),
      slab: (bytes) => {
        const slab = process.io.slab(bytes);
        this.slabs.push(slab);
        return slab;
      },
    };
    this.#io = io;
    const log = simLog(cluster.tell, name);
    this.store = cluster.store.client(process, name);
    const leases = new LeaseObserver({ store: this.store, clock: io.clock, log });
    const nodes = { get: (other: string) => cluster.addressSeen(name, other) };
    const services = dataServices({
      store: this.store,
      nodes,
      leases,
      clock: io.clock,
      agents: {
        of: (record) => ({
          yieldVolume: (volume) => {
            const other = cluster.node(record.name);
            return cluster.rpc({ process, host: name }, other, CALL_MS, () => other.plugin.path.yieldUp(volume));
          },
        }),
      },
    });
    this.path = new DataPath({
      io,
      log,
      timing: scenario.timing,
      layout: scenario.layout,
      nodeName: name,
      host: name,
      port: 0,
      socketPath: SOCKET,
      notesDirectory: `${STATE_DIRECTORY}/failed-flushes`,
      slabBytes: SLAB_BYTES,
      copySlabBytes: COPY_SLAB_BYTES,
      mine: () => true,
      wallClock: () => '',
      node: { ...services, dataAddress: (other) => services.dataAddress(other, 0) },
    });
  }

  /** As runNode does: disks, data path, lease, address, and then the duties. */
  async start(): Promise<void> {
    const { name, cluster } = this.node;
    const log = simLog(cluster.tell, name);
    await this.path.openDisk(this.node.diskId, DISK_DIRECTORY, String(this.node.machine.disk.incarnation));
    const port = await this.path.listen();
    const keeper = new LeaseKeeper({
      store: this.store,
      node: name,
      nodeUid: `uid-${name}`,
      intervalMs: LEASE_INTERVAL_MS,
      clock: this.#io.clock,
      log,
    });
    void keeper.run(this.#ending.signal);
    await keeper.held;
    const node = { name, nodeUid: `uid-${name}`, topology: {}, host: name, agentPort: 1, dataPorts: [port] };
    await this.#persevere(() => publishNode(this.store, node));
    const disks = new DiskAnnouncer(this.store, name);
    const disk = {
      diskId: this.node.diskId,
      capacityBytes: DISK_BYTES,
      usedBytes: 0,
      state: 'ready',
      reason: '',
    } as const;
    await this.#persevere(() => disks.announce([disk]));
    await this.#withdrawFromGone();
    this.ready = true;
    void this.#settleDevices();
    void this.#collect();
  }

  async #withdrawFromGone(): Promise<void> {
    const { name, cluster, devices } = this.node;
    const parts = {
      store: this.store,
      devices: { list: () => Promise.resolve([...devices.keys()].map((volume) => ({ ...NO_DEVICE, volume }))) },
      nodeName: name,
      end: (volume: VolumeId) => this.path.revoke(volume, RELEASE_MS),
      log: simLog(cluster.tell, name),
    };
    await this.#persevere(() => withdrawFromGone(parts));
  }

  async #persevere(act: () => Promise<void>): Promise<void> {
    while (!this.#ending.signal.aborted) {
      const done = await act().then(
        () => true,
        () => false,
      );
      if (done) return;
      await pause(this.#io.clock, 1_000, this.#ending.signal);
    }
  }

  /** The orderly end. Devices stay. */
  async stop(): Promise<void> {
    this.#ending.abort();
    await this.path.stop();
  }

  /** Runs a call of the outside in the process: a dead one refuses, a paused one answers later. */
  call<T>(work: () => Promise<T>): Promise<T> {
    if (!this.process.alive) return Promise.reject(new HoldfastError('unavailable', `${this.node.name} is down`));
    return new Promise((resolve, reject) => {
      this.process.deliver(() => void work().then(resolve, reject));
    });
  }

  /** NodeStageVolume: becomes the writer and makes the device, or finds both. */
  stage(volume: VolumeId): Promise<SimDevice> {
    return this.#served(volume, async () => {
      const { devices } = this.node;
      const before = devices.get(volume);
      if (before && (await this.#goesOn(before, ATTACH_MS))) return before;
      before?.remove();
      devices.delete(volume);
      const attachment = await this.path.attach(volume, false, ATTACH_MS);
      try {
        const device = new SimDevice(this.node.machine, volume, attachment, this.node.cluster.tell);
        devices.set(volume, device);
        await device.stage.open();
        return device;
      } catch (error) {
        devices.get(volume)?.remove();
        devices.delete(volume);
        await this.path.release(volume, RELEASE_MS);
        throw error;
      }
    });
  }

  /** NodeUnstageVolume. Nobody uses the device any more. */
  unstage(volume: VolumeId): Promise<void> {
    return this.#served(volume, async () => {
      const { devices } = this.node;
      devices.get(volume)?.remove();
      devices.delete(volume);
      await this.path.release(volume, RELEASE_MS);
    });
  }

  /** The CSI services are there once the plugin is ready. */
  #served<T>(volume: VolumeId, work: () => Promise<T>): Promise<T> {
    if (!this.ready) return Promise.reject(new HoldfastError('unavailable', `${this.node.name} serves no CSI yet`));
    return this.#turns.run(volume, work);
  }

  /** See src/agent/remove.ts. */
  removeUnnamed(volume: VolumeId): Promise<void> {
    const { store } = this;
    const turns = this.#replicaTurns;
    return removeUnnamed({ store, replicas: this.#replicas, turns, nodeName: this.node.name }, volume);
  }

  /** As the agent does it; see src/agent/server.ts. */
  createReplica(volume: VolumeId, disk: DiskId, capacityBytes: number): Promise<void> {
    return this.#replicaTurns.run(volume, () => this.path.createReplica(volume, disk, capacityBytes));
  }

  async #collect(): Promise<void> {
    const collector = new ReplicaCollector({
      store: this.store,
      replicas: this.#replicas,
      turns: this.#replicaTurns,
      clusterId: CLUSTER_ID,
      graceMs: COLLECT_GRACE_MS,
      log: simLog(this.node.cluster.tell, this.node.name),
      now: () => this.#io.clock.now(),
    });
    while (!this.#ending.signal.aborted) {
      await collector.look().catch(() => undefined);
      await pause(this.#io.clock, COLLECT_EVERY_MS, this.#ending.signal);
    }
  }

  get #replicas(): Replicas {
    const { path } = this;
    return {
      openDisk: ({ diskId, directory, incarnation }) => path.openDisk(diskId, directory, incarnation),
      create: (volume, disk, capacityBytes) => path.createReplica(volume, disk, capacityBytes),
      remove: (volume, reason, disk) => path.removeReplica(volume, reason, disk),
      list: () => Promise.resolve(path.listReplicas()),
    };
  }

  /** Given a device, then its attachment is live, or goes on from before a restart, or has ended and the device with it. */
  async #settleDevices(): Promise<void> {
    while (!this.#ending.signal.aborted) {
      for (const volume of [...this.node.devices.keys()]) {
        void this.#turns.run(volume, () => this.#settle(volume)).catch(() => undefined);
      }
      await pause(this.#io.clock, SETTLE_EVERY_MS, this.#ending.signal);
    }
  }

  async #settle(volume: VolumeId): Promise<void> {
    const device = this.node.devices.get(volume);
    if (!device) return;
    const state = this.path.status(volume)?.state;
    if (!device.failed && (state === 'serving' || state === 'taking-over' || state === 'releasing')) return;
    if (!device.failed && (await this.#goesOn(device, RESUME_MS))) return;
    device.remove();
    if (this.node.devices.get(volume) === device) this.node.devices.delete(volume);
    await this.path.revoke(volume, RELEASE_MS);
  }

  async #goesOn(device: SimDevice, timeoutMs: number): Promise<boolean> {
    if (device.failed) return false;
    const state = this.path.status(device.volume)?.state;
    if (state === 'fenced' || state === 'failed') {
      device.fail(`the attachment is ${state}`);
      return false;
    }
    try {
      await this.path.attach(device.volume, true, timeoutMs);
      return true;
    } catch (error) {
      if (codeOf(error) !== 'fenced' && codeOf(error) !== 'failed-precondition') throw error;
      device.fail(messageOf(error));
      return false;
    }
  }
}

/** The files of two disks under one root. */
function routed(pool: Files, state: Files): Files {
  const of = (path: string): Files => (path.startsWith(STATE_DIRECTORY) ? state : pool);
  return {
    open: (path, options) => of(path).open(path, options),
    list: (directory) => of(directory).list(directory),
    makeDirectory: (path) => of(path).makeDirectory(path),
    syncDirectory: (path) => of(path).syncDirectory(path),
    rename: (from, to) => of(from).rename(from, to),
    remove: (path) => of(path).remove(path),
  };
}
