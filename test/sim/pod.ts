import { messageOf } from '../../src/base/errors.js';
import { volumeKey, type VolumeId } from '../../src/model/ids.js';
import type { History } from '../history/history.js';
import { Client } from './client.js';
import type { Prng } from './prng.js';
import type { VolumePlan } from './scenario.js';
import type { SimCluster } from './sim-cluster.js';
import type { SimDevice } from './sim-device.js';
import type { SimNode } from './sim-node.js';
import { STORE_HOST } from './sim-store.js';

const PAGE_BYTES = 4096;
const STAGE_LIMIT_MS = 40_000;
const LOOK_MS = 300;

/** One volume's pod, and the orchestrator that moves it: in order, or by force while the old one may live on. */
export class Pod {
  readonly history: History = { attachments: [], operations: [] };
  client: Client | undefined;
  #at: SimNode | undefined;
  /** One that the pod comes back to is still the same attachment. */
  readonly #attachments = new Map<SimDevice, number>();
  #value = 0;
  #settling = false;
  #retired = false;
  #over = false;
  #moving = false;
  /** Where the scheduler has put it. */
  #bound: SimNode | undefined;
  #blocks: number;

  constructor(
    private readonly cluster: SimCluster,
    readonly volume: VolumeId,
    readonly plan: VolumePlan,
    private readonly random: Prng,
  ) {
    this.#blocks = plan.blocks;
  }

  get node(): SimNode | undefined {
    return this.#at;
  }

  /** It has gone, or is about to. */
  get retired(): boolean {
    return this.#retired;
  }

  get serving(): boolean {
    return this.client !== undefined && !this.client.ended && this.client.device.process.alive;
  }

  /** It is about to run somewhere else. */
  get moving(): boolean {
    return this.#moving;
  }

  /** From now on it stays where it is, once it is somewhere. */
  settle(): void {
    this.#settling = true;
    this.#retired = false;
  }

  /** It goes, and its volume is left to itself. */
  retire(): void {
    this.#settling = true;
    this.#retired = true;
    const before = this.#bound ?? this.#at;
    this.#bound = undefined;
    if (before) void this.#clear(before);
  }

  /** It does nothing more of its own accord. */
  end(): void {
    this.#over = true;
  }

