import { describe, expect, it } from 'vitest';
import {
  afterCreate,
  newDisk,
  ownTags,
  tokenOf,
  tryAgain,
  type DiskState,
  type EbsDisk,
} from '../../../src/ebs/disk-state.js';
import {
  STEADY_MS,
  STUCK_MS,
  type DiskFacts,
  type Ec2Sight,
  type NodeSight,
  type Wish,
} from '../../../src/ebs/disk-sight.js';
import { MAX_VANISHED, nextStep, type Step } from '../../../src/ebs/disk-steps.js';
import type { EbsVolume, VolumeAttachment } from '../../../src/ebs/ec2.js';

const CLUSTER = 'cluster-1';
const HERE = { instanceId: 'i-a', device: '/dev/xvdba' };
const WANTED_HERE: Wish = { kind: 'in-pool', instanceId: 'i-a' };
const WANTED_THERE: Wish = { kind: 'in-pool', instanceId: 'i-b' };
const ABSENT: NodeSight = { kind: 'absent' };

function diskIn(state: DiskState, fields: Partial<EbsDisk> = {}): EbsDisk {
  return { ...newDisk('disk-1'), ...fields, state };
}

function volumeOf(fields: Partial<EbsVolume> = {}, generation = 1): EbsVolume {
  return {
    id: 'vol-1',
    zone: 'a',
    type: 'gp3',
    sizeGiB: 100,
    encrypted: true,
    state: 'available',
    attachments: [],
    tags: ownTags({ ...newDisk('disk-1'), generation }, CLUSTER),
    ...fields,
  };
}

function attachedTo(instanceId: string, state: VolumeAttachment['state'] = 'attached'): Partial<EbsVolume> {
  return { state: 'in-use', attachments: [{ instanceId, device: '/dev/xvdba', state, deleteOnTermination: false }] };
}

const shown = (volumes: readonly EbsVolume[], steadyMs = STEADY_MS): Ec2Sight => ({ volumes, steadyMs });

function factsOf(fields: Partial<DiskFacts> & { readonly sight?: NodeSight }): DiskFacts {
  return {
    clusterId: CLUSTER,
    wish: WANTED_HERE,
    ec2: shown([volumeOf()]),
    node: () => fields.sight ?? { kind: 'unknown' },
    isGone: () => false,
    freeDevice: '/dev/xvdbb',
    deviceRefused: false,
    mayHoldLastReplica: false,
    kmsKey: 'alias/data',
    ...fields,
  };
}

const step = (disk: EbsDisk, fields: Parameters<typeof factsOf>[0]): Step => nextStep(disk, factsOf(fields));

const placed = (kind: 'attaching' | 'attached' | 'in-pool' | 'detaching', fields: Partial<EbsDisk> = {}): EbsDisk =>
  diskIn({ kind, volumeId: 'vol-1', place: HERE }, fields);

describe('a disk is made', () => {
  it('with a token that is recorded before the call and stays until the outcome is known', () => {
    const first = step(newDisk('disk-1'), { ec2: shown([], 0) });
    expect(first.record?.state).toEqual({ kind: 'creating', calls: 1, refusal: '' });
    expect(first.act).toEqual({ kind: 'create', token: 'disk-1-1', tags: ownTags(newDisk('disk-1'), CLUSTER) });
    const asked = first.record ?? newDisk('');
    expect(afterCreate(asked, asked, { kind: 'unknown' })).toBe(asked);
    const second = step(asked, { ec2: shown([], 0) });
    expect(second.act).toEqual(first.act);
    expect(second.record?.state).toMatchObject({ calls: 2 });
  });

  it('with the next token at once where the first call was refused for certain', () => {
    const asked = diskIn({ kind: 'creating', calls: 1, refusal: '' });
    const refused = afterCreate(asked, asked, { kind: 'refused', reason: 'denied' });
    expect(refused).toEqual(diskIn({ kind: 'wanted', refusal: 'denied' }, { generation: 2 }));
    expect(tokenOf(refused)).toBe('disk-1-2');
  });

  it('with the next token only after EC2 has shown nothing for a while, where an earlier call is in doubt', () => {
    const asked = diskIn({ kind: 'creating', calls: 2, refusal: '' });
    const doubtful = afterCreate(asked, asked, { kind: 'refused', reason: 'denied' });
    expect(doubtful.generation).toBe(1);
    expect(step(doubtful, { ec2: shown([], STEADY_MS - 1) }).act.kind).toBe('wait');
    expect(step(doubtful, { ec2: undefined }).act.kind).toBe('wait');
    expect(step(doubtful, { ec2: shown([]) }).record?.generation).toBe(2);
  });

  it('from the volume that a lost answer has left', () => {
    const asked = diskIn({ kind: 'creating', calls: 1, refusal: '' });
    const found = step(asked, { ec2: shown([volumeOf({ state: 'creating' })], 0) });
    expect(found.record?.state).toEqual({ kind: 'made', volumeId: 'vol-1' });
  });

  it('not twice by an answer that comes too late', () => {
    const later = diskIn({ kind: 'creating', calls: 1, refusal: '' }, { generation: 2 });
    const asked = diskIn({ kind: 'creating', calls: 1, refusal: '' });
    expect(afterCreate(later, asked, { kind: 'made', volumeId: 'vol-1' })).toBe(later);
  });
});

