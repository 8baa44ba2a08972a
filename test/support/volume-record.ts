import type { NodeName, VolumeId } from '../../src/model/ids.js';
import type { VolumeRecord } from '../../src/model/records.js';

/** The record of a ready block volume with an in-sync replica on each of the nodes, whose disk is `disk-NODE`. */
export function blockVolume(
  id: VolumeId,
  capacityBytes: number,
  nodes: readonly NodeName[],
  change: Partial<Omit<VolumeRecord, 'parameters'>> & { parameters?: Partial<VolumeRecord['parameters']> } = {},
): VolumeRecord {
  return {
    schema: 1,
    id,
    name: id,
    capacityBytes,
    content: { kind: 'block' },
    format: 'blank',
    phase: 'ready',
    accessibleTopology: [],
    epoch: 1,
    writer: null,
    quiet: true,
    replicas: nodes.map((node) => ({ node, disk: `disk-${node}`, inSync: true })),
    createdAt: '',
    lastAttachedAt: '',
    ...change,
    parameters: {
      replicas: nodes.length,
      minInSync: 1,
      zones: 'spread',
      failover: 'auto',
      diskTemplate: '',
      mkfsOptions: [],
      ...change.parameters,
    },
  };
}
