import type { Server } from '@grpc/grpc-js';
import { loadProto, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { ProtoGrpcType } from '../generated/csi.js';
import type { NodeExpandVolumeRequest__Output } from '../generated/csi/v1/NodeExpandVolumeRequest.js';
import type { NodeExpandVolumeResponse } from '../generated/csi/v1/NodeExpandVolumeResponse.js';
import type { NodeGetCapabilitiesRequest__Output } from '../generated/csi/v1/NodeGetCapabilitiesRequest.js';
import type { NodeGetCapabilitiesResponse } from '../generated/csi/v1/NodeGetCapabilitiesResponse.js';
import type { NodeGetInfoRequest__Output } from '../generated/csi/v1/NodeGetInfoRequest.js';
import type { NodeGetInfoResponse } from '../generated/csi/v1/NodeGetInfoResponse.js';
import type { NodeGetStorageHealthRequest__Output } from '../generated/csi/v1/NodeGetStorageHealthRequest.js';
import type { NodeGetStorageHealthResponse } from '../generated/csi/v1/NodeGetStorageHealthResponse.js';
import type { NodeGetVolumeHealthRequest__Output } from '../generated/csi/v1/NodeGetVolumeHealthRequest.js';
import type { NodeGetVolumeHealthResponse } from '../generated/csi/v1/NodeGetVolumeHealthResponse.js';
import type { NodeGetVolumeStatsRequest__Output } from '../generated/csi/v1/NodeGetVolumeStatsRequest.js';
import type { NodeGetVolumeStatsResponse } from '../generated/csi/v1/NodeGetVolumeStatsResponse.js';
import type { NodePublishVolumeRequest__Output } from '../generated/csi/v1/NodePublishVolumeRequest.js';
import type { NodePublishVolumeResponse } from '../generated/csi/v1/NodePublishVolumeResponse.js';
import type { NodeStageVolumeRequest__Output } from '../generated/csi/v1/NodeStageVolumeRequest.js';
import type { NodeStageVolumeResponse } from '../generated/csi/v1/NodeStageVolumeResponse.js';
import type { NodeUnpublishVolumeRequest__Output } from '../generated/csi/v1/NodeUnpublishVolumeRequest.js';
import type { NodeUnpublishVolumeResponse } from '../generated/csi/v1/NodeUnpublishVolumeResponse.js';
import type { NodeUnstageVolumeRequest__Output } from '../generated/csi/v1/NodeUnstageVolumeRequest.js';
import type { NodeUnstageVolumeResponse } from '../generated/csi/v1/NodeUnstageVolumeResponse.js';
import type { NodeName } from '../model/ids.js';
import type { StorageCondition } from './node-condition.js';
import {
  parseExpand,
  parseHealth,
  parsePublish,
  parseStage,
  parseStats,
  parseUnpublish,
  parseUnstage,
} from './node-parse.js';
import type { NodeVolumes } from './node-volumes.js';

export interface NodeServiceOptions {
  readonly nodeName: NodeName;
  /** Segments that say where this node is, its own name among them. */
  readonly topology: Readonly<Record<string, string>>;
  readonly volumes: NodeVolumes;
  readonly storageConditions: () => Promise<StorageCondition[]>;
  readonly log: Log;
}

const CAPABILITIES = [
  'STAGE_UNSTAGE_VOLUME',
  'GET_VOLUME_STATS',
  'EXPAND_VOLUME',
  'SINGLE_NODE_MULTI_WRITER',
  'GET_VOLUME_HEALTH',
  'GET_STORAGE_HEALTH',
] as const;

/** CSI Node: parse, call the domain, answer. Volumes need no slots of the machine, so there is no limit on their number. */
export function addNodeService(server: Server, options: NodeServiceOptions): void {
  const { volumes, log } = options;
  const { service } = (loadProto('csi.proto') as unknown as ProtoGrpcType).csi.v1.Node;
  server.addService(service, {
    NodeStageVolume: unary<NodeStageVolumeRequest__Output, NodeStageVolumeResponse>(
      log,
      'NodeStageVolume',
      async (request, { remainingMs }) => {
        await volumes.stage(parseStage(request), remainingMs);
        return {};
      },
    ),
    NodeUnstageVolume: unary<NodeUnstageVolumeRequest__Output, NodeUnstageVolumeResponse>(
      log,
      'NodeUnstageVolume',
      async (request, { remainingMs }) => {
        await volumes.unstage(parseUnstage(request), remainingMs);
        return {};
      },
    ),
    NodePublishVolume: unary<NodePublishVolumeRequest__Output, NodePublishVolumeResponse>(
      log,
      'NodePublishVolume',
      async (request, { remainingMs }) => {
        await volumes.publish(parsePublish(request), remainingMs);
        return {};
      },
    ),
    NodeUnpublishVolume: unary<NodeUnpublishVolumeRequest__Output, NodeUnpublishVolumeResponse>(
      log,
      'NodeUnpublishVolume',
      async (request, { remainingMs }) => {
        await volumes.unpublish(parseUnpublish(request), remainingMs);
        return {};
      },
    ),
    NodeGetVolumeStats: unary<NodeGetVolumeStatsRequest__Output, NodeGetVolumeStatsResponse>(
      log,
      'NodeGetVolumeStats',
      async (request, { remainingMs }) => ({ usage: await volumes.usage(parseStats(request), remainingMs) }),
    ),
    NodeGetVolumeHealth: unary<NodeGetVolumeHealthRequest__Output, NodeGetVolumeHealthResponse>(
      log,
      'NodeGetVolumeHealth',
      async (request) => {
        const { volume } = parseHealth(request);
        return { volume_health: { volume_id: volume, health_statuses: await volumes.conditions(volume) } };
      },
    ),
    NodeGetStorageHealth: unary<NodeGetStorageHealthRequest__Output, NodeGetStorageHealthResponse>(
      log,
      'NodeGetStorageHealth',
      async () => ({ backend_health: await options.storageConditions() }),
    ),
    NodeExpandVolume: unary<NodeExpandVolumeRequest__Output, NodeExpandVolumeResponse>(
      log,
      'NodeExpandVolume',
      async (request, { remainingMs }) => ({
        capacity_bytes: await volumes.expand(parseExpand(request), remainingMs),
      }),
    ),
    NodeGetCapabilities: unary<NodeGetCapabilitiesRequest__Output, NodeGetCapabilitiesResponse>(
      log,
      'NodeGetCapabilities',
      () => Promise.resolve({ capabilities: CAPABILITIES.map((type) => ({ rpc: { type } })) }),
    ),
    NodeGetInfo: unary<NodeGetInfoRequest__Output, NodeGetInfoResponse>(log, 'NodeGetInfo', () =>
      Promise.resolve({ node_id: options.nodeName, accessible_topology: { segments: { ...options.topology } } }),
    ),
  });
}
