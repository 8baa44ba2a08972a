import { HoldfastError } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import type { RebuildAgent } from '../../../src/control/rebuild-agents.js';
import { Rebuilder } from '../../../src/control/rebuilder.js';
import type { Clock } from '../../../src/io/io.js';
import { volumeKey } from '../../../src/model/ids.js';
import type { NodeRecord, ReplicaRecord, VolumeRecord } from '../../../src/model/records.js';
import type { ReplicaSummary } from '../../../src/replica/replicas.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import type { RecordStore } from '../../../src/store/store.js';
import { mayRetire } from '../../../src/writer/rules.js';
import { GIB, REBUILD_LIMITS } from './fake-cluster.js';
import { blockVolume } from '../../support/volume-record.js';

export const ROUND_MS = 3_000;
const LEASE_MS = 10_000;

interface WorldNode {
  readonly record: NodeRecord;
  alive: boolean;
  /** When it died; undefined while it lives. */
  diedAt: number | undefined;
  readonly replicas: Map<string, { disk: string; crashMark: boolean; openRegions: number; damagedBlocks: number }>;
  /** Writers without a device here, and what they are to drop. */
  readonly maintenance: Map<string, readonly string[]>;
}

/**
 * A cluster whose nodes are only what the rebuilder can see of them: replicas, leases, and writers that follow the rules
 * at once. Time passes by `round`; between two rounds each writer drops what is dead (R4) and finishes one resync (R7),
 * unless `copying` is off.
 */
export class RebuildWorld {
  readonly store = new MemoryStore({ storeId: 'world' });
  /** So many changes of the rebuilder come through without its hearing of it. */
  answersLost = 0;
  readonly nodes = new Map<string, WorldNode>();
  nowMs = 0;
  copying = true;
  /** No lease can be seen: nothing is known of any node. */
  unsure = false;
  /** How often writers were told to read their records anew. */
  refreshed = 0;
  #sessions = 0;
  readonly rebuilder: Rebuilder;
  /** The most replicas that were behind with a writer at work, from or to one node, at any time. */
  mostCopying = 0;