  /** Until `end`. */
  async run(): Promise<void> {
    void this.#resize();
    while (!this.#over) {
      while (this.#retired) await this.cluster.sleep(LOOK_MS);
      if (!this.serving) await this.#place();
      const evicted = await this.#stay(this.#drawMove());
      if (!this.serving || this.#settling) continue;
      if (evicted) {
        await this.#place();
        continue;
      }
      if (this.plan.grows && this.random.chance(0.3)) await this.#grow();
      this.#bound = undefined;
      if (this.random.chance(0.6)) await this.#leave();
      // By force: the old client goes on until its device tells it not to.
      else await this.#place();
    }
  }

  /** Until it is to move, or has nothing to stay for. True: its node has not been heard of for too long. */
  async #stay(moveAt: number): Promise<boolean> {
    const { schedule } = this.cluster;
    let heardAt = schedule.now;
    while (this.serving && schedule.now < moveAt) {
      await this.cluster.sleep(LOOK_MS);
      if (!this.#at || !this.#isLost(this.#at)) heardAt = schedule.now;
      if (schedule.now - heardAt <= this.plan.evictAfterMs) continue;
      this.cluster.tell?.('pod', `${this.plan.name} is started elsewhere: ${this.#at?.name ?? ''} is not heard of`);
      return true;
    }
    return false;
  }

  /** The orchestrator does not hear of the node, nor the node of it. */
  #isLost({ name, down, plugin }: SimNode): boolean {
    const { network } = this.cluster;
    return down || plugin.process.paused || network.isCut(name, STORE_HOST) || network.isCut(STORE_HOST, name);
  }

  /** For one whose attachment has ended. */
  async placeAgain(): Promise<void> {
    this.#over = false;
    await this.#place();
    this.#over = true;
  }

  /** The orderly end of its attachment. */
  async leave(): Promise<void> {
    const { client } = this;
    if (!client || !this.#at) return;
    const { plugin } = this.#at;
    const { attachment } = client;
    await client.stop();
    const startedAt = this.cluster.schedule.now;
    const writer = this.cluster.store.volume(volumeKey(this.volume))?.writer;
    await plugin.call(() => plugin.unstage(this.volume));
    if (this.client !== client) return;
    this.client = undefined;
    if (writer?.node !== this.#at.name || writer.maintenance || !this.cluster.released.has(writer.session)) return;
    // R2: an orderly release flushes everything.
    this.history.operations.push({
      kind: 'flush',
      attachment,
      firstBlock: 0,
      blockCount: 0,
      value: 0,
      fua: false,
      startedAt,
      endedAt: this.cluster.schedule.now,
      outcome: 'done',
      values: [],
    });
  }

  async #leave(): Promise<void> {
    try {
      await this.cluster.within(STAGE_LIMIT_MS, this.leave());
    } catch (error) {
      this.cluster.tell?.('pod', `does not leave in order: ${messageOf(error)}`);
    }
    const untilMs = this.cluster.schedule.now + this.random.between(0, this.plan.absentMs);
    while (this.cluster.schedule.now < untilMs && !this.#settling) await this.cluster.sleep(LOOK_MS);
    await this.#place();
  }

  async #place(): Promise<void> {
    this.#moving = true;
    await this.#placeSomewhere();
    this.#moving = false;
  }

  async #placeSomewhere(): Promise<void> {
    const { cluster } = this;
    while (!this.#retired && !this.#over) {
      this.#bind();
      if (this.#bound && (await this.#tryAt(this.#bound))) return;
      await cluster.sleep(this.random.between(100, 2_000));
      if (this.#at && this.serving && !this.#settling) return;
    }
  }

  /** The kubelet of a node that the pod has left takes away what it left there, now or later, until that is done. */
  async #clear(node: SimNode): Promise<void> {
    const { cluster, volume } = this;
    do await cluster.sleep(this.random.between(0, 20_000));
    while (this.#isLost(node) && this.#bound !== node);
    while (this.#bound !== node) {
      const { plugin } = node;
      const done = await cluster
        .within(
          STAGE_LIMIT_MS,
          plugin.call(() => plugin.unstage(volume)),
        )
        .then(
          () => true,
          () => false,
        );
      if (done) return;
      await cluster.sleep(1_000);
    }
  }

  /** A pod stays on its node while that is heard of; at last it stays whatever happens. */
  #bind(): void {
    const stays = this.#bound && !this.#isLost(this.#bound) && (this.#settling || this.random.chance(0.8));
    if (stays) return;
    const up = [...this.cluster.nodes.values()].filter((node) => !this.#isLost(node));
    const before = this.#bound ?? this.#at;
    this.#bound = up.length > 0 ? this.random.pick(up) : undefined;
    if (before && before !== this.#bound) void this.#clear(before);
  }

  async #tryAt(node: SimNode): Promise<boolean> {
    const { cluster, volume } = this;
    const { plugin } = node;
    try {
      const device = await cluster.within(
        STAGE_LIMIT_MS,
        plugin.call(() => plugin.stage(volume)),
      );
      if (!device.process.alive) return false;
      if (device !== this.client?.device) this.#begin(node, device);
      return true;
    } catch (error) {
      cluster.tell?.('pod', `${volume.slice(-1)} can't start on ${node.name}: ${messageOf(error)}`);
      return false;
    }
  }

  #begin(node: SimNode, device: SimDevice): void {
    const { cluster, history } = this;
    const attachment = this.#attachments.get(device) ?? this.#newAttachment(device);
    cluster.tell?.('pod', `${this.volume.slice(-1)} runs on ${node.name}, attachment ${attachment}`);
    this.#at = node;
    this.client = new Client(
      cluster,
      this.plan,
      this.random.fork(),
      device,
      history,
      attachment,
      () => ++this.#value,
      () => Math.min(this.#blocks, device.stage.sizeBytes / PAGE_BYTES),
    );
    this.client.start();
  }

  #newAttachment(device: SimDevice): number {
    const { cluster, history } = this;
    const lossAllowed = this.#lossAllowed();
    const attachment = history.attachments.push({ servesFrom: cluster.schedule.now, lossAllowed }) - 1;
    if (lossAllowed) cluster.tell?.('pod', `${this.volume.slice(-1)} may have lost what was not flushed`);
    this.#attachments.set(device, attachment);
    return attachment;
  }

  /**
   * I2, R10: every in-sync replica that was left had crashed. Those that it took over from are what the volume holds
   * from now on.
   */
  #lossAllowed(): boolean {
    const { cluster, volume } = this;
    const record = cluster.store.volume(volumeKey(volume));
    const inSync = record?.replicas.filter((replica) => replica.inSync).map(({ node }) => cluster.node(node)) ?? [];
    const allowed = inSync.every((node) => node.mayLose(volume)) || cluster.lossSeen.has(volume);
    cluster.lossSeen.delete(volume);
    for (const node of inSync) node.heldEverything(volume, cluster.claimedAt.get(volume) ?? 0);
    return allowed;
  }

  #drawMove(): number {
    const { moveEveryMs } = this.plan;
    if (this.#settling || moveEveryMs === Infinity) return Infinity;
    return this.cluster.schedule.now - Math.log(1 - this.random.fraction()) * moveEveryMs;
  }

  /** `holdfast volume set-replicas`, now and then. */
  async #resize(): Promise<void> {
    const { cluster, plan } = this;
    const key = volumeKey(this.volume);
    if (plan.resizeEveryMs === Infinity) return;
    for (;;) {
      await cluster.sleep(-Math.log(1 - this.random.fraction()) * plan.resizeEveryMs);
      if (this.#settling) return;
      const most = Math.min(3, cluster.nodes.size);
      const replicas = plan.minInSync + this.random.below(most - plan.minInSync + 1);
      const known = await cluster.store.direct.get('volume', key);
      if (!known) return;
      const record = { ...known.record, parameters: { ...known.record.parameters, replicas } };
      await cluster.store.direct.update('volume', key, record, known.version).catch(() => undefined);
      cluster.tell?.('pod', `${plan.name} is to have ${replicas} replicas`);
    }
  }

  /** As the controller does: the record first, then the attachment takes it on. */
  async #grow(): Promise<void> {
    const { store } = this.cluster;
    const blocks = this.#blocks + 1 + this.random.below(8);
    for (;;) {
      const known = await store.direct.get('volume', volumeKey(this.volume));
      if (!known) return;
      const record = { ...known.record, capacityBytes: blocks * PAGE_BYTES };
      const done = await store.direct.update('volume', volumeKey(this.volume), record, known.version).then(
        () => true,
        () => false,
      );
      if (done) break;
    }
    const { client } = this;
    const plugin = this.#at?.plugin;
    if (!client || !plugin) return;
    try {
      const sizeBytes = await this.cluster.within(
        STAGE_LIMIT_MS,
        plugin.call(() => plugin.path.grow(this.volume)),
      );
      client.device.stage.sizeBytes = sizeBytes;
      this.#blocks = Math.max(this.#blocks, sizeBytes / PAGE_BYTES);
    } catch (error) {
      this.cluster.tell?.('pod', `does not grow: ${messageOf(error)}`);
    }
  }
}
