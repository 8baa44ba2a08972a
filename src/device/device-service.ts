import type { Server, UntypedServiceImplementation } from '@grpc/grpc-js';
import { assert } from '../base/assert.js';
import { loadProto, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { CreateDeviceRequest__Output } from '../generated/holdfast/v1/CreateDeviceRequest.js';
import type { Device } from '../generated/holdfast/v1/Device.js';
import type { GrowDeviceRequest__Output } from '../generated/holdfast/v1/GrowDeviceRequest.js';
import type { RemoveDeviceRequest__Output } from '../generated/holdfast/v1/RemoveDeviceRequest.js';
import type { ProtoGrpcType } from '../generated/holdfast.js';
import type { BlockDevice, BlockDevices } from './device.js';

/** The definitions of holdfast.proto, typed. */
export function holdfastProto(): ProtoGrpcType['holdfast']['v1'] {
  // The generated types describe just what the loader builds from the same file.
  return (loadProto('holdfast.proto') as unknown as ProtoGrpcType).holdfast.v1;
}

/** Adds the gRPC service DeviceProcess, which speaks for `devices`. */
export function addDeviceService(server: Server, devices: BlockDevices, log: Log): void {
  const { service } = holdfastProto().DeviceProcess;
  const handlers: UntypedServiceImplementation = {
    CreateDevice: unary(log, 'CreateDevice', async (request: CreateDeviceRequest__Output) => {
      const address = { socketPath: request.socket_path, exportName: request.export_name };
      return told(await devices.create(request.volume_id, address, request.size_bytes, request.read_only));
    }),
    GrowDevice: unary(log, 'GrowDevice', async (request: GrowDeviceRequest__Output) => {
      await devices.grow(request.volume_id, request.size_bytes);
      return {};
    }),
    FailDevice: unary(log, 'FailDevice', async (request: RemoveDeviceRequest__Output) => {
      await devices.fail(request.volume_id);
      return {};
    }),
    RemoveDevice: unary(log, 'RemoveDevice', async (request: RemoveDeviceRequest__Output) => {
      await devices.remove(request.volume_id);
      return {};
    }),
    ListDevices: unary(log, 'ListDevices', async () => ({ devices: (await devices.list()).map(told) })),
  };
  assert(
    Object.keys(service).every((name) => name in handlers),
    'every method of DeviceProcess has a handler',
  );
  server.addService(service, handlers);
}

function told(device: BlockDevice): Device {
  const { volume, path, sizeBytes, readOnly, failed } = device;
  return { volume_id: volume, path, size_bytes: sizeBytes, read_only: readOnly, failed };
}
