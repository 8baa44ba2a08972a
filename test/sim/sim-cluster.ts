import { HoldfastError, messageOf } from '../../src/base/errors.js';
import { volumeKey, type VolumeId } from '../../src/model/ids.js';
import { SCHEMA_VERSION, type NodeRecord, type Versioned, type VolumeRecord } from '../../src/model/records.js';
import { CLUSTER_ID } from './plugin.js';
import { Prng } from './prng.js';
import type { Place } from './rot.js';
import type { Scenario, VolumePlan } from './scenario.js';
import { Schedule } from './schedule.js';
import type { Tell } from './sim-log.js';
import { SimNetwork } from './sim-network.js';
import { SimController } from './sim-controller.js';
import type { SimProcess } from './sim-machine.js';
import { SimNode } from './sim-node.js';
import { SimStore } from './sim-store.js';
import { blockVolume } from '../support/volume-record.js';

const RESTART_MS = 2_000;
const PAGE_BYTES = 4096;

/** A whole cluster in virtual time. */
export class SimCluster {
  readonly schedule = new Schedule();
  readonly random: Prng;
  readonly network: SimNetwork;
  readonly store: SimStore;
  readonly controller: SimController;
  readonly nodes = new Map<string, SimNode>();
  readonly volumes: VolumeId[] = [];
  /** Sessions that left the record in order. */
  readonly released = new Set<string>();
  /** Volumes of which every in-sync replica had crashed at some time since the last attachment began. */
  readonly lossSeen = new Set<VolumeId>();
  /** When the record of a volume got the writer that it has. */
  readonly claimedAt = new Map<VolumeId, number>();
  /** Blocks in which a bit was flipped, by name; see rot.ts. */
  readonly rotten = new Map<string, Place>();
  /** What went wrong, for the verdict. */
  readonly problems: string[] = [];
  readonly #lags = new Map<string, number>();

  constructor(
    readonly scenario: Scenario,
    readonly tell: Tell,
  ) {
    this.random = new Prng(scenario.seed ^ 0x5eed);
    this.network = new SimNetwork(this.schedule, this.random.fork());
    this.store = new SimStore(this.schedule, this.network, this.random.fork());
    this.controller = new SimController(this);
    for (const name of scenario.nodes) {
      const node = new SimNode(this, name);
      node.machine.clockRate = 1 + this.random.between(-1, 1) * scenario.drift;
      this.nodes.set(name, node);
      this.#lags.set(name, this.random.pick([0, 0, 300, 2_000]));
    }
    this.store.onVolume((before, now) => this.#onVolume(before, now));
  }

  node(name: string): SimNode {
    const node = this.nodes.get(name);
    if (!node) throw new Error(`no node ${name}`);
    return node;
  }

  /** The record of `other` as the cache on `reader` shows it. */
  addressSeen(reader: string, other: string): Versioned<NodeRecord> | undefined {
    return this.store.nodeSeen(other, this.#lags.get(reader) ?? 0);
  }

  /** A call from one machine to the plugin of a node, as it would travel. Without an answer in time: `unavailable`. */
  rpc<T>(
    from: { readonly process: SimProcess; readonly host: string },
    to: SimNode,
    limitMs: number,
    work: () => Promise<T>,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const lost = (): void => reject(new HoldfastError('unavailable', `${to.name} does not answer`));
      const cancel = from.process.io.clock.timer(limitMs, lost);
      const answer = (act: () => void): void => {
        if (this.network.isCut(to.name, from.host)) return;
        this.schedule.after(this.random.between(0.3, 2), () =>
          from.process.deliver(() => {
            cancel();
            act();
          }),
        );
      };
      this.schedule.after(this.random.between(0.3, 2), () => {
        if (this.network.isCut(from.host, to.name)) return;
        to.plugin.call(work).then(
          (result) => answer(() => resolve(result)),
          // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors
          (error: unknown) => answer(() => reject(error)),
        );
      });
    });
  }

