import type { Server } from '@grpc/grpc-js';
import { loadProto, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { Volumes } from '../control/volumes.js';
import type { ProtoGrpcType } from '../generated/csi.js';
import type { ControllerExpandVolumeRequest__Output } from '../generated/csi/v1/ControllerExpandVolumeRequest.js';
import type { ControllerExpandVolumeResponse } from '../generated/csi/v1/ControllerExpandVolumeResponse.js';
import type { ControllerGetCapabilitiesRequest__Output } from '../generated/csi/v1/ControllerGetCapabilitiesRequest.js';
import type { ControllerGetCapabilitiesResponse } from '../generated/csi/v1/ControllerGetCapabilitiesResponse.js';
import type { CreateVolumeRequest__Output } from '../generated/csi/v1/CreateVolumeRequest.js';
import type { CreateVolumeResponse } from '../generated/csi/v1/CreateVolumeResponse.js';
import type { DeleteVolumeRequest__Output } from '../generated/csi/v1/DeleteVolumeRequest.js';
import type { DeleteVolumeResponse } from '../generated/csi/v1/DeleteVolumeResponse.js';
import type { ValidateVolumeCapabilitiesRequest__Output } from '../generated/csi/v1/ValidateVolumeCapabilitiesRequest.js';
import type { ValidateVolumeCapabilitiesResponse } from '../generated/csi/v1/ValidateVolumeCapabilitiesResponse.js';
import { isVolumeId } from '../model/ids.js';
import { missing, noSuchVolume } from './capability.js';
import { readHandlers } from './controller-reads.js';
import { refusalFor } from './confirm.js';
import { parseCreate, parseExpand, parseValidate } from './parse.js';
import { volumeMessage } from './volume-message.js';

/** What works, and nothing else. The rest of the service answers UNIMPLEMENTED. */
const CAPABILITIES = [
  'CREATE_DELETE_VOLUME',
  'LIST_VOLUMES',
  'GET_CAPACITY',
  'EXPAND_VOLUME',
  'GET_VOLUME',
  'SINGLE_NODE_MULTI_WRITER',
  'GET_VOLUME_HEALTH',
  'LIST_VOLUME_HEALTH',
] as const;

/** CSI Controller: parses, refuses, calls the domain. */
export function addControllerService(server: Server, volumes: Volumes, log: Log): void {
  const { service } = (loadProto('csi.proto') as unknown as ProtoGrpcType).csi.v1.Controller;
  server.addService(service, { ...changeHandlers(volumes, log), ...readHandlers(volumes, log) });
}

function changeHandlers(volumes: Volumes, log: Log) {
  return {
    CreateVolume: unary<CreateVolumeRequest__Output, CreateVolumeResponse>(
      log,
      'CreateVolume',
      async (request, context) => ({ volume: volumeMessage(await volumes.create(parseCreate(request), context)) }),
    ),

    DeleteVolume: unary<DeleteVolumeRequest__Output, DeleteVolumeResponse>(
      log,
      'DeleteVolume',
      async (request, context) => {
        const id = request.volume_id;
        if (id === '') throw missing('volume_id', 'the id of a volume');
        // What was never an id of ours names no volume, and deleting that is done already.
        if (isVolumeId(id)) await volumes.remove(id, context);
        return {};
      },
    ),

    ControllerExpandVolume: unary<ControllerExpandVolumeRequest__Output, ControllerExpandVolumeResponse>(
      log,
      'ControllerExpandVolume',
      async (request, context) => {
        const { id, range } = parseExpand(request);
        const { capacityBytes, nodeStepNeeded } = await volumes.expand(id, range, context);
        return { capacity_bytes: capacityBytes, node_expansion_required: nodeStepNeeded };
      },
    ),

    ValidateVolumeCapabilities: unary<ValidateVolumeCapabilitiesRequest__Output, ValidateVolumeCapabilitiesResponse>(
      log,
      'ValidateVolumeCapabilities',
      async (request) => {
        const order = parseValidate(request);
        const record = await volumes.get(order.id);
        if (record === undefined) throw noSuchVolume(order.id);
        const refusal = refusalFor(record, order);
        if (refusal !== undefined) return { message: refusal };
        const { volume_context, volume_capabilities, parameters, mutable_parameters } = request;
        return { confirmed: { volume_context, volume_capabilities, parameters, mutable_parameters } };
      },
    ),

    ControllerGetCapabilities: unary<ControllerGetCapabilitiesRequest__Output, ControllerGetCapabilitiesResponse>(
      log,
      'ControllerGetCapabilities',
      () => Promise.resolve({ capabilities: CAPABILITIES.map((type) => ({ rpc: { type } })) }),
    ),
  };
}
