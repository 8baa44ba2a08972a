import type { Server } from '@grpc/grpc-js';
import { HoldfastError } from '../base/errors.js';
import { loadProto, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { ExportAddress } from '../device/device.js';
import type { ProtoGrpcType } from '../generated/holdfast.js';
import type { Attachment } from '../generated/holdfast/v1/Attachment.js';
import type { CreateReplicaRequest__Output } from '../generated/holdfast/v1/CreateReplicaRequest.js';
import type { CreateReplicaResponse } from '../generated/holdfast/v1/CreateReplicaResponse.js';
import type { DropReplicaRequest__Output } from '../generated/holdfast/v1/DropReplicaRequest.js';
import type { DropReplicaResponse } from '../generated/holdfast/v1/DropReplicaResponse.js';
import type { GetAttachmentRequest__Output } from '../generated/holdfast/v1/GetAttachmentRequest.js';
import type { GetAttachmentResponse } from '../generated/holdfast/v1/GetAttachmentResponse.js';
import type { GrowVolumeRequest__Output } from '../generated/holdfast/v1/GrowVolumeRequest.js';
import type { GrowVolumeResponse } from '../generated/holdfast/v1/GrowVolumeResponse.js';
import type { ListReplicasRequest__Output } from '../generated/holdfast/v1/ListReplicasRequest.js';
import type { ListReplicasResponse } from '../generated/holdfast/v1/ListReplicasResponse.js';
import type { MaintainVolumeRequest__Output } from '../generated/holdfast/v1/MaintainVolumeRequest.js';
import type { MaintainVolumeResponse } from '../generated/holdfast/v1/MaintainVolumeResponse.js';
import type { RefreshVolumeRequest__Output } from '../generated/holdfast/v1/RefreshVolumeRequest.js';
import type { RefreshVolumeResponse } from '../generated/holdfast/v1/RefreshVolumeResponse.js';
import type { ReleaseVolumeRequest__Output } from '../generated/holdfast/v1/ReleaseVolumeRequest.js';
import type { ReleaseVolumeResponse } from '../generated/holdfast/v1/ReleaseVolumeResponse.js';
import type { RemoveReplicaRequest__Output } from '../generated/holdfast/v1/RemoveReplicaRequest.js';
import type { RemoveReplicaResponse } from '../generated/holdfast/v1/RemoveReplicaResponse.js';
import type { YieldVolumeRequest__Output } from '../generated/holdfast/v1/YieldVolumeRequest.js';
import type { YieldVolumeResponse } from '../generated/holdfast/v1/YieldVolumeResponse.js';
import { isVolumeId, type NodeName, type VolumeId } from '../model/ids.js';
import type { Replicas, ReplicaSummary } from '../replica/replicas.js';
import type { RecordStore } from '../store/store.js';
import type { Attachments, AttachmentStatus } from '../writer/attachments.js';
import { removeUnnamed, type ReplicaTurns } from './remove.js';

/** What the agent asks of the volumes on its node. */
export interface AgentVolumes {
  /** Device and export take on the record's capacity; 0 where the volume is not attached here. */
  grow(volume: VolumeId, remainingMs: number): Promise<number>;
  /** Ends the attachment whoever uses it, and takes this node out of the record. */
  end(volume: VolumeId, remainingMs: number): Promise<void>;
  /** What is attached here; undefined where nothing is. */
  attachment(volume: VolumeId): Promise<{ status: AttachmentStatus; address: ExportAddress | undefined } | undefined>;
}

export interface AgentOptions {
  readonly nodeName: NodeName;
  readonly store: Pick<RecordStore, 'get'>;
  readonly replicas: Replicas;
  readonly turns: ReplicaTurns;
  readonly volumes: AgentVolumes;
  readonly attachments: Pick<Attachments, 'refresh' | 'dropReplica' | 'maintain' | 'yieldUp'>;
  readonly log: Log;
}

/** The service NodeAgent: what the controller asks of a node. */
export function addAgentService(server: Server, options: AgentOptions): void {
  const { replicas, turns, volumes, attachments, log } = options;
  const { service } = (loadProto('holdfast.proto') as unknown as ProtoGrpcType).holdfast.v1.NodeAgent;
  server.addService(service, {
    CreateReplica: unary<CreateReplicaRequest__Output, CreateReplicaResponse>(log, 'CreateReplica', async (request) => {
      const volume = parseVolume(request.volume_id);
      const disk = required(request.disk_id, 'disk_id');
      const capacityBytes = parseCapacity(request.capacity_bytes);
      await turns.run(volume, () => replicas.create(volume, disk, capacityBytes));
      return {};
    }),
    RemoveReplica: unary<RemoveReplicaRequest__Output, RemoveReplicaResponse>(log, 'RemoveReplica', async (request) => {
      await removeUnnamed(options, parseVolume(request.volume_id));
      return {};
    }),
    ListReplicas: unary<ListReplicasRequest__Output, ListReplicasResponse>(log, 'ListReplicas', async () => ({
      replicas: (await replicas.list()).map(replicaMessage),
    })),
    GrowVolume: unary<GrowVolumeRequest__Output, GrowVolumeResponse>(log, 'GrowVolume', async (request, context) => ({
      size_bytes: await volumes.grow(parseVolume(request.volume_id), context.remainingMs()),
    })),
    ReleaseVolume: unary<ReleaseVolumeRequest__Output, ReleaseVolumeResponse>(
      log,
      'ReleaseVolume',
      async (request, context) => {
        await volumes.end(parseVolume(request.volume_id), context.remainingMs());
        return {};
      },
    ),
    GetAttachment: unary<GetAttachmentRequest__Output, GetAttachmentResponse>(log, 'GetAttachment', async (request) => {
      const volume = parseVolume(request.volume_id);
      const found = await volumes.attachment(volume);
      return found === undefined ? {} : { attachment: attachmentMessage(found.status, uriOf(volume, found.address)) };
    }),
    RefreshVolume: unary<RefreshVolumeRequest__Output, RefreshVolumeResponse>(log, 'RefreshVolume', async (request) => {
      await attachments.refresh(parseVolume(request.volume_id));
      return {};
    }),
    DropReplica: unary<DropReplicaRequest__Output, DropReplicaResponse>(log, 'DropReplica', async (request) => {
      await attachments.dropReplica(parseVolume(request.volume_id), required(request.node, 'node'), request.why);
      return {};
    }),
    MaintainVolume: unary<MaintainVolumeRequest__Output, MaintainVolumeResponse>(
      log,
      'MaintainVolume',
      async (request) => {
        await attachments.maintain(parseVolume(request.volume_id), request.drop);
        return {};
      },
    ),
    YieldVolume: unary<YieldVolumeRequest__Output, YieldVolumeResponse>(log, 'YieldVolume', async (request) => ({
      yielded: await attachments.yieldUp(parseVolume(request.volume_id)),
    })),
  });
}

function replicaMessage(summary: ReplicaSummary): NonNullable<ListReplicasResponse['replicas']>[number] {
  return {
    volume_id: summary.volume,
    disk_id: summary.disk,
    capacity_bytes: summary.capacityBytes,
    epoch: summary.epoch,
    crash_mark: summary.crashMark,
    open_regions: summary.openRegions,
    damaged_blocks: summary.damagedBlocks,
    writer_heard: summary.writerHeard,
  };
}

function attachmentMessage(status: AttachmentStatus, nbdUri: string): Attachment {
  return {
    state: status.state,
    epoch: status.epoch,
    in_sync: status.inSync,
    regions_open: status.regionsOpen,
    regions_to_reconcile: status.regionsToReconcile,
    resync: status.resync && {
      node: status.resync.node,
      regions_total: status.resync.regionsTotal,
      regions_done: status.resync.regionsDone,
    },
    waits_for: status.waitsFor,
    nbd_uri: nbdUri,
    maintenance: status.maintenance ?? false,
  };
}

/** For other clients than the block device, whose own export name is for it alone (R11). */
function uriOf(volume: VolumeId, address: ExportAddress | undefined): string {
  return address === undefined ? '' : nbdUri({ ...address, exportName: volume });
}

/** The NBD URI of an export on a unix socket (NetworkBlockDevice uri.md). */
export function nbdUri({ socketPath, exportName }: ExportAddress): string {
  return `nbd+unix:///${encodeURIComponent(exportName)}?socket=${encodeURIComponent(socketPath)}`;
}

function parseVolume(text: string): VolumeId {
  if (!isVolumeId(text)) {
    throw new HoldfastError(
      'invalid-argument',
      `volume_id ${JSON.stringify(text)} is no volume id; it must be vol- and 32 hex digits`,
    );
  }
  return text;
}

function parseCapacity(bytes: number): number {
  if (!Number.isSafeInteger(bytes) || bytes <= 0) {
    throw new HoldfastError('invalid-argument', `capacity_bytes is ${bytes}; it must be above zero`);
  }
  return bytes;
}

function required(text: string, field: string): string {
  if (text === '') throw new HoldfastError('invalid-argument', `${field} is missing`);
  return text;
}
