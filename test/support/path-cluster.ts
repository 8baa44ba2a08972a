import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HoldfastError } from '../../src/base/errors.js';
import { silentLog } from '../../src/base/log.js';
import { DataPath } from '../../src/data-path.js';
import type { Address } from '../../src/io/io.js';
import { createNodeIo } from '../../src/io/node-io.js';
import { volumeKey, type NodeName, type VolumeId } from '../../src/model/ids.js';
import { LAYOUT } from '../../src/model/layout.js';
import { MeterBook } from '../../src/metrics/meter-book.js';
import { rowsOf } from '../../src/metrics/table.js';
import type { VolumeRecord } from '../../src/model/records.js';
import { NbdClient } from '../../src/nbd/client.js';
import { MemoryStore, StoreFaults } from '../../src/store/memory-store.js';
import type { Timing } from '../../src/writer/timing.js';
import { SHORT_TIMING } from './replication-cluster.js';
import { blockVolume } from './volume-record.js';

const MIB = 1024 * 1024;
export const CAPACITY = 32 * MIB;

/** The data paths of some nodes in one process, whole as data threads run them, with any number of volumes. */
export class PathCluster {
  readonly faults = new StoreFaults();
  readonly store = new MemoryStore({ faults: this.faults });
  readonly nodes = new Map<NodeName, PathNode>();
  /** Nodes whose leases have run out. */
  readonly expired = new Set<NodeName>();
  /** Asked of a node by another that wants a volume. */
  yields = 0;

  private constructor(
    readonly directory: string,
    readonly timing: Timing,
  ) {}

  static async create(names: readonly NodeName[], timing: Partial<Timing> = {}): Promise<PathCluster> {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-paths-'));
    const cluster = new PathCluster(directory, { ...SHORT_TIMING, maintenanceIdleMs: 1_500, ...timing });
    for (const name of names) {
      const node = new PathNode(cluster, name);
      cluster.nodes.set(name, node);
      await node.start();
    }
    return cluster;
  }

