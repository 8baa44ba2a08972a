import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ErrorCode, HoldfastError } from '../../src/base/errors.js';
import { silentLog } from '../../src/base/log.js';
import type { Address, File, Files, Io, Lease, Slab, Stream } from '../../src/io/io.js';
import { createNodeIo } from '../../src/io/node-io.js';
import type { ReplicaRecord, VolumeRecord } from '../../src/model/records.js';
import { volumeKey } from '../../src/model/ids.js';
import { LAYOUT } from '../../src/model/layout.js';
import { MeterBook } from '../../src/metrics/meter-book.js';
import { rowsOf } from '../../src/metrics/table.js';
import { serveNbd, type NbdServer } from '../../src/nbd/server.js';
import { ReplicaHost } from '../../src/replica/host.js';
import { MemoryStore, StoreFaults } from '../../src/store/memory-store.js';
import { Confirmations } from '../../src/writer/confirmations.js';
import { Peers } from '../../src/writer/peers.js';
import { ResyncBounds } from '../../src/writer/resync-bounds.js';
import { takeOver } from '../../src/writer/take-over.js';
import type { WriterNode } from '../../src/writer/writer-node.js';
import { DEFAULT_TIMING, type Timing } from '../../src/writer/timing.js';
import { Writer } from '../../src/writer/writer.js';
import { RecordingLog } from './recording-log.js';
import { blockVolume } from './volume-record.js';

export const VOLUME = `vol-${'a'.repeat(24)}${'0'.repeat(8)}`;

/** The rules' times, shortened. */
export const SHORT_TIMING: Timing = {
  ...DEFAULT_TIMING,
  reconnectMs: 300,
  answerMs: 2_000,
  confirmedMs: 400,
  confirmEveryMs: 50,
  fenceMs: 500,
  crashLookMs: 400,
  idleCloseMs: 300,
  resyncPauseMs: 50,
};

export type DiskOperation = 'read' | 'write' | 'sync' | 'truncate' | 'punch';

/** What befalls one operation on the file at `path`: it may wait, or throw. */
export type DiskFault = (operation: DiskOperation, path: string) => Promise<void> | void;

const SLAB_BYTES = 32 * 1024 * 1024;
const COPY_SLAB_BYTES = 4 * 1024 * 1024;

/**
 * Nodes of one volume in one process: the production data path on real files and real sockets of the loopback, with
 * the store in memory. What a test does to it is said in the words of the domain: kill, reboot, cut, heal.
 */
export class ReplicationCluster {
  readonly faults = new StoreFaults();
  readonly store = new MemoryStore({ faults: this.faults });
  readonly nodes = new Map<string, ClusterNode>();
  /** Faults of single files on any node, by their path. */
  beforeDisk: DiskFault | undefined;
  readonly #cuts = new Set<string>();

  private constructor(
    readonly directory: string,
    readonly timing: Timing,
  ) {}

  static async create(options: {
    names: readonly string[];
    capacityBytes: number;
    timing?: Partial<Timing>;
    minInSync?: number;
  }): Promise<ReplicationCluster> {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-replication-'));
    const cluster = new ReplicationCluster(directory, { ...SHORT_TIMING, ...options.timing });
    for (const name of options.names) {
      const node = new ClusterNode(cluster, name);
      cluster.nodes.set(name, node);
      await node.start();
      await node.host.create(VOLUME, `disk-${name}`, options.capacityBytes);
    }
    const { minInSync = 1 } = options;
    const record = blockVolume(VOLUME, options.capacityBytes, options.names, { parameters: { minInSync } });
    await cluster.store.create('volume', volumeKey(VOLUME), record);
    return cluster;
  }

  node(name: string): ClusterNode {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`no node ${name}`);
    return node;
  }

  /** Packets between the two are lost, and connections stay open in silence. */
  cut(one: string, other: string): void {
    this.#cuts.add([one, other].sort().join());
  }

  heal(): void {
    this.#cuts.clear();
  }

  isCut(one: string, other: string): boolean {
    return this.#cuts.has([one, other].sort().join());
  }

  async record(): Promise<VolumeRecord> {
    const found = await this.store.get('volume', volumeKey(VOLUME));
    if (!found) throw new Error('no record');
    return found.record;
  }

  /** As the controller places replicas and takes them out. */
  async changeReplicas(change: (replicas: readonly ReplicaRecord[]) => ReplicaRecord[]): Promise<void> {
    const found = await this.store.get('volume', volumeKey(VOLUME));
    if (!found) throw new Error('no record');
    const { record, version } = found;
    await this.store.update('volume', volumeKey(VOLUME), { ...record, replicas: change(record.replicas) }, version);
  }

  async inSync(): Promise<string[]> {
    return (await this.record()).replicas.filter((replica) => replica.inSync).map((replica) => replica.node);
  }

  /** Waits, within the test's own time, until `claim` holds. */
  async until(claim: () => boolean | Promise<boolean>): Promise<void> {
    while (!(await claim())) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  async close(): Promise<void> {
    this.heal();
    for (const node of this.nodes.values()) await node.kill();
    await rm(this.directory, { recursive: true, force: true });
  }
}

