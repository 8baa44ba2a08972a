import type { GetStatusResponse } from '../generated/holdfast/v1/GetStatusResponse.js';
import type { NodeView } from '../generated/holdfast/v1/NodeView.js';
import type { VolumeView } from '../generated/holdfast/v1/VolumeView.js';
import type { VolumeId } from '../model/ids.js';
import type { NodeRecord } from '../model/records.js';
import { threadOf } from '../model/threads.js';
import type { VolumeSeen } from './attachment-reader.js';
import { provisionedByDisk, type ClusterRecords, type NodeLiveness } from './cluster-view.js';

/** What the admin service answers, made from records. Pure. */

export function volumeView(
  { record, attachment, health }: VolumeSeen,
  nodes: readonly NodeRecord[],
  liveness: NodeLiveness,
): VolumeView {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  return {
    record_json: JSON.stringify(record),
    health: health.word,
    conditions: health.conditions.map(({ reason, message }) => `${reason}: ${message}`),
    attachment: attachment === 'unanswered' ? null : attachment,
    replicas: record.replicas.map(({ node, disk, inSync }) => ({
      node,
      disk_id: disk,
      in_sync: inSync,
      node_ready: liveness.state(node) === 'live',
      nbd_uri: replicaUri(byName.get(node), record.id),
    })),
  };
}

/** Read-only: a connection without a session may only read. '' where the node is not registered. */
export function replicaUri(node: NodeRecord | undefined, volume: VolumeId): string {
  const port = node?.dataPorts[threadOf(volume, node.dataPorts.length)];
  if (node === undefined || port === undefined) return '';
  const host = node.host.includes(':') ? `[${node.host}]` : node.host;
  return `nbd://${host}:${port}/${volume}`;
}

export function nodeView(node: NodeRecord, cluster: ClusterRecords, liveness: NodeLiveness): NodeView {
  const replicas = cluster.volumes.filter((volume) => volume.replicas.some((replica) => replica.node === node.name));
  return {
    record_json: JSON.stringify(node),
    ready: liveness.state(node.name) === 'live',
    disk_json: cluster.disks.filter((disk) => disk.node === node.name).map((disk) => JSON.stringify(disk)),
    replicas: replicas.length,
    attachments: cluster.volumes.filter((volume) => volume.writer?.node === node.name).length,
    provisioned_bytes: replicas.reduce((sum, volume) => sum + volume.capacityBytes, 0),
  };
}

export function statusView(
  clusterId: string,
  { nodes, disks, volumes }: ClusterRecords,
  liveness: NodeLiveness,
  seen: readonly VolumeSeen[],
): GetStatusResponse {
  const sum = (values: Iterable<number>): number => [...values].reduce((total, value) => total + value, 0);
  return {
    cluster_id: clusterId,
    nodes_ready: nodes.filter((node) => liveness.state(node.name) === 'live').length,
    nodes_total: nodes.length,
    volumes_total: volumes.length,
    volumes_degraded: seen.filter(({ health }) => AILING.has(health.word)).length,
    volumes_attached: volumes.filter((volume) => volume.writer !== null).length,
    capacity_bytes: sum(disks.map((disk) => disk.capacityBytes)),
    used_bytes: sum(disks.map((disk) => disk.usedBytes)),
    provisioned_bytes: sum(provisionedByDisk(volumes).values()),
  };
}

const AILING: ReadonlySet<string> = new Set(['degraded', 'resyncing', 'unavailable']);