  node(name: NodeName): PathNode {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`no node ${name}`);
    return node;
  }

  /** A ready volume with a replica on each of the nodes, those on `behind` not in sync. */
  async addVolume(
    number: number,
    nodes: readonly NodeName[],
    options: { behind?: readonly NodeName[]; parameters?: Partial<VolumeRecord['parameters']> } = {},
  ): Promise<VolumeId> {
    const id = `vol-${String(number).padStart(24, '0')}${'0'.repeat(8)}`;
    for (const name of nodes) await this.node(name).path.createReplica(id, `disk-${name}`, CAPACITY);
    const { behind = [], parameters = {} } = options;
    const replicas = nodes.map((node) => ({ node, disk: `disk-${node}`, inSync: !behind.includes(node) }));
    await this.store.create('volume', volumeKey(id), blockVolume(id, CAPACITY, nodes, { replicas, parameters }));
    return id;
  }

  async record(id: VolumeId): Promise<VolumeRecord> {
    const found = await this.store.get('volume', volumeKey(id));
    if (!found) throw new Error(`no record of ${id}`);
    return found.record;
  }

  async change(id: VolumeId, change: (record: VolumeRecord) => VolumeRecord): Promise<void> {
    const found = await this.store.get('volume', volumeKey(id));
    if (found) await this.store.update('volume', found.key, change(found.record), found.version);
  }

  /** `node*` where it is in sync, in the order of the record. */
  async replicas(id: VolumeId): Promise<string[]> {
    return (await this.record(id)).replicas.map(({ node, inSync }) => `${node}${inSync ? '*' : ''}`);
  }

  /** What was decided on the volume, oldest first. */
  async decisions(id: VolumeId): Promise<string[]> {
    return ((await this.record(id)).decisions ?? []).map(({ by, what }) => `${by} ${what}`);
  }

  /** Waits, within the test's own time, until `claim` holds. */
  async until(claim: () => boolean | Promise<boolean>): Promise<void> {
    while (!(await claim())) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  async close(): Promise<void> {
    for (const node of this.nodes.values()) await node.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

export class PathNode {
  path!: DataPath;
  readonly meters = new MeterBook(rowsOf('node'));
  /** What is mounted at its next start, the first one first. */
  disks: string[];
  #port = 0;
  #running = false;

  constructor(
    private readonly cluster: PathCluster,
    readonly name: NodeName,
  ) {
    this.disks = [`disk-${name}`];
  }

  async start(): Promise<void> {
    const { store, timing, expired, directory } = this.cluster;
    const socketPath = join(directory, `${this.name}.sock`);
    this.path = new DataPath({
      io: createNodeIo(),
      log: silentLog(),
      meters: this.meters,
      timing,
      layout: LAYOUT,
      nodeName: this.name,
      host: '127.0.0.1',
      port: 0,
      socketPath,
      notesDirectory: join(directory, `${this.name}-notes`),
      slabBytes: 32 * MIB,
      copySlabBytes: 4 * MIB,
      mine: () => true,
      wallClock: () => '2026-01-01T00:00:00.000Z',
      node: {
        getVolume: (volume) => store.get('volume', volumeKey(volume)),
        updateVolume: (record, version) => store.update('volume', volumeKey(record.id), record, version),
        leaseExpired: async (node, timeoutMs) => {
          const end = Date.now() + Math.min(timeoutMs, 1_000);
          while (!expired.has(node) && Date.now() < end) await new Promise((resolve) => setTimeout(resolve, 20));
          return expired.has(node);
        },
        askToYield: async (node, volume) => {
          this.cluster.yields++;
          await this.cluster.node(node).path.yieldUp(volume);
        },
        dataAddress: (node) => Promise.resolve(this.cluster.node(node).address),
      },
    });
    for (const disk of this.disks) await this.path.openDisk(disk, join(directory, disk), '1');
    this.#port = await this.path.listen();
    this.#running = true;
  }

  get address(): Address {
    if (!this.#running) throw new HoldfastError('unavailable', `${this.name} is down`);
    return { kind: 'tcp', host: '127.0.0.1', port: this.#port };
  }

  async stop(): Promise<void> {
    if (!this.#running) return;
    this.#running = false;
    await this.path.stop();
  }

  /** A client of the volume's export here, as the block device is one. */
  async client(volume: VolumeId): Promise<NbdClient> {
    const address: Address = { kind: 'unix', path: join(this.cluster.directory, `${this.name}.sock`) };
    return NbdClient.connect({ io: createNodeIo(), address, exportName: volume, timeoutMs: 2_000 });
  }

  /** Bytes that resyncs of the volume have copied from here. */
  copiedBytes(volume: VolumeId): number {
    const name = 'holdfast_resync_copied_bytes_total';
    const { values } = this.meters.snapshot();
    return values.find((one) => one.name === name && one.labels['volume'] === volume)?.value ?? 0;
  }

  /** The byte at each offset of the replica here, whoever writes it. */
  async peek(volume: VolumeId, offsets: readonly number[]): Promise<number[]> {
    const io = createNodeIo();
    return bytesAt(
      await NbdClient.connect({ io, address: this.address, exportName: volume, timeoutMs: 2_000 }),
      offsets,
    );
  }

  /** The byte at each offset, as the volume's writer here reads it. */
  async read(volume: VolumeId, offsets: readonly number[]): Promise<number[]> {
    return bytesAt(await this.client(volume), offsets);
  }

  /** Writes a page of one byte at each offset. */
  async write(volume: VolumeId, offsets: readonly number[], fill: number): Promise<void> {
    const client = await this.client(volume);
    const slab = createNodeIo().slab(MIB);
    try {
      for (const offset of offsets) {
        const lease = await slab.take(4096);
        lease.bytes.fill(fill);
        await client.write(offset, lease, false).finally(() => lease.release());
      }
      await client.flush();
    } finally {
      client.close();
    }
  }
}

async function bytesAt(client: NbdClient, offsets: readonly number[]): Promise<number[]> {
  const slab = createNodeIo().slab(MIB);
  const bytes: number[] = [];
  for (const offset of offsets) {
    const lease = await client.read(offset, 4096, slab);
    bytes.push(lease.bytes[0] ?? -1);
    lease.release();
  }
  client.close();
  return bytes;
}