export class ClusterNode {
  io: Io;
  slab: Slab;
  host!: ReplicaHost;
  #life = new Life();
  writer: Writer | undefined;
  #peers: Peers | undefined;
  #server: NbdServer | undefined;
  #incarnation = 1;
  #streams: Stream[] = [];
  alive = false;
  #resyncBounds!: ResyncBounds;
  readonly meters = new MeterBook(rowsOf('node'));
  readonly told = new RecordingLog();

  constructor(
    readonly cluster: ReplicationCluster,
    readonly name: string,
  ) {
    this.io = this.#newIo();
    this.slab = this.io.slab(SLAB_BYTES);
  }

  #newIo(): Io {
    const io = createNodeIo();
    this.#life = new Life();
    const { resyncsAtOnce, resyncBytesPerSecond } = this.cluster.timing;
    this.#resyncBounds = new ResyncBounds(
      io.clock,
      resyncsAtOnce,
      resyncBytesPerSecond,
      () => this.writer?.busy ?? false,
    );
    return {
      ...io,
      files: mortalFiles(io.files, this.#life, (operation, path) => this.cluster.beforeDisk?.(operation, path)),
      slab: (bytes) => io.slab(bytes),
      network: this.#network(io),
    };
  }

  /** What befalls the node's disk from now on. A hung disk hangs until the setting is taken back. */
  disk(faults: Life['disk']): void {
    this.#life.disk = faults;
  }

  /** Connections of peers. */
  get connectionCount(): number {
    return this.#server?.connectionCount ?? 0;
  }

  get address(): Address | undefined {
    return this.#server?.address;
  }

  async start(): Promise<void> {
    this.io = this.#newIo();
    this.slab = this.io.slab(SLAB_BYTES);
    this.host = new ReplicaHost({
      io: this.io,
      log: this.told.log,
      meters: this.meters,
      layout: LAYOUT,
      slab: this.io.slab(SLAB_BYTES),
      scrub: this.cluster.timing,
      mine: () => true,
      stopOlderWriter: (_volume, admission) => {
        const { writer } = this;
        if (writer && writer.epoch < admission.epoch && writer.session !== admission.session) {
          writer.fence(new HoldfastError('fenced', 'a newer epoch was admitted here'));
        }
        return Promise.resolve();
      },
    });
    const directory = join(this.cluster.directory, this.name);
    await this.host.openDisk({ diskId: `disk-${this.name}`, directory, incarnation: String(this.#incarnation) });
    const addressOf = (name: string): Promise<Address> => {
      const address = this.cluster.node(name).address;
      if (address) return Promise.resolve(address);
      return Promise.reject(new HoldfastError('unavailable', `${name} is down`));
    };
    this.#peers = new Peers(this.io, this.name, this.host, addressOf, this.meters);
    this.#server = await serveNbd({
      io: this.io,
      address: { kind: 'tcp', host: '127.0.0.1', port: 0 },
      exports: this.host.exports(),
      slab: this.io.slab(SLAB_BYTES),
      log: silentLog(),
    });
    this.alive = true;
  }

  /** Becomes the writer. `expired`: nodes whose leases have run out. */
  async attach(options: { resume?: boolean; timeoutMs?: number; expired?: readonly string[] } = {}): Promise<Writer> {
    const node = this.#writerNode(options.expired ?? []);
    const taken = await takeOver(node, VOLUME, {
      resume: options.resume ?? false,
      timeoutMs: options.timeoutMs ?? 5_000,
    });
    const confirmations = new Confirmations(this.io.clock, this.cluster.timing.confirmEveryMs, (name, questions) =>
      this.#need().confirm(name, questions),
    );
    this.writer = new Writer(node, confirmations, this.io.slab(COPY_SLAB_BYTES), taken);
    this.writer.start();
    return this.writer;
  }

  /** SIGKILL of the node's process: memory is lost, what the kernel has is not. */
  async kill(): Promise<void> {
    if (!this.alive) return;
    this.alive = false;
    const ended = this.#life.end();
    this.writer?.stop();
    this.writer = undefined;
    for (const stream of this.#streams) stream.close();
    this.#streams = [];
    this.#peers?.close();
    const server = this.#server;
    this.#server = undefined;
    await server?.close();
    await ended;
  }

  /** After `kill`: the machine reboots, so the disk is mounted anew. */
  async reboot(): Promise<void> {
    await this.kill();
    this.#incarnation++;
    await this.start();
  }

  /** Reads the replica itself, whoever writes it. */
  async peek(offset: number, length: number): Promise<Lease> {
    const opened = await this.host.exports().open(VOLUME, { close: () => undefined, drained: Promise.resolve() });
    return opened.stage.read(offset, length, this.slab);
  }

  /** The digest of the replica's whole content. */
  async content(): Promise<string> {
    const hash = createHash('sha256');
    const step = 1024 * 1024;
    const { capacityBytes } = await this.cluster.record();
    for (let at = 0; at < capacityBytes; at += step) {
      const lease = await this.peek(at, step);
      hash.update(lease.bytes);
      lease.release();
    }
    return hash.digest('hex');
  }

  #need(): Peers {
    if (!this.#peers) throw new Error(`${this.name} is down`);
    return this.#peers;
  }

  #writerNode(expired: readonly string[]): WriterNode {
    const { store } = this.cluster;
    return {
      io: this.io,
      log: this.told.log,
      meters: this.meters,
      timing: this.cluster.timing,
      layout: LAYOUT,
      name: this.name,
      records: {
        get: (volume) => store.get('volume', volumeKey(volume)),
        update: (record, version) => store.update('volume', volumeKey(record.id), record, version),
      },
      wallClock: () => '2026-01-01T00:00:00.000Z',
      resyncBounds: this.#resyncBounds,
      leaseExpired: (name) => Promise.resolve(expired.includes(name)),
      askToYield: () => Promise.resolve(),
      connect: (name, volume, admission) => this.#need().connect(name, volume, admission),
    };
  }

  #network(io: Io): Io['network'] {
    return {
      listen: (address, accept) => io.network.listen(address, accept),
      connect: async (address, timeoutMs) => {
        const peer = [...this.cluster.nodes.values()].find((node) => sameAddress(node.address, address));
        const isCut = (): boolean => peer !== undefined && this.cluster.isCut(this.name, peer.name);
        if (isCut()) {
          await io.clock.sleep(timeoutMs);
          throw new HoldfastError('unavailable', 'no route');
        }
        const stream = silenced(await io.network.connect(address, timeoutMs), isCut);
        this.#streams.push(stream);
        return stream;
      },
    };
  }
}

