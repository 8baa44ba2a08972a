import { createHash } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { present } from '../base/assert.js';
import { codeOf, HoldfastError, messageOf, type ErrorCode } from '../base/errors.js';
import {
  adminClient,
  controllerClient,
  nodeClient,
  type AdminClient,
  type ControllerClient,
  type NodeClient,
} from '../cli/service-client.js';
import { DRIVER_NAME, TOPOLOGY_NODE } from '../config.js';
import type { VolumeCapability } from '../generated/csi/v1/VolumeCapability.js';
import type { VolumeView__Output } from '../generated/holdfast/v1/VolumeView.js';
import type { DevDescription, DevNodeDescription } from './description.js';

/** A volume as the provisioner got it. */
export interface ProvisionedVolume {
  readonly id: string;
  readonly name: string;
  readonly capacityBytes: number;
  readonly capability: VolumeCapability;
  readonly context: Readonly<Record<string, string>>;
}

export interface VolumeWish {
  readonly name: string;
  readonly capacityBytes: number;
  /** Absent: a raw block volume. */
  readonly filesystem?: 'ext4' | 'xfs';
  readonly parameters?: Readonly<Record<string, string>>;
  /** The node it will be used on first. */
  readonly near?: string;
}

/** What the kubelet gives a call: its csiTimeout. */
const CALL_TIMEOUT_MS = 120_000;
/** How the kubelet spaces its tries (exponentialbackoff in its nested pending operations): from 500 ms, doubled. */
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 122_000;

/** Refusals that no repetition mends. */
const FINAL: readonly ErrorCode[] = [
  'invalid-argument',
  'unimplemented',
  'not-found',
  'out-of-range',
  'already-exists',
];

/**
 * Plays the parts of Kubernetes that speak CSI, the provisioner and each node's kubelet, against the real sockets of a
 * dev cluster: the same calls in the same order, with the same deadlines and repetitions.
 */
export class Orchestrator {
  /** How often each RPC was called. */
  readonly calls = new Map<string, number>();
  readonly #controller: ControllerClient;
  readonly #admin: AdminClient;
  readonly #nodes = new Map<string, NodeClient>();

  constructor(private readonly cluster: DevDescription) {
    this.#controller = controllerClient(cluster.controllerSocket);
    this.#admin = adminClient(cluster.controllerSocket);
    for (const node of cluster.nodes) this.#nodes.set(node.name, nodeClient(node.csiSocket));
  }