  constructor(limits: Partial<typeof REBUILD_LIMITS> = {}) {
    const never = (): never => {
      throw new Error('the rebuilder keeps no timers');
    };
    const clock: Clock = { now: () => this.nowMs, timer: never, sleep: never };
    this.rebuilder = new Rebuilder({
      store: this.#rebuildersStore(),
      liveness: { state: (name) => this.#lease(name) },
      agents: { of: ({ name }) => this.#agent(name) },
      clock,
      log: silentLog(),
      limits: { ...REBUILD_LIMITS, ...limits },
      wallClock: () => '2026-01-01T00:00:00.000Z',
    });
  }

  async addNode(name: string, options: { zone?: string; gib?: number } = {}): Promise<void> {
    const record: NodeRecord = {
      schema: 1,
      name,
      nodeUid: `uid-${name}`,
      topology: options.zone === undefined ? {} : { 'topology.kubernetes.io/zone': options.zone },
      host: name,
      agentPort: 1,
      dataPorts: [2],
      cordoned: false,
    };
    const node = { record, alive: true, diedAt: undefined, replicas: new Map(), maintenance: new Map() };
    this.nodes.set(name, node);
    await this.store.create('node', name, record);
    await this.store.create('disk', `disk-${name}`, {
      schema: 1,
      diskId: `disk-${name}`,
      node: name,
      capacityBytes: (options.gib ?? 1_000) * GIB,
      usedBytes: 0,
      state: 'ready',
      reason: '',
    });
  }

  /** A ready volume with an in-sync replica on each of the nodes. */
  async addVolume(number: number, nodes: readonly string[], change: Partial<VolumeRecord> = {}): Promise<string> {
    const id = `vol-${String(number).padStart(24, '0')}00000000`;
    for (const name of nodes) this.#hold(name, id);
    await this.store.create('volume', volumeKey(id), blockVolume(id, GIB, nodes, change));
    return id;
  }

  node(name: string): WorldNode {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`no node ${name}`);
    return node;
  }

  die(name: string): void {
    const node = this.node(name);
    if (!node.alive) return;
    node.alive = false;
    node.diedAt = this.nowMs;
    node.maintenance.clear();
  }

  /** It comes back, and leaves the records of attachments that went down with it. */
  async comeBack(name: string): Promise<void> {
    const node = this.node(name);
    node.alive = true;
    node.diedAt = undefined;
    for (const record of await this.records()) {
      if (record.writer?.node === name)
        await this.change(record.id, (now) => ({ ...now, epoch: now.epoch + 1, writer: null }));
    }
  }

  async failDisk(name: string): Promise<void> {
    this.node(name).replicas.clear();
    await this.#disk(name, 'failed');
  }

  async mendDisk(name: string): Promise<void> {
    await this.#disk(name, 'ready');
  }

  async records(): Promise<VolumeRecord[]> {
    return (await this.store.list('volume')).items.map((item) => item.record);
  }

  async record(id: string): Promise<VolumeRecord> {
    const found = await this.store.get('volume', volumeKey(id));
    if (!found) throw new Error(`no record of ${id}`);
    return found.record;
  }

  /** `node*` where it is in sync, sorted. */
  async replicas(id: string): Promise<string[]> {
    return (await this.record(id)).replicas.map(({ node, inSync }) => `${node}${inSync ? '*' : ''}`).toSorted();
  }

  async change(id: string, change: (record: VolumeRecord) => VolumeRecord): Promise<void> {
    const found = await this.store.get('volume', volumeKey(id));
    if (found) await this.store.update('volume', found.key, change(found.record), found.version);
  }

  async setReplicas(id: string, replicas: number): Promise<void> {
    await this.change(id, (record) => ({ ...record, parameters: { ...record.parameters, replicas } }));
  }

  async attach(id: string, node: string): Promise<void> {
    this.node(node).maintenance.delete(id);
    for (const other of this.nodes.values()) other.maintenance.delete(id);
    await this.#takeOver(id, node, false);
  }

  async detach(id: string): Promise<void> {
    await this.change(id, (record) => ({ ...record, epoch: record.epoch + 1, writer: null }));
  }

  /** A round of the rebuilder, and what writers do until the next. */
  async round(count = 1): Promise<void> {
    for (let i = 0; i < count; i++) {
      this.nowMs += ROUND_MS;
      await this.rebuilder.round().catch(() => undefined);
      await this.#countCopying();
      await this.#writersWork();
    }
  }

  /** Rounds for so long. */
  async pass(milliseconds: number): Promise<void> {
    await this.round(Math.ceil(milliseconds / ROUND_MS));
  }

  /** As the rebuilder sees it. */
  #rebuildersStore(): RecordStore {
    const { store } = this;
    return {
      get: (kind, key) => store.get(kind, key),
      list: (kind) => store.list(kind),
      create: (kind, key, record) => store.create(kind, key, record),
      update: async (kind, key, record, version) => {
        const answer = await store.update(kind, key, record, version);
        if (this.answersLost === 0) return answer;
        this.answersLost--;
        throw new HoldfastError('unavailable', 'no answer');
      },
      delete: (kind, key, version) => store.delete(kind, key, version),
      watch: (kind, revision, signal) => store.watch(kind, revision, signal),
    };
  }