/** What a process has asked of its disk is carried out when it is killed, and nothing after. */
class Life {
  /** What befalls the disk from now on. */
  disk: { writes?: ErrorCode; syncs?: ErrorCode; hangs?: boolean } = {};
  #over = false;
  #underWay = 0;

  /** Lets the disk's fault befall one operation. */
  async meet(operation: DiskOperation): Promise<void> {
    while (this.disk.hangs && operation === 'write') await new Promise((resolve) => setTimeout(resolve, 20));
    const code = operation === 'write' ? this.disk.writes : operation === 'sync' ? this.disk.syncs : undefined;
    if (code) throw new HoldfastError(code, `the disk refused a ${operation}`);
  }

  #tellIdle: () => void = () => undefined;

  async run<T>(operation: () => Promise<T>): Promise<T> {
    if (this.#over) throw new HoldfastError('unavailable', 'the process is dead');
    this.#underWay++;
    try {
      return await operation();
    } finally {
      this.#underWay--;
      if (this.#underWay === 0) this.#tellIdle();
    }
  }

  end(): Promise<void> {
    this.#over = true;
    if (this.#underWay === 0) return Promise.resolve();
    return new Promise((resolve) => (this.#tellIdle = resolve));
  }
}

function mortalFiles(files: Files, life: Life, before: DiskFault): Files {
  return {
    open: (path, options) => life.run(async () => mortalFile(await files.open(path, options), path, life, before)),
    list: (directory) => life.run(() => files.list(directory)),
    makeDirectory: (path) => life.run(() => files.makeDirectory(path)),
    syncDirectory: (path) => life.run(() => files.syncDirectory(path)),
    rename: (from, to) => life.run(() => files.rename(from, to)),
    remove: (path) => life.run(() => files.remove(path)),
  };
}

function mortalFile(file: File, path: string, life: Life, before: DiskFault): File {
  const guarded = <T>(operation: DiskOperation, run: () => Promise<T>): Promise<T> =>
    life.run(async () => {
      await life.meet(operation);
      await before(operation, path);
      return run();
    });
  return {
    read: (into, offset) => guarded('read', () => file.read(into, offset)),
    write: (from, offset) => guarded('write', () => file.write(from, offset)),
    sync: () => guarded('sync', () => file.sync()),
    truncate: (sizeBytes) => guarded('truncate', () => file.truncate(sizeBytes)),
    size: () => life.run(() => file.size()),
    punch: (offset, length) => guarded('punch', () => file.punch(offset, length)),
    extents: (offset, length) => life.run(() => file.extents(offset, length)),
    close: () => file.close(),
  };
}

function sameAddress(one: Address | undefined, other: Address): boolean {
  return one?.kind === 'tcp' && other.kind === 'tcp' && one.port === other.port;
}

/** A stream that neither sends nor delivers from the moment it was used while cut: as in a partition, in silence. */
function silenced(stream: Stream, isCut: () => boolean): Stream {
  let silent = false;
  const isSilent = (): boolean => (silent ||= isCut());
  const silence = async (): Promise<never> => {
    await stream.closed;
    throw new HoldfastError('unavailable', 'the stream has ended');
  };
  return {
    read: async (into) => {
      await stream.read(into);
      if (isSilent()) await silence();
    },
    write: (parts) => (isSilent() ? silence() : stream.write(parts)),
    close: () => stream.close(),
    closed: stream.closed,
  };
}
