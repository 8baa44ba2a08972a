import { credentials } from '@grpc/grpc-js';
import { HoldfastError } from '../base/errors.js';
import { invoke, loadProto } from '../base/grpc.js';
import type { ProtoGrpcType } from '../generated/holdfast.js';
import type { Attachment__Output } from '../generated/holdfast/v1/Attachment.js';
import type { GetAttachmentResponse__Output } from '../generated/holdfast/v1/GetAttachmentResponse.js';
import type { GrowVolumeResponse__Output } from '../generated/holdfast/v1/GrowVolumeResponse.js';
import type { ListReplicasResponse__Output } from '../generated/holdfast/v1/ListReplicasResponse.js';
import type { NodeAgentClient as NodeAgentStub } from '../generated/holdfast/v1/NodeAgent.js';
import type { Replica__Output } from '../generated/holdfast/v1/Replica.js';
import type { YieldVolumeResponse__Output } from '../generated/holdfast/v1/YieldVolumeResponse.js';
import type { DiskId, NodeName, VolumeId } from '../model/ids.js';
import type { NodeRecord } from '../model/records.js';
import type { ReplicaSummary } from '../replica/replicas.js';

/** Milliseconds. */
export interface AgentTimeouts {
  readonly createReplica: number;
  readonly removeReplica: number;
  readonly listReplicas: number;
  readonly growVolume: number;
  readonly releaseVolume: number;
  readonly getAttachment: number;
  readonly refreshVolume: number;
  readonly dropReplica: number;
  readonly maintainVolume: number;
  readonly yieldVolume: number;
}

/** Deadlines of the calls: each is bounded, so that an operation over many nodes is. */
export const AGENT_TIMEOUTS_MS: AgentTimeouts = {
  createReplica: 5_000,
  removeReplica: 5_000,
  listReplicas: 10_000,
  growVolume: 20_000,
  releaseVolume: 60_000,
  getAttachment: 2_000,
  refreshVolume: 3_000,
  dropReplica: 15_000,
  maintainVolume: 5_000,
  yieldVolume: 3_000,
};

/** Replica lists of a big node exceed gRPC's own bound of 4 MiB. */
const MAX_ANSWER_BYTES = 64 * 1024 ** 2;

const CHANNEL_OPTIONS = {
  // A node that was cut off is noticed while a call waits, not only when its deadline has passed.
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5_000,
  'grpc.initial_reconnect_backoff_ms': 200,
  'grpc.max_reconnect_backoff_ms': 5_000,
  'grpc.max_receive_message_length': MAX_ANSWER_BYTES,
};

/**
 * What the controller asks of one node. Every call may fail with `unavailable` or `deadline-exceeded`: then it is not
 * known whether it was carried out, and repeating it is right.
 */
export class NodeAgentClient {
  readonly #stub: NodeAgentStub;

  /** Connects when first asked; reconnects on its own. */
  constructor(
    readonly node: NodeName,
    readonly address: string,
    private readonly timeouts = AGENT_TIMEOUTS_MS,
  ) {
    const { NodeAgent } = (loadProto('holdfast.proto') as unknown as ProtoGrpcType).holdfast.v1;
    this.#stub = new NodeAgent(address, credentials.createInsecure(), CHANNEL_OPTIONS);
  }

  /** Makes an empty replica; a repeat succeeds; on another disk of the node → `already-exists`. */
  async createReplica(volume: VolumeId, disk: DiskId, capacityBytes: number): Promise<void> {
    const request = { volume_id: volume, disk_id: disk, capacity_bytes: capacityBytes };
    await this.#ask((...call) => this.#stub.CreateReplica(...call), request, this.timeouts.createReplica);
  }

  /** Missing: nothing happens. `failed-precondition`: the volume's record names a replica there. */
  async removeReplica(volume: VolumeId): Promise<void> {
    const request = { volume_id: volume };
    await this.#ask((...call) => this.#stub.RemoveReplica(...call), request, this.timeouts.removeReplica);
  }