  /** A plugin that can't start is started again, as the kubelet does. */
  startFailed(node: SimNode, error: unknown): void {
    this.tell?.(node.name, `the plugin can't start: ${messageOf(error)}`);
    node.kill();
    this.schedule.after(RESTART_MS, () => node.start());
  }

  problem(text: string): void {
    this.tell?.('JUDGE', text);
    this.problems.push(text);
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.schedule.after(ms, resolve);
    });
  }

  /** The outcome of `work`, or `deadline-exceeded`. */
  within<T>(ms: number, work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = this.schedule.after(ms, () => reject(new HoldfastError('deadline-exceeded', `after ${ms} ms`)));
      work.then(resolve, reject).finally(cancel);
    });
  }

  /** Starts the plugins and makes the volumes; all is healthy when it resolves. */
  async setUp(): Promise<void> {
    for (const [index] of this.scenario.volumes.entries()) this.volumes.push(volumeIdOf(index));
    await this.store.direct.create('cluster', 'cluster', { schema: SCHEMA_VERSION, clusterId: CLUSTER_ID });
    this.controller.begin();
    for (const node of this.nodes.values()) node.begin();
    while ([...this.nodes.values()].some((node) => !node.plugin.ready)) await this.sleep(100);
    for (const [index, plan] of this.scenario.volumes.entries()) await this.#makeVolume(volumeIdOf(index), plan);
  }

  async #makeVolume(volume: VolumeId, plan: VolumePlan): Promise<void> {
    const capacityBytes = plan.blocks * PAGE_BYTES;
    for (const name of plan.replicas) {
      const { plugin } = this.node(name);
      await plugin.call(() => plugin.path.createReplica(volume, this.node(name).diskId, capacityBytes));
    }
    const { name, minInSync } = plan;
    const replicas = plan.replicas.map((node) => ({ node, disk: this.node(node).diskId, inSync: true }));
    const record = blockVolume(volume, capacityBytes, plan.replicas, { name, replicas, parameters: { minInSync } });
    await this.store.direct.create('volume', volumeKey(volume), record);
  }

  /** A replica that was brought into the set holds everything again. */
  #onVolume(before: VolumeRecord | undefined, now: VolumeRecord): void {
    if (this.tell) this.tell('store', tellRecord(now));
    for (const { node, inSync } of now.replicas) {
      const was = before?.replicas.find((replica) => replica.node === node)?.inSync ?? false;
      if (inSync && !was) this.node(node).mayHaveLost.delete(now.id);
    }
    if (now.writer && now.writer.session !== before?.writer?.session) this.claimedAt.set(now.id, this.schedule.now);
    if (before?.writer && now.writer === null && now.quiet) this.released.add(before.writer.session);
    const inSync = now.replicas.filter((replica) => replica.inSync);
    // Whoever goes on from these, a pod or a maintenance writer, may go on without what was not flushed.
    if (inSync.every(({ node }) => this.node(node).mayLose(now.id))) this.lossSeen.add(now.id);
    if (before && now.epoch < before.epoch) this.problem(`the epoch of ${now.name} went back`);
    if (before?.replicas.some((one) => one.inSync) && !now.replicas.some((one) => one.inSync)) {
      this.problem(`R4: the last in-sync replica of ${now.name} was dropped`);
    }
  }
}

export function volumeIdOf(index: number): VolumeId {
  return `vol-${String(index).repeat(32)}`;
}

function tellRecord({ name, epoch, writer, replicas, quiet }: VolumeRecord): string {
  const sets = replicas.map((replica) => `${replica.node}${replica.inSync ? '' : ' (not in sync)'}`).join(', ');
  const holder = writer ? `${writer.node}/${writer.session.slice(0, 4)}` : 'nobody';
  return `${name}: epoch ${epoch}, writer ${holder}, replicas ${sets}${quiet ? ', quiet' : ''}`;
}
