import type { Server } from '@grpc/grpc-js';
import { HoldfastError } from '../base/errors.js';
import { loadProto, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { ProtoGrpcType } from '../generated/holdfast.js';
import type { GetStatusRequest__Output } from '../generated/holdfast/v1/GetStatusRequest.js';
import type { GetStatusResponse } from '../generated/holdfast/v1/GetStatusResponse.js';
import type { ForceStaleRequest__Output } from '../generated/holdfast/v1/ForceStaleRequest.js';
import type { ForceStaleResponse } from '../generated/holdfast/v1/ForceStaleResponse.js';
import type { GetVolumeRequest__Output } from '../generated/holdfast/v1/GetVolumeRequest.js';
import type { ListNodesRequest__Output } from '../generated/holdfast/v1/ListNodesRequest.js';
import type { ListNodesResponse } from '../generated/holdfast/v1/ListNodesResponse.js';
import type { ListVolumesRequest__Output } from '../generated/holdfast/v1/ListVolumesRequest.js';
import type { ListVolumesResponse } from '../generated/holdfast/v1/ListVolumesResponse.js';
import type { ReleaseVolumeRequest__Output } from '../generated/holdfast/v1/ReleaseVolumeRequest.js';
import type { ReleaseVolumeResponse } from '../generated/holdfast/v1/ReleaseVolumeResponse.js';
import type { RemoveNodeRequest__Output } from '../generated/holdfast/v1/RemoveNodeRequest.js';
import type { RemoveNodeResponse } from '../generated/holdfast/v1/RemoveNodeResponse.js';
import type { SetReplicasRequest__Output } from '../generated/holdfast/v1/SetReplicasRequest.js';
import type { SetReplicasResponse } from '../generated/holdfast/v1/SetReplicasResponse.js';
import type { VolumeExplanation } from '../generated/holdfast/v1/VolumeExplanation.js';
import type { VolumeView } from '../generated/holdfast/v1/VolumeView.js';
import type { VolumeRecord } from '../model/records.js';
import { nodeView, statusView, volumeView } from './admin-views.js';
import { AttachmentReader } from './attachment-reader.js';
import { placementNodes, readCluster, readNodes } from './cluster-view.js';
import { explain } from './explain.js';
import { forceStale } from './force-stale.js';
import { releaseWriter } from './release-writer.js';
import { removeNode } from './remove-node.js';
import { meritIn, surplusOf } from './surplus.js';
import type { Volumes } from './volumes.js';

/** What the CLI asks of the controller. */
export function addAdminService(server: Server, volumes: Volumes, log: Log): void {
  const { service } = (loadProto('holdfast.proto') as unknown as ProtoGrpcType).holdfast.v1.Admin;
  const { parts } = volumes;
  server.addService(service, {
    GetStatus: unary<GetStatusRequest__Output, GetStatusResponse>(log, 'Admin.GetStatus', async () => {
      const [cluster, identity] = await Promise.all([readCluster(parts.store), parts.store.get('cluster', 'cluster')]);
      const seen = await new AttachmentReader(parts, cluster).see(cluster.volumes);
      return statusView(identity?.record.clusterId ?? '', cluster, parts.liveness, seen);
    }),

    ListVolumes: unary<ListVolumesRequest__Output, ListVolumesResponse>(log, 'Admin.ListVolumes', async () => {
      const cluster = await readCluster(parts.store);
      const seen = await new AttachmentReader(parts, cluster).see(cluster.volumes);
      return { volumes: seen.map((each) => volumeView(each, cluster.nodes, parts.liveness)) };
    }),

    GetVolume: unary<GetVolumeRequest__Output, VolumeView>(log, 'Admin.GetVolume', async (request) => {
      const record = await wanted(volumes, request.volume);
      const cluster = await readNodes(parts.store);
      return volumeView(await new AttachmentReader(parts, cluster).seeOne(record), cluster.nodes, parts.liveness);
    }),

    ListNodes: unary<ListNodesRequest__Output, ListNodesResponse>(log, 'Admin.ListNodes', async () => {
      const cluster = await readCluster(parts.store);
      return { nodes: cluster.nodes.map((node) => nodeView(node, cluster, parts.liveness)) };
    }),

    ReleaseVolume: unary<ReleaseVolumeRequest__Output, ReleaseVolumeResponse>(
      log,
      'Admin.ReleaseVolume',
      async (request) => {
        await releaseWriter(parts, await wanted(volumes, request.volume_id), request.force);
        return {};
      },
    ),

    SetReplicas: unary<SetReplicasRequest__Output, SetReplicasResponse>(
      log,
      'Admin.SetReplicas',
      async (request, context) => {
        const { id } = await wanted(volumes, request.volume);
        return { next: await volumes.setReplicas(id, request.replicas, context) };
      },
    ),

    ExplainVolume: unary<GetVolumeRequest__Output, VolumeExplanation>(log, 'Admin.ExplainVolume', async (request) =>
      explained(volumes, await wanted(volumes, request.volume)),
    ),

    ForceStale: unary<ForceStaleRequest__Output, ForceStaleResponse>(log, 'Admin.ForceStale', async (request) => {
      const { id } = await wanted(volumes, request.volume);
      const { node, accept_loss: acceptLoss } = request;
      return { loss: await forceStale(parts, id, { node: named(node), acceptLoss }) };
    }),

    RemoveNode: unary<RemoveNodeRequest__Output, RemoveNodeResponse>(log, 'Admin.RemoveNode', async (request) => {
      const { disks, volumes: count } = await removeNode(parts, named(request.node));
      return { disks: [...disks], volumes: count };
    }),
  });
}

function named(node: string): string {
  if (node === '') throw new HoldfastError('invalid-argument', 'node is missing; give the name of a node');
  return node;
}

async function wanted(volumes: Volumes, idOrName: string): Promise<VolumeRecord> {
  if (idOrName === '') throw new HoldfastError('invalid-argument', 'volume is missing; it must be an id or a name');
  const record = await volumes.find(idOrName);
  if (record === undefined) {
    throw new HoldfastError('not-found', `there is no volume with the id or name ${JSON.stringify(idOrName)}`);
  }
  return record;
}

async function explained({ parts }: Volumes, record: VolumeRecord): Promise<VolumeExplanation> {
  const cluster = await readCluster(parts.store);
  const { health, attachment, sight } = await new AttachmentReader(parts, cluster).seeOne(record);
  const surplus = surplusOf(sight, meritIn(placementNodes(cluster, parts.liveness)));
  const problem = parts.healing.problemOf(record.id);
  const told = explain({ sight, health, attachment, surplus, problem, graceMs: parts.healing.graceMs });
  return {
    volume_id: record.id,
    health: told.health,
    state: [...told.state],
    happened: told.happened.map((decision) => ({ ...decision, times: decision.times ?? 1 })),
    waits_for: [...told.waitsFor],
    next: [...told.next],
  };
}