describe('B05: a volume that vanishes after EC2 has named it', () => {
  const made = diskIn({ kind: 'made', volumeId: 'vol-1' });

  it('is not given up while answers may be out of date', () => {
    expect(step(made, { ec2: shown([], STEADY_MS - 1) })).toMatchObject({ act: { kind: 'wait' } });
    expect(step(made, { ec2: shown([], STEADY_MS - 1) }).record).toBeUndefined();
  });

  it('is made anew a few times with another token each, then the reason names key and permission', () => {
    let disk: EbsDisk = made;
    for (let count = 1; count < MAX_VANISHED; count++) {
      disk = step(disk, { ec2: shown([]) }).record ?? disk;
      expect(disk).toMatchObject({ generation: count + 1, vanished: count, state: { kind: 'wanted' } });
      disk = { ...disk, state: { kind: 'made', volumeId: `vol-${count + 1}` } };
    }
    const failed = step(disk, { ec2: shown([]) });
    expect(failed.record?.state.kind).toBe('failed');
    expect(failed.why).toBe(
      'volume vol-3 vanished after EC2 had named it, as did 2 before it; check that KMS key alias/data is there and ' +
        'enabled, and that the role has kms:CreateGrant, kms:Decrypt, kms:DescribeKey and ' +
        'kms:GenerateDataKeyWithoutPlaintext on it',
    );
    const repaired = tryAgain(failed.record ?? disk);
    expect(repaired).toMatchObject({ generation: MAX_VANISHED + 1, vanished: 0, state: { kind: 'wanted' } });
  });

  it('is cleared away if it turns up after all', () => {
    const wanted = diskIn({ kind: 'made', volumeId: 'vol-2' }, { generation: 2 });
    const both = [volumeOf(), volumeOf({ id: 'vol-2', state: 'creating' }, 2)];
    expect(step(wanted, { ec2: shown(both) }).act).toEqual({ kind: 'delete', volumeId: 'vol-1' });
    expect(step(wanted, { ec2: shown(both, 0) }).act.kind).toBe('wait');
  });

  it('is not cleared away where its tags do not tell that this disk has made it', () => {
    const tags = { ...volumeOf().tags, 'holdfast.dev/generation': '' };
    const both = [volumeOf({ id: 'vol-0', tags }), volumeOf()];
    expect(step(placed('in-pool'), { ec2: shown(both), sight: { kind: 'in-pool' } }).act.kind).toBe('rest');
  });

  it('is not cleared away where someone has restored it from a snapshot, tags and all', () => {
    const both = [volumeOf({ id: 'vol-0', snapshotId: 'snap-1' }), volumeOf()];
    expect(step(placed('in-pool'), { ec2: shown(both), sight: { kind: 'in-pool' } }).act.kind).toBe('rest');
  });

  it('is never made anew for a disk that was in use', () => {
    const used = placed('in-pool', { format: 'done' });
    const lost = step(used, { ec2: shown([]), sight: ABSENT });
    expect(lost.record?.state).toMatchObject({
      kind: 'failed',
      reason: 'volume vol-1 is no more; someone has deleted it',
    });
  });
});

