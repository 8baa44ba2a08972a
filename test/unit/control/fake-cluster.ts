import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { credentials } from '@grpc/grpc-js';
import { NodeAgents } from '../../../src/agent/client.js';
import { present } from '../../../src/base/assert.js';
import { HoldfastError } from '../../../src/base/errors.js';
import { invoke, loadProto, type CallContext } from '../../../src/base/grpc.js';
import { silentLog } from '../../../src/base/log.js';
import { Mutex } from '../../../src/base/mutex.js';
import { serveUnix, type RunningServer } from '../../../src/base/unix-server.js';
import { TOPOLOGY_NODE, TOPOLOGY_ZONE } from '../../../src/config.js';
import { addAdminService } from '../../../src/control/admin.js';
import type { VolumeOrder } from '../../../src/control/create-volume.js';
import { Rebuilder } from '../../../src/control/rebuilder.js';
import { Strays } from '../../../src/control/strays.js';
import { Volumes } from '../../../src/control/volumes.js';
import { addControllerService } from '../../../src/csi/controller.js';
import { addIdentityService } from '../../../src/csi/identity.js';
import type { ProtoGrpcType as CsiProto } from '../../../src/generated/csi.js';
import type { ControllerClient } from '../../../src/generated/csi/v1/Controller.js';
import type { IdentityClient } from '../../../src/generated/csi/v1/Identity.js';
import type { ProtoGrpcType as HoldfastProto } from '../../../src/generated/holdfast.js';
import type { AdminClient } from '../../../src/generated/holdfast/v1/Admin.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { volumeKey } from '../../../src/model/ids.js';
import type { VolumeRecord } from '../../../src/model/records.js';
import { MemoryStore, StoreFaults } from '../../../src/store/memory-store.js';
import { FakeNode } from './fake-node.js';

export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

export interface NodePlan {
  /** GiB of each disk; none: a node without disks. */
  readonly disks?: readonly number[];
  readonly zone?: string;
}

/** Short enough that a test about a silent node takes no time, long enough that a busy machine answers within it. */
const TIMEOUT_MS = 700;

export const REBUILD_LIMITS = {
  overcommit: 1,
  graceMs: 600_000,
  diskGraceMs: 15_000,
  rebuildsPerNode: 2,
  inspectEveryMs: 15_000,
};

/** Nodes with state, a store in memory, and the controller's services on a unix socket. */
export class FakeCluster {
  readonly faults = new StoreFaults();
  readonly store = new MemoryStore({ faults: this.faults });
  readonly nodes = new Map<string, FakeNode>();
  readonly leases = new Map<string, 'live' | 'unknown' | 'expired'>();
  readonly agents = new NodeAgents({
    createReplica: TIMEOUT_MS,
    removeReplica: TIMEOUT_MS,
    listReplicas: TIMEOUT_MS,
    growVolume: TIMEOUT_MS,
    releaseVolume: TIMEOUT_MS,
    getAttachment: TIMEOUT_MS,
    refreshVolume: TIMEOUT_MS,
    dropReplica: TIMEOUT_MS,
    maintainVolume: TIMEOUT_MS,
    yieldVolume: TIMEOUT_MS,
  });
  nowMs = 0;
  readonly placing = new Mutex();
  readonly strays = new Strays();
  readonly rebuilder = this.newRebuilder();
  readonly volumes = this.newVolumes();
  #directory = '';
  #server: RunningServer | undefined;
  readonly #clients: { close(): void }[] = [];

  static async start(
    plan: Readonly<Record<string, NodePlan>>,
    options: { serve?: boolean } = {},
  ): Promise<FakeCluster> {
    const cluster = new FakeCluster();
    for (const [name, node] of Object.entries(plan)) await cluster.addNode(name, node);
    if (options.serve) await cluster.#serve();
    return cluster;
  }

  /** Another controller on the same store, as after a restart. */
  newVolumes(): Volumes {
    return new Volumes({
      store: this.store,
      liveness: { state: (name) => this.leases.get(name) ?? 'unknown' },
      agents: this.agents,
      limits: { overcommit: 1 },
      log: silentLog(),
      healing: this.rebuilder,
      placing: this.placing,
      strays: this.strays,
      now: () => this.nowMs,
    });
  }

  newRebuilder(): Rebuilder {
    return new Rebuilder({
      store: this.store,
      liveness: { state: (name) => this.leases.get(name) ?? 'unknown' },
      agents: this.agents,
      clock: { ...createNodeIo().clock, now: () => this.nowMs },
      log: silentLog(),
      limits: REBUILD_LIMITS,
      wallClock: () => '2026-01-01T00:00:00.000Z',
      placing: this.placing,
      strays: this.strays,
    });
  }

