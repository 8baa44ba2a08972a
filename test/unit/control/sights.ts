import type { Standing } from '../../../src/control/replica-standing.js';
import type { ReplicaSight, ReplicaTold, VolumeSight, WriterSight } from '../../../src/control/volume-sight.js';
import type { VolumeParameters, VolumeRecord } from '../../../src/model/records.js';

export const PRESENT: Standing = { kind: 'present' };
export const UNSURE: Standing = { kind: 'unsure', reason: 'the lease was not seen of late' };
export const AWAY: Standing = { kind: 'away', reason: 'node does not renew its lease', forMs: 130_000 };
export const LOST: Standing = { kind: 'lost', reason: 'node does not renew its lease', mayReturn: true };
export const DEAD: Standing = { kind: 'lost', reason: 'the disk has failed', mayReturn: false };

const STANDINGS: Readonly<Record<string, Standing>> = { '?': UNSURE, '-': AWAY, '!': LOST, x: DEAD };

const WELL: ReplicaTold = { fresh: true, crashMark: false, openRegions: 0, damagedBlocks: 0 };

/**
 * A volume from words: `a* b- c` is a with an in-sync replica, b behind on a node that is away, c behind on a live node.
 * After the name: `*` in sync; `?` unsure, `-` away, `!` lost, `x` dead.
 */
export function sightOf(
  replicas: string,
  change: {
    parameters?: Partial<VolumeParameters>;
    writer?: WriterSight;
    told?: Readonly<Record<string, Partial<ReplicaTold> | undefined>>;
    record?: Partial<VolumeRecord>;
  } = {},
): VolumeSight {
  const sights = replicas.split(' ').map((word): ReplicaSight => {
    const [, node = '', marks = ''] = /^([a-w])(.*)$/.exec(word) ?? [];
    const standing = Object.entries(STANDINGS).find(([mark]) => marks.includes(mark))?.[1] ?? PRESENT;
    const told = change.told && node in change.told ? change.told[node] : {};
    return {
      node,
      disk: `disk-${node}`,
      inSync: marks.includes('*'),
      standing,
      told: told && { ...WELL, ...told },
    };
  });
  const writer = change.writer ?? { kind: 'none' };
  const record: VolumeRecord = {
    schema: 1,
    id: `vol-${'a'.repeat(32)}`,
    name: 'v',
    capacityBytes: 1024 ** 3,
    parameters: {
      replicas: 2,
      minInSync: 1,
      zones: 'spread',
      failover: 'auto',
      diskTemplate: '',
      mkfsOptions: [],
      ...change.parameters,
    },
    content: { kind: 'block' },
    format: 'blank',
    phase: 'ready',
    accessibleTopology: [],
    epoch: 3,
    writer: writer.kind === 'none' ? null : { node: writer.node, session: 'f'.repeat(32) },
    quiet: false,
    replicas: sights.map(({ node, disk, inSync }) => ({ node, disk, inSync })),
    createdAt: '',
    lastAttachedAt: '',
    ...change.record,
  };
  return { record, replicas: sights, writer };
}

export function attachedAt(node: string, standing: Standing = PRESENT, heard = false): WriterSight {
  return { kind: 'attached', node, standing, heard };
}

export function maintainedAt(node: string, standing: Standing = PRESENT): WriterSight {
  return { kind: 'maintenance', node, standing, heard: false };
}