  #lease(name: string): 'live' | 'expired' | 'unknown' {
    const node = this.nodes.get(name);
    if (node === undefined || this.unsure) return 'unknown';
    return node.diedAt !== undefined && this.nowMs - node.diedAt >= LEASE_MS ? 'expired' : 'live';
  }

  #agent(name: string): RebuildAgent {
    const node = this.node(name);
    const answer = <T>(work: () => T | Promise<T>): Promise<T> =>
      node.alive
        ? Promise.resolve().then(work)
        : Promise.reject(new HoldfastError('unavailable', `${name} does not answer`));
    return {
      createReplica: (volume, disk) => answer(() => this.#make(name, volume, disk)),
      removeReplica: (volume) => answer(() => this.#remove(name, volume)),
      listReplicas: () => answer(() => [...node.replicas].map(([volume, told]) => summaryOf(volume, told))),
      refreshVolume: () =>
        answer(() => {
          this.refreshed++;
        }),
      dropReplica: (volume, replica) => answer(() => this.#retire(name, volume, replica)),
      maintainVolume: (volume, drop) =>
        answer(async () => {
          if ((await this.record(volume)).writer?.node !== name) await this.#takeOver(volume, name, true);
          node.maintenance.set(volume, drop);
        }),
    };
  }

  #hold(name: string, volume: string): void {
    const told = { disk: `disk-${name}`, crashMark: false, openRegions: 0, damagedBlocks: 0 };
    this.node(name).replicas.set(volume, told);
  }

  async #make(name: string, volume: string, disk: string): Promise<void> {
    const record = (await this.store.get('disk', disk))?.record;
    if (record?.state !== 'ready') throw new HoldfastError('io-error', `disk ${disk} has failed`);
    if (!this.node(name).replicas.has(volume)) this.#hold(name, volume);
  }

  /** As removeUnnamed: what the record names stays. */
  async #remove(name: string, volume: string): Promise<void> {
    const record = await this.record(volume);
    if (record.replicas.some(({ node }) => node === name)) {
      throw new HoldfastError('failed-precondition', 'the record names it');
    }
    this.node(name).replicas.delete(volume);
  }

  async #retire(writer: string, id: string, replica: string): Promise<void> {
    await this.change(id, (record) => {
      if (record.writer?.node !== writer) throw new HoldfastError('not-found', 'no writer here');
      const inSync = new Set(record.replicas.filter((one) => one.inSync).map((one) => one.node));
      if (!mayRetire(replica, inSync, new Set(), record.parameters.minInSync)) {
        throw new HoldfastError('failed-precondition', 'it is needed');
      }
      const replicas = record.replicas.filter((one) => one.node !== replica);
      return { ...record, epoch: record.epoch + 1, replicas };
    });
  }

  /** R5: in-sync replicas that can't be reached leave the set; without one that can there is no take-over. */
  async #takeOver(id: string, node: string, maintenance: boolean): Promise<void> {
    await this.change(id, (record) => {
      const session = String(++this.#sessions).padStart(32, '0');
      const reached = record.replicas.filter((one) => one.inSync && this.#serves(id, one));
      if (reached.length === 0) throw new HoldfastError('unavailable', 'no in-sync replica can be reached');
      const replicas = record.replicas.map((one) => ({ ...one, inSync: reached.includes(one) }));
      const writer = { node, session, ...(maintenance && { maintenance }) };
      return { ...record, epoch: record.epoch + 1, writer, replicas };
    });
  }

  #serves(id: string, { node }: ReplicaRecord): boolean {
    const holder = this.nodes.get(node);
    return holder !== undefined && holder.alive && holder.replicas.has(id);
  }

  async #writersWork(): Promise<void> {
    for (const { id, writer } of await this.records()) {
      const node = writer === null ? undefined : this.nodes.get(writer.node);
      if (writer === null || node?.alive !== true) continue;
      await this.change(id, (record) => this.#serveOnce(record));
      if (writer.maintenance === true) await this.#maintainOnce(id, node);
    }
  }

  /** R4 and R7 in one step. */
  #serveOnce(record: VolumeRecord): VolumeRecord {
    const well = record.replicas.filter((one) => one.inSync && this.#serves(record.id, one));
    if (well.length === 0) return record;
    const behind = record.replicas.find((one) => !one.inSync && this.#serves(record.id, one));
    const inSync = new Set([...well, ...(this.copying && behind ? [behind] : [])]);
    const replicas = record.replicas.map((one) => ({ ...one, inSync: inSync.has(one) }));
    const changed = replicas.some((one, index) => one.inSync !== record.replicas[index]?.inSync);
    return changed ? { ...record, epoch: record.epoch + 1, replicas } : record;
  }

  async #maintainOnce(id: string, node: WorldNode): Promise<void> {
    const record = await this.record(id);
    const left = record.replicas.some((one) => !one.inSync && this.#serves(id, one));
    if (left) return;
    for (const drop of node.maintenance.get(id) ?? []) {
      await this.#retire(node.record.name, id, drop).catch(() => undefined);
    }
    for (const { node: name, inSync } of record.replicas) {
      const told = inSync ? this.nodes.get(name)?.replicas.get(id) : undefined;
      if (told) Object.assign(told, { crashMark: false, openRegions: 0, damagedBlocks: 0 });
    }
    node.maintenance.delete(id);
    await this.detach(id);
  }

  async #countCopying(): Promise<void> {
    const loads = new Map<string, number>();
    for (const record of await this.records()) {
      const { writer, replicas } = record;
      if (writer === null || this.nodes.get(writer.node)?.alive !== true) continue;
      for (const one of replicas.filter((replica) => !replica.inSync && this.#serves(record.id, replica))) {
        loads.set(one.node, (loads.get(one.node) ?? 0) + 1);
      }
    }
    this.mostCopying = Math.max(this.mostCopying, ...loads.values());
  }

  async #disk(name: string, state: 'ready' | 'failed'): Promise<void> {
    const found = await this.store.get('disk', `disk-${name}`);
    if (found) await this.store.update('disk', found.key, { ...found.record, state }, found.version);
  }
}

function summaryOf(
  volume: string,
  told: { disk: string; crashMark: boolean; openRegions: number; damagedBlocks: number },
): ReplicaSummary {
  return { volume, capacityBytes: GIB, epoch: 1, writerHeard: false, ...told };
}
