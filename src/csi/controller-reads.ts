import { unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import { AttachmentReader } from '../control/attachment-reader.js';
import { placementNodes, readCluster, readNodes } from '../control/cluster-view.js';
import { matches } from '../control/placement.js';
import { roomFor, type Room } from '../control/room.js';
import { minimumCapacity } from '../control/sizes.js';
import type { Volumes } from '../control/volumes.js';
import type { ControllerGetVolumeHealthRequest__Output } from '../generated/csi/v1/ControllerGetVolumeHealthRequest.js';
import type { ControllerGetVolumeHealthResponse } from '../generated/csi/v1/ControllerGetVolumeHealthResponse.js';
import type { ControllerGetVolumeRequest__Output } from '../generated/csi/v1/ControllerGetVolumeRequest.js';
import type { ControllerGetVolumeResponse } from '../generated/csi/v1/ControllerGetVolumeResponse.js';
import type { ControllerListVolumeHealthRequest__Output } from '../generated/csi/v1/ControllerListVolumeHealthRequest.js';
import type { ControllerListVolumeHealthResponse } from '../generated/csi/v1/ControllerListVolumeHealthResponse.js';
import type { GetCapacityRequest__Output } from '../generated/csi/v1/GetCapacityRequest.js';
import type { GetCapacityResponse } from '../generated/csi/v1/GetCapacityResponse.js';
import type { ListVolumesRequest__Output } from '../generated/csi/v1/ListVolumesRequest.js';
import type { ListVolumesResponse } from '../generated/csi/v1/ListVolumesResponse.js';
import type { VolumeHealth } from '../generated/csi/v1/VolumeHealth.js';
import { volumeKey } from '../model/ids.js';
import { CAPACITY_STEP_BYTES } from '../model/layout.js';
import type { VolumeRecord } from '../model/records.js';
import { noSuchVolume, parseVolumeId } from './capability.js';
import { fillPage, parsePage, type PageOrder } from './paging.js';
import { parseGetCapacity, type CapacityOrder } from './parse.js';
import { healthMessage, volumeMessage } from './volume-message.js';

/** The calls of CSI Controller that change nothing. */
export function readHandlers(volumes: Volumes, log: Log) {
  const { parts } = volumes;
  return {
    ListVolumes: unary<ListVolumesRequest__Output, ListVolumesResponse>(log, 'ListVolumes', async (request) => {
      const order = parsePage('volumes', request);
      const entries = (await listed(volumes)).map((record) => ({
        key: volumeKey(record.id),
        entry: { volume: volumeMessage(record), status: {} },
      }));
      return fillPage('volumes', entries, order);
    }),

    ControllerGetVolume: unary<ControllerGetVolumeRequest__Output, ControllerGetVolumeResponse>(
      log,
      'ControllerGetVolume',
      async (request) => ({ volume: volumeMessage(await existing(volumes, request.volume_id)), status: {} }),
    ),

    ControllerGetVolumeHealth: unary<ControllerGetVolumeHealthRequest__Output, ControllerGetVolumeHealthResponse>(
      log,
      'ControllerGetVolumeHealth',
      async (request) => {
        const record = await existing(volumes, request.volume_id);
        const reader = new AttachmentReader(parts, await readNodes(parts.store));
        return { volume_health: healthMessage(await reader.seeOne(record)) };
      },
    ),

    ControllerListVolumeHealth: unary<ControllerListVolumeHealthRequest__Output, ControllerListVolumeHealthResponse>(
      log,
      'ControllerListVolumeHealth',
      async (request) => {
        const order = parsePage('volume-health', request);
        const reader = new AttachmentReader(parts, await readNodes(parts.store));
        return fillPage('volume-health', await ailing(volumes, reader, order), order);
      },
    ),

    GetCapacity: unary<GetCapacityRequest__Output, GetCapacityResponse>(log, 'GetCapacity', async (request) => {
      const order = parseGetCapacity(request);
      const nodes = placementNodes(await readCluster(parts.store), parts.liveness);
      // A volume is usable from every node: what one can reach, whether it has disks or not, is the whole cluster's room.
      const reaches = order.topology === null || nodes.some((node) => matches(node.topology, order.topology ?? {}));
      const usable = reaches && !order.unusable;
      return capacityMessage(order, usable ? roomFor(nodes, order.parameters, parts.limits) : NO_ROOM);
    }),
  };
}

const NO_ROOM: Room = { availableBytes: 0, largestBytes: 0 };

function capacityMessage({ content }: CapacityOrder, room: Room): GetCapacityResponse {
  return {
    available_capacity: room.availableBytes,
    maximum_volume_size: { value: room.largestBytes },
    minimum_volume_size: { value: content === null ? CAPACITY_STEP_BYTES : minimumCapacity(content) },
  };
}

async function existing(volumes: Volumes, text: string): Promise<VolumeRecord> {
  const record = await volumes.get(parseVolumeId(text));
  if (record === undefined) throw noSuchVolume(text);
  return record;
}

/** In key order. Half-made ones too, so that they can be seen and deleted; those being deleted are as good as gone. */
async function listed(volumes: Volumes): Promise<VolumeRecord[]> {
  const { items } = await volumes.parts.store.list('volume');
  return items.map((item) => item.record).filter((record) => record.phase !== 'deleting');
}

/** How many volumes are looked at between two looks at whether the page is full. */
const GROUP = 256;

/** The volumes after the page's start with which something is wrong, until there are more than it takes. */
async function ailing(
  volumes: Volumes,
  reader: AttachmentReader,
  { after, maxEntries }: PageOrder,
): Promise<{ key: string; entry: VolumeHealth }[]> {
  const records = (await listed(volumes)).filter((record) => volumeKey(record.id) > after);
  const found: { key: string; entry: VolumeHealth }[] = [];
  for (let start = 0; start < records.length && found.length <= maxEntries; start += GROUP) {
    for (const seen of await reader.see(records.slice(start, start + GROUP))) {
      if (seen.health.conditions.length === 0) continue;
      found.push({ key: volumeKey(seen.record.id), entry: healthMessage(seen) });
    }
  }
  return found;
}
