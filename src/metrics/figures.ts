import type { Tell } from '../base/meters.js';
import { provisionedByDisk, type ClusterRecords, type NodeLiveness } from '../control/cluster-view.js';
import { healthOf, type HealthWord } from '../control/health.js';
import type { VolumeRecord } from '../model/records.js';
import type { DiskReport } from '../pool/disk.js';

/** What a node plugin tells of its disks and its lease. */
export interface NodeState {
  readonly disks: readonly DiskReport[];
  readonly refusedDisks: number;
  /** Milliseconds since the lease was renewed; undefined: it never was. */
  readonly leaseAgeMs: number | undefined;
}

export function tellNode(tell: Tell, { disks, refusedDisks, leaseAgeMs }: NodeState): void {
  for (const { diskId: disk, capacityBytes, usedBytes, state } of disks) {
    tell('holdfast_pool_disk_bytes', capacityBytes, { disk });
    tell('holdfast_pool_disk_used_bytes', usedBytes, { disk });
    tell('holdfast_pool_disk_ready', Number(state === 'ready'), { disk });
  }
  tell('holdfast_pool_disks_refused', refusedDisks);
  if (leaseAgeMs !== undefined) tell('holdfast_lease_age_seconds', leaseAgeMs / 1_000);
}

/** A data thread, as the main thread of its node sees it. */
export interface ThreadState {
  readonly snapshot: unknown;
  readonly busyMs: number;
}

export function tellThreads(tell: Tell, threads: readonly ThreadState[]): void {
  for (const [index, { snapshot, busyMs }] of threads.entries()) {
    const thread = String(index);
    tell('holdfast_data_thread_answers', Number(snapshot !== undefined), { thread });
    tell('holdfast_data_thread_busy_seconds_total', busyMs / 1_000, { thread });
  }
}

/** The leases, as the controller watches them. */
export interface WatchedLeases extends NodeLiveness {
  /** How long the lease has been watched to stand still, in milliseconds; undefined: it is not known. */
  stillMs(node: string): number | undefined;
}

const LEASE_STATES = ['live', 'expired', 'unknown'] as const;
const HEALTH_WORDS: readonly HealthWord[] = ['healthy', 'degraded', 'unavailable', 'creating', 'deleting'];

/** What the controller tells of the cluster. Writers are not asked: a scrape must not wait for nodes. */
export function tellCluster(
  tell: Tell,
  { nodes, disks, volumes }: ClusterRecords,
  { leases, unhealed }: { readonly leases: WatchedLeases; readonly unhealed: number },
): void {
  for (const state of LEASE_STATES) {
    tell('holdfast_nodes', nodes.filter((node) => leases.state(node.name) === state).length, { state });
  }
  for (const { name: node } of nodes) {
    const stillMs = leases.stillMs(node);
    if (stillMs !== undefined) tell('holdfast_node_lease_age_seconds', stillMs / 1_000, { node });
  }
  const byId = new Map(disks.map((disk) => [disk.diskId, disk]));
  const words = volumes.map((record) => healthOf({ record, liveness: leases, disks: byId, attachment: null }).word);
  for (const health of HEALTH_WORDS) {
    tell('holdfast_volumes', words.filter((word) => word === health).length, { health });
  }
  tell('holdfast_volumes_unhealed', unhealed);
  for (const [state, count] of Object.entries(countReplicas(volumes))) tell('holdfast_replicas', count, { state });
  tell('holdfast_volumes_attached', volumes.filter((volume) => volume.writer !== null).length);
  tell('holdfast_pool_bytes', sum(disks.map((disk) => disk.capacityBytes)));
  tell('holdfast_pool_used_bytes', sum(disks.map((disk) => disk.usedBytes)));
  tell('holdfast_pool_provisioned_bytes', sum(provisionedByDisk(volumes).values()));
}

function countReplicas(volumes: readonly VolumeRecord[]): Readonly<Record<'in-sync' | 'behind' | 'missing', number>> {
  const replicas = volumes.flatMap((volume) => volume.replicas);
  const inSync = replicas.filter((replica) => replica.inSync).length;
  const missing = volumes.map((volume) => Math.max(0, volume.parameters.replicas - volume.replicas.length));
  return { 'in-sync': inSync, behind: replicas.length - inSync, missing: sum(missing) };
}

function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