describe('B03: a disk is attached', () => {
  it('by a call that names the instance of the record, written before', () => {
    const first = step(diskIn({ kind: 'available', volumeId: 'vol-1' }), {});
    expect(first.record?.state).toEqual({
      kind: 'attaching',
      volumeId: 'vol-1',
      place: { ...HERE, device: '/dev/xvdbb' },
    });
    expect(first.act).toEqual({ kind: 'attach', volumeId: 'vol-1', instanceId: 'i-a', device: '/dev/xvdbb' });
  });

  it('only when the node sees the device, whatever EC2 shows', () => {
    const stale = step(placed('attaching'), { ec2: shown([volumeOf(attachedTo('i-a'))]), sight: ABSENT });
    expect(stale).toMatchObject({ act: { kind: 'wait' } });
    const seen = step(placed('attaching'), {
      ec2: shown([volumeOf()]),
      sight: { kind: 'present', content: 'blank', holds: '' },
    });
    expect(seen.record?.state.kind).toBe('attached');
  });

  it('again where EC2 shows no attachment, at the same instance and by the same name', () => {
    const repeated = step(placed('attaching'), { sight: ABSENT });
    expect(repeated.act).toEqual({ kind: 'attach', volumeId: 'vol-1', ...HERE });
    expect(repeated.record).toBeUndefined();
  });

  it('by another name where EC2 has refused the first', () => {
    const renamed = step(placed('attaching'), { deviceRefused: true });
    expect(renamed.record?.state).toMatchObject({
      kind: 'attaching',
      place: { instanceId: 'i-a', device: '/dev/xvdbb' },
    });
  });

  it('to another node only after the first one certainly has let go', () => {
    const leaving = step(placed('in-pool'), { wish: WANTED_THERE });
    expect(leaving.record?.state.kind).toBe('detaching');
    const detaching = placed('detaching');
    const at = (fields: Parameters<typeof factsOf>[0]): Step => step(detaching, { wish: WANTED_THERE, ...fields });
    const attached = shown([volumeOf(attachedTo('i-a'))]);
    expect(at({ ec2: attached, sight: { kind: 'in-pool' } }).act.kind).toBe('leave');
    expect(at({ ec2: attached, sight: { kind: 'unknown' } }).act.kind).toBe('wait');
    expect(at({ ec2: attached, sight: ABSENT }).act).toEqual({ kind: 'detach', volumeId: 'vol-1', instanceId: 'i-a' });
    expect(at({ ec2: shown([volumeOf()], STEADY_MS - 1), sight: ABSENT }).act.kind).toBe('wait');
    expect(at({ sight: ABSENT }).record?.state.kind).toBe('available');
  });

  it('to the replacement of a node that is gone without asking the old one', () => {
    const isGone = (instanceId: string): boolean => instanceId === 'i-a';
    const moved = step(placed('detaching'), { wish: WANTED_THERE, isGone });
    expect(moved.record?.state.kind).toBe('available');
  });

  it('anew where the attachment never arrives', () => {
    const facts = { ec2: shown([volumeOf(attachedTo('i-a', 'attaching'))], STUCK_MS), sight: ABSENT };
    expect(step(placed('attaching'), facts).record?.state.kind).toBe('detaching');
  });

  it('not where there is no room, and says so', () => {
    const available = diskIn({ kind: 'available', volumeId: 'vol-1' });
    expect(step(available, { freeDevice: undefined })).toEqual({
      act: { kind: 'wait' },
      why: 'instance i-a has no room for volume vol-1',
    });
  });
});