  node(name: string): FakeNode {
    return present(this.nodes.get(name), `node ${name}`);
  }

  async addNode(name: string, { disks = [100], zone = '' }: NodePlan): Promise<void> {
    const node = new FakeNode();
    await node.start();
    this.nodes.set(name, node);
    this.leases.set(name, 'live');
    await this.store.create('node', name, {
      schema: 1,
      name,
      nodeUid: `uid-${name}`,
      topology: { [TOPOLOGY_NODE]: name, ...(zone === '' ? {} : { [TOPOLOGY_ZONE]: zone }) },
      host: '127.0.0.1',
      agentPort: node.port,
      dataPorts: [7001, 7002],
      cordoned: false,
    });
    for (const [index, sizeGib] of disks.entries()) {
      const diskId = diskOf(name, index);
      await this.store.create('disk', diskId, {
        schema: 1,
        diskId,
        node: name,
        capacityBytes: sizeGib * GIB,
        usedBytes: 0,
        state: 'ready',
        reason: '',
      });
    }
  }

  /** The record, which must be there. */
  async record(id: string): Promise<VolumeRecord> {
    return present(await this.store.get('volume', volumeKey(id)), `record of ${id}`).record;
  }

  async change(id: string, change: Partial<VolumeRecord>): Promise<void> {
    const found = present(await this.store.get('volume', volumeKey(id)), `record of ${id}`);
    await this.store.update('volume', found.key, { ...found.record, ...change }, found.version);
  }

  async records(): Promise<VolumeRecord[]> {
    return (await this.store.list('volume')).items.map((item) => item.record);
  }

  /** Names of the nodes that hold a replica of the volume. */
  holders(id: string): string[] {
    return [...this.nodes].filter(([, node]) => node.replicas.has(id)).map(([name]) => name);
  }

  replicaCount(): number {
    return [...this.nodes.values()].reduce((sum, node) => sum + node.replicas.size, 0);
  }

  get controller(): ControllerClient {
    const { Controller } = (loadProto('csi.proto') as unknown as CsiProto).csi.v1;
    return this.#client(new Controller(this.#address, credentials.createInsecure()));
  }

  get identity(): IdentityClient {
    const { Identity } = (loadProto('csi.proto') as unknown as CsiProto).csi.v1;
    return this.#client(new Identity(this.#address, credentials.createInsecure()));
  }

  get admin(): AdminClient {
    const { Admin } = (loadProto('holdfast.proto') as unknown as HoldfastProto).holdfast.v1;
    return this.#client(new Admin(this.#address, credentials.createInsecure()));
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.close();
    this.agents.close();
    for (const node of this.nodes.values()) node.heal();
    await this.#server?.stop();
    await Promise.all([...this.nodes.values()].map((node) => node.stop()));
    if (this.#directory !== '') await rm(this.#directory, { recursive: true, force: true });
  }

  get #address(): string {
    return `unix:${join(this.#directory, 'csi.sock')}`;
  }

  #client<Client extends { close(): void }>(client: Client): Client {
    this.#clients.push(client);
    return client;
  }

  async #serve(): Promise<void> {
    this.#directory = await mkdtemp(join(tmpdir(), 'holdfast-control-'));
    const log = silentLog();
    this.#server = await serveUnix(
      join(this.#directory, 'csi.sock'),
      (server) => {
        addIdentityService(server, { log, ready: () => true });
        addControllerService(server, this.volumes, log);
        addAdminService(server, this.volumes, log);
      },
      log,
    );
  }
}

export function diskOf(node: string, index = 0): string {
  return `disk-${node}${index}`;
}

/** A call without a deadline that nobody cancels. */
export function patient(): CallContext {
  return { remainingMs: () => Infinity, signal: new AbortController().signal };
}

export function orderOf(name: string, change: Partial<VolumeOrder> = {}): VolumeOrder {
  return {
    name,
    range: { requiredBytes: GIB, limitBytes: Infinity },
    content: { kind: 'filesystem', type: 'ext4' },
    parameters: {
      replicas: 2,
      minInSync: 1,
      zones: 'spread',
      failover: 'auto',
      diskTemplate: '',
      mkfsOptions: [],
    },
    preferred: [],
    requisite: [],
    ...change,
  };
}

/** The error code a promise fails with. */
export async function codeFrom(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'ok',
    (error: unknown) => (error instanceof HoldfastError ? error.code : String(error)),
  );
}

/** A unary call that fails with a HoldfastError. */
export function ask<Request, Response>(
  client: Parameters<typeof invoke>[0],
  method: Parameters<typeof invoke<Request, Response>>[1],
  request: Request,
  timeoutMs = 20_000,
): Promise<Response> {
  return invoke(client, method, request, timeoutMs);
}