  async listReplicas(): Promise<ReplicaSummary[]> {
    const answer: ListReplicasResponse__Output = await this.#ask(
      (...call) => this.#stub.ListReplicas(...call),
      {},
      this.timeouts.listReplicas,
    );
    return answer.replicas.map(summaryOf);
  }

  /** A live attachment takes on the capacity in the record. Resolves to the size it has then; 0: not attached there. */
  async growVolume(volume: VolumeId): Promise<number> {
    const answer: GrowVolumeResponse__Output = await this.#ask(
      (...call) => this.#stub.GrowVolume(...call),
      { volume_id: volume },
      this.timeouts.growVolume,
    );
    return answer.size_bytes;
  }

  /** Ends the attachment there and takes the node out of the record. */
  async releaseVolume(volume: VolumeId): Promise<void> {
    const request = { volume_id: volume };
    await this.#ask((...call) => this.#stub.ReleaseVolume(...call), request, this.timeouts.releaseVolume);
  }

  /** null: not attached there. */
  async getAttachment(volume: VolumeId): Promise<Attachment__Output | null> {
    const answer: GetAttachmentResponse__Output = await this.#ask(
      (...call) => this.#stub.GetAttachment(...call),
      { volume_id: volume },
      this.timeouts.getAttachment,
    );
    return answer.attachment;
  }

  /** Its writer, if it has one, reads the record anew. */
  async refreshVolume(volume: VolumeId): Promise<void> {
    const request = { volume_id: volume };
    await this.#ask((...call) => this.#stub.RefreshVolume(...call), request, this.timeouts.refreshVolume);
  }

  /** See RebuildAgent. */
  async dropReplica(volume: VolumeId, node: NodeName, why: string): Promise<void> {
    const request = { volume_id: volume, node, why };
    await this.#ask((...call) => this.#stub.DropReplica(...call), request, this.timeouts.dropReplica);
  }

  /** See RebuildAgent. */
  async maintainVolume(volume: VolumeId, drop: readonly NodeName[]): Promise<void> {
    const request = { volume_id: volume, drop: [...drop] };
    await this.#ask((...call) => this.#stub.MaintainVolume(...call), request, this.timeouts.maintainVolume);
  }

  /** A writer without a device gives the volume up. False: it is attached there. */
  async yieldVolume(volume: VolumeId): Promise<boolean> {
    const answer: YieldVolumeResponse__Output = await this.#ask(
      (...call) => this.#stub.YieldVolume(...call),
      { volume_id: volume },
      this.timeouts.yieldVolume,
    );
    return answer.yielded;
  }

  close(): void {
    this.#stub.close();
  }

  /** Names the node in what went wrong; keeps the code. */
  async #ask<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    timeoutMs: number,
  ): Promise<Response> {
    try {
      return await invoke(this.#stub, method, request, timeoutMs);
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      throw new HoldfastError(error.code, `node ${this.node} (${this.address}): ${error.message}`, { cause: error });
    }
  }
}

function summaryOf(told: Replica__Output): ReplicaSummary {
  return {
    volume: told.volume_id,
    disk: told.disk_id,
    capacityBytes: told.capacity_bytes,
    epoch: told.epoch,
    crashMark: told.crash_mark,
    openRegions: told.open_regions,
    damagedBlocks: told.damaged_blocks,
    writerHeard: told.writer_heard,
  };
}

type Method<Request, Response> = Parameters<typeof invoke<Request, Response>>[1];

/** Where a node's agent listens. */
export function agentAddress(node: NodeRecord): string {
  return `${node.host.includes(':') ? `[${node.host}]` : node.host}:${node.agentPort}`;
}

/** One connection for each node, made when needed and closed when the node's address has changed. */
export class NodeAgents {
  readonly #clients = new Map<NodeName, NodeAgentClient>();

  constructor(private readonly timeouts = AGENT_TIMEOUTS_MS) {}

  of(node: NodeRecord): NodeAgentClient {
    const address = agentAddress(node);
    const known = this.#clients.get(node.name);
    if (known?.address === address) return known;
    known?.close();
    const client = new NodeAgentClient(node.name, address, this.timeouts);
    this.#clients.set(node.name, client);
    return client;
  }

  /** Closes the connections to nodes that are no longer registered. */
  keepOnly(nodes: readonly NodeName[]): void {
    for (const [name, client] of this.#clients) {
      if (nodes.includes(name)) continue;
      client.close();
      this.#clients.delete(name);
    }
  }

  close(): void {
    this.keepOnly([]);
  }
}
