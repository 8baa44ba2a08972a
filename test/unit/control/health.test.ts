import { describe, expect, it } from 'vitest';
import { healthOf, type AttachmentAnswer, type Health } from '../../../src/control/health.js';
import type { Attachment__Output } from '../../../src/generated/holdfast/v1/Attachment.js';
import type { DiskRecord, VolumeRecord } from '../../../src/model/records.js';

const record: VolumeRecord = {
  schema: 1,
  id: `vol-${'a'.repeat(32)}`,
  name: 'v',
  capacityBytes: 1024 ** 3,
  parameters: { replicas: 2, minInSync: 1, zones: 'spread', failover: 'auto', diskTemplate: '', mkfsOptions: [] },
  content: { kind: 'block' },
  format: 'blank',
  phase: 'ready',
  accessibleTopology: [],
  epoch: 3,
  writer: { node: 'a', session: 'f'.repeat(32) },
  quiet: false,
  replicas: [
    { node: 'a', disk: 'disk-a', inSync: true },
    { node: 'b', disk: 'disk-b', inSync: true },
  ],
  createdAt: '',
  lastAttachedAt: '',
};

const disks = new Map(
  ['a', 'b'].map((node): [string, DiskRecord] => [
    `disk-${node}`,
    { schema: 1, diskId: `disk-${node}`, node, capacityBytes: 1, usedBytes: 0, state: 'ready', reason: '' },
  ]),
);

const serving: Attachment__Output = {
  state: 'serving',
  epoch: 3,
  in_sync: ['a', 'b'],
  regions_open: 0,
  regions_to_reconcile: 0,
  resync: null,
  waits_for: [],
  nbd_uri: '',
  maintenance: false,
};

function health(change: Partial<VolumeRecord>, attachment: AttachmentAnswer = serving, expired: string[] = []): Health {
  const liveness = { state: (node: string) => (expired.includes(node) ? ('expired' as const) : ('live' as const)) };
  return healthOf({ record: { ...record, ...change }, attachment, liveness, disks });
}

function reasons(told: Health): string[] {
  return [told.word, ...told.conditions.map((condition) => condition.reason)];
}

describe('health', () => {
  it('all in sync and nothing waiting is healthy', () => {
    expect(health({})).toEqual({ word: 'healthy', conditions: [] });
    expect(reasons(health({ writer: null }, null))).toEqual(['healthy']);
  });

  it('a replica out of sync, a node away and a missing replica are each told', () => {
    const stale = record.replicas.map((replica) => ({ ...replica, inSync: replica.node === 'a' }));
    expect(reasons(health({ replicas: stale }))).toEqual(['degraded', 'ReplicasNotInSync']);
    expect(reasons(health({ replicas: stale }, serving, ['b']))).toEqual([
      'degraded',
      'NodesNotReady',
      'ReplicasNotInSync',
    ]);
    expect(reasons(health({ replicas: record.replicas.slice(0, 1) }))).toEqual(['degraded', 'ReplicasMissing']);
  });

  it('a resync tells how far it is', () => {
    const told = health({}, { ...serving, resync: { node: 'b', regions_total: 256, regions_done: 12 } });
    expect(reasons(told)).toEqual(['resyncing', 'Resyncing']);
    expect(told.conditions[0]?.message).toContain('12 of 256');
  });

  it('no in-sync replica within reach is unavailable, and none at all may be data loss', () => {
    expect(health({ writer: null }, null, ['a', 'b'])).toMatchObject({ word: 'unavailable' });
    const none = health({ replicas: record.replicas.map((replica) => ({ ...replica, inSync: false })) });
    expect(none.conditions[0]).toMatchObject({ severity: 'data-loss', reason: 'NoReplicaInSync' });
  });

  it('a silent, fenced or waiting writer is not healthy', () => {
    expect(reasons(health({}, 'unanswered'))).toEqual(['degraded', 'WriterUnanswered']);
    expect(reasons(health({}, 'unanswered', ['a']))).toEqual(['degraded', 'NodesNotReady', 'WriterNotReady']);
    expect(reasons(health({}, { ...serving, state: 'fenced' }))).toEqual(['unavailable', 'AttachmentEnded']);
    expect(health({}, { ...serving, waits_for: ['replica on b'] }).conditions[0]?.message).toContain('replica on b');
  });

  it('a volume that is being made or deleted says so', () => {
    expect(health({ phase: 'creating', writer: null }, null).word).toBe('creating');
    expect(health({ phase: 'deleting', writer: null }, null).word).toBe('deleting');
  });

  it('no reason comes twice for one volume', () => {
    const worst = health({ replicas: record.replicas.map((r) => ({ ...r, inSync: false })) }, 'unanswered', ['a', 'b']);
    expect(new Set(reasons(worst)).size).toBe(reasons(worst).length);
  });
});
