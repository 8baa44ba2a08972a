import { describe, expect, it } from 'vitest';
import { judgePool, judgeVolume } from '../../../src/csi/node-condition.js';
import type { AttachmentStatus } from '../../../src/writer/attachments.js';
import { volumeRecord } from './node-fakes.js';

const VOLUME = `vol-${'a'.repeat(32)}`;

function status(change: Partial<AttachmentStatus> = {}): AttachmentStatus {
  const rest = { epoch: 2, regionsOpen: 0, regionsToReconcile: 0, resync: null, waitsFor: [] };
  return { state: 'serving', inSync: ['node-1', 'node-2'], ...rest, ...change };
}

const base = volumeRecord(VOLUME);
const record = { ...base, parameters: { ...base.parameters, replicas: 2 } };
const device = { volume: VOLUME, path: '/dev/loop1', sizeBytes: 1, readOnly: false, failed: false };

function reasons(...given: Parameters<typeof judgeVolume>): string[] {
  return judgeVolume(...given).map(({ status: level, reason }) => `${level} ${reason}`);
}

describe('the health of a volume on this node', () => {
  it.each([
    ['all is well', status(), device, record, []],
    ['a replica is missing', status({ inSync: ['node-1'] }), device, record, ['DEGRADED ReplicasMissing']],
    ['I/O waits', status({ waitsFor: ['the store'] }), device, record, ['INACCESSIBLE IoWaits']],
    ['the writer was fenced', status({ state: 'fenced' }), device, record, ['INACCESSIBLE AttachmentEnded']],
    ['the device has failed', undefined, { ...device, failed: true }, undefined, ['INACCESSIBLE AttachmentEnded']],
    ['the device is gone', status(), undefined, record, ['INACCESSIBLE DeviceMissing']],
    ['it is brought into line without a device', status({ maintenance: true }), undefined, record, []],
    ['it is not attached here', undefined, undefined, record, ['DEGRADED ReplicasMissing']],
    ['the store is away', status({ inSync: ['node-1'] }), device, undefined, []],
  ] as const)('%s', (_claim, attachment, block, known, expected) => {
    expect(reasons(attachment, block, known)).toEqual(expected);
  });

  it('a resync is told with its progress', () => {
    const resync = { node: 'node-2', regionsTotal: 10, regionsDone: 4 };
    const [missing, running] = judgeVolume(status({ inSync: ['node-1'], resync }), device, record);
    expect(missing?.message).toBe('1 of 2 replicas in sync (node-1)');
    expect(running?.message).toContain('4 of 10');
  });

  it('without any replica in sync it is inaccessible', () => {
    const none = { ...record, replicas: record.replicas.map((replica) => ({ ...replica, inSync: false })) };
    expect(reasons(undefined, undefined, none)).toEqual(['INACCESSIBLE NoReplicaInSync']);
  });
});

describe('the health of the pool', () => {
  it('names each failed or refused disk and why', () => {
    const ready = { diskId: 'disk-1', state: 'ready', reason: '' } as const;
    const failed = { diskId: 'disk-2', state: 'failed', reason: 'EIO' } as const;
    expect(judgePool([ready], [])).toEqual([]);
    expect(judgePool([ready, failed], [{ path: '/dev/x', reason: 'not blank' }])).toEqual([
      { status: 'STORAGE_DEGRADED', reason: 'DiskFailed', message: 'disk-2: EIO' },
      { status: 'STORAGE_DEGRADED', reason: 'DiskRefused', message: '/dev/x: not blank' },
    ]);
  });
});
