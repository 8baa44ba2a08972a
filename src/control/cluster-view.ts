import { TOPOLOGY_ZONE } from '../config.js';
import type { NodeName } from '../model/ids.js';
import type { DiskRecord, NodeRecord, Versioned, VolumeRecord } from '../model/records.js';
import type { LeaseState } from '../store/lease-standing.js';
import type { RecordStore } from '../store/store.js';
import type { PlacementNode } from './placement.js';

/** What the leases say about nodes; see lease-standing.ts. */
export interface NodeLiveness {
  state(node: NodeName): LeaseState;
}

/** The cluster as the store holds it at one moment. */
export interface ClusterRecords {
  readonly nodes: readonly NodeRecord[];
  readonly disks: readonly DiskRecord[];
  readonly volumes: readonly VolumeRecord[];
}

export async function readCluster(store: RecordStore): Promise<ClusterRecords> {
  const [nodes, disks, volumes] = await Promise.all([store.list('node'), store.list('disk'), store.list('volume')]);
  return { nodes: recordsOf(nodes.items), disks: recordsOf(disks.items), volumes: recordsOf(volumes.items) };
}

/** Where replicas may lie, without the volumes, of which there may be very many. */
export async function readNodes(store: RecordStore): Promise<Pick<ClusterRecords, 'nodes' | 'disks'>> {
  const [nodes, disks] = await Promise.all([store.list('node'), store.list('disk')]);
  return { nodes: recordsOf(nodes.items), disks: recordsOf(disks.items) };
}

/** The cluster as placement looks at it. */
export function placementNodes(cluster: ClusterRecords, liveness: NodeLiveness): PlacementNode[] {
  const provisioned = provisionedByDisk(cluster.volumes);
  return cluster.nodes.map((node) => ({
    name: node.name,
    topology: node.topology,
    zone: node.topology[TOPOLOGY_ZONE] ?? '',
    ready: liveness.state(node.name) === 'live',
    cordoned: node.cordoned,
    disks: cluster.disks
      .filter((disk) => disk.node === node.name)
      .map((disk) => ({
        id: disk.diskId,
        state: disk.state,
        capacityBytes: disk.capacityBytes,
        usedBytes: disk.usedBytes,
        provisionedBytes: provisioned.get(disk.diskId) ?? 0,
      })),
  }));
}

/** The sum of the capacities of the volumes that have a replica on each disk. */
export function provisionedByDisk(volumes: readonly VolumeRecord[]): Map<string, number> {
  const sums = new Map<string, number>();
  for (const volume of volumes) {
    for (const { disk } of volume.replicas) sums.set(disk, (sums.get(disk) ?? 0) + volume.capacityBytes);
  }
  return sums;
}

function recordsOf<T>(items: readonly Versioned<T>[]): T[] {
  return items.map((item) => item.record);
}