  async createVolume(wish: VolumeWish): Promise<ProvisionedVolume> {
    const capability: VolumeCapability = {
      ...(wish.filesystem === undefined ? { block: {} } : { mount: { fs_type: wish.filesystem } }),
      access_mode: { mode: 'SINGLE_NODE_WRITER' },
    };
    this.#count('CreateVolume');
    const { volume } = await this.#controller.call(
      'CreateVolume',
      {
        name: wish.name,
        capacity_range: { required_bytes: wish.capacityBytes },
        volume_capabilities: [capability],
        parameters: { ...wish.parameters },
        accessibility_requirements:
          wish.near === undefined ? null : { preferred: [{ segments: { [TOPOLOGY_NODE]: wish.near } }] },
      },
      CALL_TIMEOUT_MS,
    );
    const made = present(volume, 'CreateVolume answers with the volume');
    const { volume_id: id, capacity_bytes: capacityBytes, volume_context: context } = made;
    return { id, name: wish.name, capacityBytes, capability, context };
  }

  async deleteVolume(volume: ProvisionedVolume): Promise<void> {
    this.#count('DeleteVolume');
    await this.#controller.call('DeleteVolume', { volume_id: volume.id }, CALL_TIMEOUT_MS);
  }

  /** Whether the driver asks for attach and detach calls (and so for VolumeAttachments). */
  async wantsAttach(): Promise<boolean> {
    this.#count('ControllerGetCapabilities');
    const { capabilities } = await this.#controller.call('ControllerGetCapabilities', {}, CALL_TIMEOUT_MS);
    return capabilities.some((one) => one.rpc?.type === 'PUBLISH_UNPUBLISH_VOLUME');
  }

  /**
   * Stages and publishes as a kubelet does for a new pod: again and again, with growing pauses, until it succeeds.
   * Resolves to the path that the pod sees. `cancelled` by the signal; a refusal that no repetition mends is passed on.
   */
  async mountFor(node: string, volume: ProvisionedVolume, signal: AbortSignal, pod = 'pod'): Promise<string> {
    await this.#untilDone(signal, () => this.stage(node, volume));
    await this.#untilDone(signal, () => this.publish(node, volume, pod));
    return this.targetPath(node, volume, pod);
  }

  async unmountFor(node: string, volume: ProvisionedVolume, pod = 'pod'): Promise<void> {
    await this.unpublish(node, volume, pod);
    await this.unstage(node, volume);
  }

  async stage(node: string, volume: ProvisionedVolume): Promise<void> {
    const path = this.stagingPath(node, volume);
    await mkdir(path, { recursive: true, mode: 0o755 });
    this.#count('NodeStageVolume');
    await this.#node(node).call(
      'NodeStageVolume',
      {
        volume_id: volume.id,
        staging_target_path: path,
        volume_capability: volume.capability,
        volume_context: volume.context,
      },
      CALL_TIMEOUT_MS,
    );
  }

  async publish(node: string, volume: ProvisionedVolume, pod = 'pod', readonly = false): Promise<void> {
    const path = this.targetPath(node, volume, pod);
    await mkdir(dirname(path), { recursive: true, mode: 0o755 });
    this.#count('NodePublishVolume');
    await this.#node(node).call(
      'NodePublishVolume',
      {
        volume_id: volume.id,
        staging_target_path: this.stagingPath(node, volume),
        target_path: path,
        volume_capability: volume.capability,
        volume_context: volume.context,
        readonly,
      },
      CALL_TIMEOUT_MS,
    );
  }

  async unpublish(node: string, volume: ProvisionedVolume, pod = 'pod'): Promise<void> {
    this.#count('NodeUnpublishVolume');
    const request = { volume_id: volume.id, target_path: this.targetPath(node, volume, pod) };
    await this.#node(node).call('NodeUnpublishVolume', request, CALL_TIMEOUT_MS);
  }

  async unstage(node: string, volume: ProvisionedVolume): Promise<void> {
    this.#count('NodeUnstageVolume');
    const path = this.stagingPath(node, volume);
    const request = { volume_id: volume.id, staging_target_path: path };
    await this.#node(node).call('NodeUnstageVolume', request, CALL_TIMEOUT_MS);
    await rm(path, { recursive: false, force: true }).catch(() => undefined);
  }

  stagingPath(node: string, volume: ProvisionedVolume): string {
    const hash = createHash('sha256').update(volume.id).digest('hex');
    return join(this.node(node).kubeletDir, 'plugins/kubernetes.io/csi', DRIVER_NAME, hash, 'globalmount');
  }

  targetPath(node: string, volume: ProvisionedVolume, pod = 'pod'): string {
    const kind =
      volume.capability.block === undefined ? 'volumes/kubernetes.io~csi' : 'volumeDevices/kubernetes.io~csi';
    return join(this.node(node).kubeletDir, 'pods', pod, kind, volume.name, 'mount');
  }

  /** What the controller says of the volume. */
  view(volume: ProvisionedVolume, timeoutMs = CALL_TIMEOUT_MS): Promise<VolumeView__Output> {
    return this.#admin.call('GetVolume', { volume: volume.id }, timeoutMs);
  }

  /** Whether there is a volume of that id or name. */
  async has(volume: string): Promise<boolean> {
    try {
      await this.#admin.call('GetVolume', { volume }, CALL_TIMEOUT_MS);
      return true;
    } catch (error) {
      if (codeOf(error) === 'not-found') return false;
      throw error;
    }
  }

  /** Waits until all `count` replicas are in sync. `progress` is told how far the resync is, in words. */
  async untilInSync(
    volume: ProvisionedVolume,
    count: number,
    signal: AbortSignal,
    progress: (text: string) => void = () => undefined,
  ): Promise<void> {
    for (;;) {
      const view = await this.view(volume);
      if (view.replicas.filter((replica) => replica.in_sync).length >= count) return;
      const resync = view.attachment?.resync;
      progress(resync ? `${resync.regions_done} of ${resync.regions_total} regions` : view.health);
      await pause(200, signal);
    }
  }

  node(name: string): DevNodeDescription {
    const found = this.cluster.nodes.find((one) => one.name === name);
    if (found === undefined) throw new HoldfastError('not-found', `there is no node ${name}`);
    return found;
  }

  close(): void {
    this.#controller.close();
    this.#admin.close();
    for (const client of this.#nodes.values()) client.close();
  }

  async #untilDone(signal: AbortSignal, call: () => Promise<void>): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      try {
        await call();
        return;
      } catch (error) {
        if (FINAL.includes(codeOf(error))) throw error;
        if (signal.aborted) throw new HoldfastError('cancelled', `given up: ${messageOf(error)}`, { cause: error });
      }
      await pause(pauseMs, signal);
    }
  }

  #node(name: string): NodeClient {
    return present(this.#nodes.get(this.node(name).name), 'every node has a client');
  }

  #count(rpc: string): void {
    this.calls.set(rpc, (this.calls.get(rpc) ?? 0) + 1);
  }
}

/** Waits; `cancelled` by the signal. */
export async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(milliseconds, undefined, { signal });
  } catch (error) {
    throw new HoldfastError('cancelled', 'given up', { cause: error });
  }
}