describe('B07: a disk joins the pool', () => {
  const present = (content: 'blank' | 'ours' | 'other'): Parameters<typeof factsOf>[0] => ({
    sight: { kind: 'present', content, holds: content === 'other' ? 'an ext4 filesystem' : '' },
  });

  it('and is formatted only if it reads blank and was never used', () => {
    const first = step(placed('attached'), present('blank'));
    expect(first.record?.format).toBe('asked');
    expect(first.act).toMatchObject({ kind: 'join', mayFormat: true });
    expect(step(placed('attached', { format: 'asked' }), present('blank')).act).toMatchObject({ mayFormat: true });
    expect(step(placed('attached', { format: 'asked' }), present('ours')).act).toMatchObject({ mayFormat: false });
    const blank = step(placed('attached', { format: 'done' }), present('blank'));
    expect(blank.record?.state).toMatchObject({
      kind: 'failed',
      reason: 'volume vol-1 on i-a should hold disk disk-1, but reads blank, though it was in use',
    });
  });

  it('not where the device holds something else, and both are named', () => {
    expect(step(placed('attached'), present('other')).record?.state).toMatchObject({
      kind: 'failed',
      reason: 'volume vol-1 on i-a should hold disk disk-1, but holds an ext4 filesystem',
    });
  });

  it('and rests there, also while EC2 does not answer', () => {
    const joined = step(placed('attached', { format: 'asked' }), { sight: { kind: 'in-pool' }, ec2: undefined });
    expect(joined.record).toMatchObject({ format: 'done', vanished: 0, state: { kind: 'in-pool' } });
    expect(step(placed('in-pool'), { sight: { kind: 'in-pool' }, ec2: undefined }).act.kind).toBe('rest');
  });
});

describe('a disk is deleted', () => {
  const wish: Wish = { kind: 'deleted' };

  it('never while it may hold the last in-sync replica', () => {
    const states: DiskState[] = [
      { kind: 'available', volumeId: 'vol-1' },
      { kind: 'deleting', volumeId: 'vol-1' },
      { kind: 'in-pool', volumeId: 'vol-1', place: HERE },
    ];
    for (const state of states) {
      const kept = step(diskIn(state), { wish, mayHoldLastReplica: true, sight: { kind: 'in-pool' } });
      expect(kept).toEqual({
        act: { kind: 'wait' },
        why: 'volume vol-1 may hold the last in-sync replica of a volume',
      });
    }
  });

  it('after it was let go, and is gone once EC2 has not shown it for a while', () => {
    expect(step(placed('in-pool'), { wish }).record?.state.kind).toBe('detaching');
    const first = step(diskIn({ kind: 'available', volumeId: 'vol-1' }), { wish });
    expect(first.record?.state).toEqual({ kind: 'deleting', volumeId: 'vol-1' });
    expect(first.act).toEqual({ kind: 'delete', volumeId: 'vol-1' });
    const deleting = diskIn({ kind: 'deleting', volumeId: 'vol-1' });
    expect(step(deleting, { wish, ec2: shown([], 0) }).act.kind).toBe('wait');
    expect(step(deleting, { wish, ec2: shown([volumeOf({ state: 'deleting' })]) }).record?.state.kind).toBe('gone');
  });

  it('also where it had failed', () => {
    const failed = diskIn({ kind: 'failed', reason: 'r', from: { kind: 'available', volumeId: 'vol-1' } });
    expect(step(failed, {}).act.kind).toBe('wait');
    expect(step(failed, { wish }).record?.state).toEqual({ kind: 'available', volumeId: 'vol-1' });
  });
});

describe('a volume without our tags', () => {
  it.each([
    ['none', {}],
    ["another cluster's", ownTags(newDisk('disk-1'), 'cluster-2')],
    ["another disk's", ownTags(newDisk('disk-2'), CLUSTER)],
  ])('(%s) is not attached, detached or deleted', (_, tags) => {
    const facts = { ec2: shown([volumeOf({ tags })]), sight: ABSENT };
    for (const wish of [WANTED_HERE, WANTED_THERE, { kind: 'deleted' } as const]) {
      const states: DiskState[] = [
        { kind: 'available', volumeId: 'vol-1' },
        { kind: 'detaching', volumeId: 'vol-1', place: HERE },
        { kind: 'deleting', volumeId: 'vol-1' },
        { kind: 'creating', calls: 1, refusal: 'denied' },
        { kind: 'gone' },
      ];
      for (const state of states) expect(['wait', 'rest']).toContain(step(diskIn(state), { ...facts, wish }).act.kind);
    }
  });
});
