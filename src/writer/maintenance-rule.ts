import type { NodeName } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { AttachmentStatus } from './attachments.js';
import type { Timing } from './timing.js';

/** What a writer without a device goes by. */
export interface MaintenanceFacts {
  readonly status: AttachmentStatus;
  readonly record: Pick<VolumeRecord, 'replicas'>;
  /** In-sync replicas that are still to leave. */
  readonly drop: readonly NodeName[];
  /** Since it got any further. */
  readonly idleMs: number;
  readonly totalMs: number;
}

/**
 * go-on: there is work, and it gets done. drop: only the replicas that have to leave are left. leave: all is done, or
 * what is left can't be done now (a node is away); the controller sees that and comes back. Open regions are closed by
 * the release.
 */
export function judgeMaintenance(
  { status, record, drop, idleMs, totalMs }: MaintenanceFacts,
  { maintenanceIdleMs, maintenanceMs }: Pick<Timing, 'maintenanceIdleMs' | 'maintenanceMs'>,
): 'go-on' | 'drop' | 'leave' {
  const allInSync = record.replicas.every(({ inSync }) => inSync);
  if (status.regionsToReconcile === 0 && allInSync) return drop.length > 0 ? 'drop' : 'leave';
  if (totalMs >= maintenanceMs) return 'leave';
  if (idleMs < maintenanceIdleMs) return 'go-on';
  return status.regionsToReconcile === 0 && drop.length > 0 ? 'drop' : 'leave';
}

/** Differs where the writer got further. */
export function progressOf({ inSync, regionsToReconcile, resync }: AttachmentStatus): string {
  const copied = resync === null ? '' : `${resync.node} ${resync.regionsDone} of ${resync.regionsTotal}`;
  return [inSync.toSorted().join(' '), regionsToReconcile, copied].join('; ');
}
