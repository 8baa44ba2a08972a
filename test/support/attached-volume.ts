import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { adminClient } from '../../src/cli/service-client.js';
import { exportChecksum } from '../../src/demo/checksums.js';
import { Orchestrator, type ProvisionedVolume } from '../../src/dev/orchestrator.js';
import type { VolumeView__Output } from '../../src/generated/holdfast/v1/VolumeView.js';
import type { RunningDev } from './dev-cluster.js';
import { DeviceServer } from './node-processes.js';
import { Recorder } from './recorder.js';
import { VolumeClient } from './volume-client.js';

const CAPACITY_BYTES = 64 * 1024 ** 2;
const CALL_TIMEOUT_MS = 10_000;
const MOUNT_TIMEOUT_MS = 90_000;
const IN_SYNC_TIMEOUT_MS = 90_000;
const POLL = { timeout: 30_000, interval: 100 };

/** What a client uses: the writer's own endpoint, or the block device that the pod sees. */
export type Way = 'endpoint' | 'device';

/** A raw block volume of a dev cluster, and all that clients of it did. */
export class Scene {
  readonly recorder = new Recorder();
  readonly #clients: VolumeClient[] = [];
  readonly #servers: DeviceServer[] = [];

  private constructor(
    readonly dev: RunningDev,
    readonly kubernetes: Orchestrator,
    readonly volume: ProvisionedVolume,
    /** The nodes with a replica. */
    readonly replicas: readonly string[],
  ) {}

  static async create(dev: RunningDev, name: string, replicas: number): Promise<Scene> {
    const kubernetes = new Orchestrator(await dev.description());
    const parameters = { replicas: String(replicas) };
    const volume = await kubernetes.createVolume({ name, capacityBytes: CAPACITY_BYTES, parameters });
    const view = await kubernetes.view(volume);
    const nodes = view.replicas.map(({ node }) => node);
    return new Scene(dev, kubernetes, volume, nodes);
  }

  /**
   * Attaches the volume to a node and begins to use it. `lossAllowed`: every in-sync replica had crashed, so unflushed
   * writes may be lost.
   */
  async attach(node: string, options: { way?: Way; lossAllowed?: boolean } = {}): Promise<VolumeClient> {
    const path = await this.kubernetes.mountFor(node, this.volume, AbortSignal.timeout(MOUNT_TIMEOUT_MS));
    const attachment = this.recorder.attached(options);
    const uri = options.way === 'device' ? await this.#serve(path) : await this.#uri();
    const client = await VolumeClient.open(this.recorder, attachment, uri, this.volume.capacityBytes);
    this.#clients.push(client);
    return client.start();
  }

  /** The pod's end: its client stops, and the volume is released. */
  async detach(node: string, client: VolumeClient): Promise<void> {
    await client.stop();
    await client.close();
    await this.#endServers();
    await this.kubernetes.unmountFor(node, this.volume);
  }

  /** Waits until so many further changes of a client were acknowledged. */
  async untilAcknowledged(client: VolumeClient, further: number): Promise<void> {
    const wanted = client.acknowledged + further;
    await expect.poll(() => client.acknowledged, POLL).toBeGreaterThanOrEqual(wanted);
  }

  async untilInSync(nodes: readonly string[]): Promise<void> {
    const wanted = [...nodes].sort();
    await expect.poll(() => this.inSync(), { ...POLL, timeout: IN_SYNC_TIMEOUT_MS }).toEqual(wanted);
  }

  async inSync(): Promise<string[]> {
    const { replicas } = await this.view();
    return replicas.flatMap(({ node, in_sync: inSync }) => (inSync ? [node] : [])).sort();
  }

  view(): Promise<VolumeView__Output> {
    return this.kubernetes.view(this.volume);
  }

  /** What happened to the volume, as a person is told, the newest first. */
  async decisions(): Promise<string[]> {
    const admin = adminClient((await this.dev.description()).controllerSocket);
    try {
      const { happened } = await admin.call('ExplainVolume', { volume: this.volume.id }, CALL_TIMEOUT_MS);
      return happened.map(({ what }) => what);
    } finally {
      admin.close();
    }
  }

  /** Id of the process of a node's plugin. */
  async plugin(node: string): Promise<number> {
    const { nodes } = await this.dev.description();
    const pid = nodes.find(({ name }) => name === node)?.pid ?? 0;
    if (pid === 0) throw new Error(`the plugin of node ${node} does not run`);
    return pid;
  }

  /**
   * After the last detach: everything that was read is legal, and all replicas hold the same bytes (I5). `told`: what
   * had happened, in words.
   */
  async judge(told?: string): Promise<void> {
    expect(await this.recorder.violations(), told).toEqual([]);
    const { replicas } = await this.view();
    expect(replicas.filter(({ in_sync: inSync }) => !inSync)).toEqual([]);
    const sums = await Promise.all(
      replicas.map(({ node, nbd_uri: uri }) => exportChecksum(this.kubernetes.node(node).networkNamespace, uri)),
    );
    expect(new Set(sums.map(({ sha256 }) => sha256)).size, told).toBe(1);
  }

  /** Ends what the test runs beside the cluster. */
  async end(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    await this.#endServers();
    this.kubernetes.close();
  }

  async #serve(device: string): Promise<string> {
    const server = await DeviceServer.start(device);
    this.#servers.push(server);
    return server.uri;
  }

  async #endServers(): Promise<void> {
    await Promise.all(this.#servers.splice(0).map((server) => server.end()));
  }

  async #uri(): Promise<string> {
    for (let tries = 0; ; tries++) {
      const { attachment } = await this.view();
      if (attachment !== null) return attachment.nbd_uri;
      if (tries > 100) throw new Error('the controller does not tell where the volume is attached');
      await sleep(100);
    }
  }
}
