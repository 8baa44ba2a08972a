import type { Condition } from '../control/health.js';
import type { VolumeSeen } from '../control/attachment-reader.js';
import type { Volume } from '../generated/csi/v1/Volume.js';
import type { VolumeHealth } from '../generated/csi/v1/VolumeHealth.js';
import type { VolumeHealthErrorType } from '../generated/csi/v1/VolumeHealthErrorType.js';
import type { VolumeRecord } from '../model/records.js';

/** A volume as CSI tells it. No topology is the truth: a volume is usable from every node. */
export function volumeMessage(record: VolumeRecord): Volume {
  return {
    volume_id: record.id,
    capacity_bytes: record.capacityBytes,
    accessible_topology: record.accessibleTopology.map((segments) => ({ segments })),
  };
}

const HEALTH_STATUS: Readonly<Record<Condition['severity'], VolumeHealthErrorType>> = {
  degraded: 'DEGRADED',
  inaccessible: 'INACCESSIBLE',
  'data-loss': 'DATA_LOSS',
};

/** How a volume fares, as CSI tells it; no status where nothing is wrong. */
export function healthMessage({ record, health }: VolumeSeen): VolumeHealth {
  return {
    volume_id: record.id,
    health_statuses: health.conditions.map(({ severity, reason, message }) => ({
      status: HEALTH_STATUS[severity],
      reason,
      message,
    })),
  };
}
