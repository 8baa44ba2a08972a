import { readFileSync } from 'node:fs';
import type { Server } from '@grpc/grpc-js';
import { loadProto, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import { DRIVER_NAME } from '../config.js';
import type { ProtoGrpcType } from '../generated/csi.js';
import type { GetPluginCapabilitiesRequest__Output } from '../generated/csi/v1/GetPluginCapabilitiesRequest.js';
import type { GetPluginCapabilitiesResponse } from '../generated/csi/v1/GetPluginCapabilitiesResponse.js';
import type { GetPluginInfoRequest__Output } from '../generated/csi/v1/GetPluginInfoRequest.js';
import type { GetPluginInfoResponse } from '../generated/csi/v1/GetPluginInfoResponse.js';
import type { ProbeRequest__Output } from '../generated/csi/v1/ProbeRequest.js';
import type { ProbeResponse } from '../generated/csi/v1/ProbeResponse.js';

export interface IdentityOptions {
  readonly log: Log;
  /** Whether calls of the other services can be served now. */
  readonly ready: () => boolean;
}

/** CSI Identity: the same for the controller and for nodes, since both are one plugin. */
export function addIdentityService(server: Server, { log, ready }: IdentityOptions): void {
  const version = packageVersion();
  const { service } = (loadProto('csi.proto') as unknown as ProtoGrpcType).csi.v1.Identity;
  server.addService(service, {
    GetPluginInfo: unary<GetPluginInfoRequest__Output, GetPluginInfoResponse>(log, 'GetPluginInfo', () =>
      Promise.resolve({ name: DRIVER_NAME, vendor_version: version }),
    ),
    GetPluginCapabilities: unary<GetPluginCapabilitiesRequest__Output, GetPluginCapabilitiesResponse>(
      log,
      'GetPluginCapabilities',
      () => Promise.resolve(PLUGIN_CAPABILITIES),
    ),
    Probe: unary<ProbeRequest__Output, ProbeResponse>(log, 'Probe', () =>
      Promise.resolve({ ready: { value: ready() } }),
    ),
  });
}

const PLUGIN_CAPABILITIES: GetPluginCapabilitiesResponse = {
  capabilities: [
    { service: { type: 'CONTROLLER_SERVICE' } },
    { service: { type: 'VOLUME_ACCESSIBILITY_CONSTRAINTS' } },
    { volume_expansion: { type: 'ONLINE' } },
  ],
};

function packageVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
