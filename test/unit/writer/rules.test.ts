import { describe, expect, it } from 'vitest';
import type { VolumeRecord } from '../../../src/model/records.js';
import {
  afterDrop,
  hasEveryAnswer,
  judgePiece,
  judgeRecord,
  judgeTakeOver,
  judgeUsable,
  mayAcknowledge,
  mayRetire,
  mayTakeEntry,
  mustCopy,
  mustOutwait,
  mustStay,
} from '../../../src/writer/rules.js';

function recordOf(fields: Partial<VolumeRecord>): VolumeRecord {
  return { epoch: 5, writer: null, parameters: { failover: 'auto' }, ...fields } as VolumeRecord;
}

describe('the rules', () => {
  it('R3: an answer is lacking until every required replica has given it', () => {
    expect(hasEveryAnswer(new Set(['a']), new Set(['a', 'b']))).toBe(false);
    expect(hasEveryAnswer(new Set(['a', 'b', 'c']), new Set(['a', 'b']))).toBe(true);
    expect(mayAcknowledge(new Set(['a']), 2)).toBe(false);
  });

  it('R4: the last in-sync replica is never dropped', () => {
    expect(afterDrop(new Set(['a']), new Set(['a']))).toBeUndefined();
    expect(afterDrop(new Set(['a', 'b']), new Set(['a', 'b']))).toBeUndefined();
    expect(afterDrop(new Set(['a', 'b']), new Set(['b', 'x']))).toEqual(new Set(['a']));
    expect(afterDrop(new Set(['a', 'b']), new Set(['x']))).toBeUndefined();
  });

  it('R4: only a moved epoch with the own session tells that a CAS came through', () => {
    const mine = { node: 'a', session: 's' };
    expect(judgeRecord(recordOf({ writer: mine, epoch: 5 }), 's', 5)).toBe('unmoved');
    expect(judgeRecord(recordOf({ writer: mine, epoch: 6 }), 's', 5)).toBe('moved');
    expect(judgeRecord(recordOf({ writer: { node: 'a', session: 'other' }, epoch: 6 }), 's', 5)).toBe('fenced');
    expect(judgeRecord(recordOf({ writer: null, epoch: 6 }), 's', 5)).toBe('fenced');
    expect(judgeRecord(undefined, 's', 5)).toBe('fenced');
  });

  it('R5: a live writer elsewhere is not taken from', () => {
    const writer = { node: 'b', session: 's' };
    expect(judgeTakeOver(recordOf({ writer }), 'a', new Set())).toEqual({ allowed: false, holder: 'b', lease: true });
    expect(judgeTakeOver(recordOf({ writer }), 'a', new Set(['s']))).toEqual({ allowed: true });
    expect(judgeTakeOver(recordOf({ writer }), 'b', new Set())).toEqual({ allowed: true });
    expect(judgeTakeOver(recordOf({}), 'a', new Set())).toEqual({ allowed: true });
  });

  it('R5: with failover manual an expired lease ends no attachment, only a writer without a device', () => {
    const parameters = { failover: 'manual' } as VolumeRecord['parameters'];
    const writer = { node: 'b', session: 's' };
    const manual = judgeTakeOver(recordOf({ writer, parameters }), 'a', new Set(['s']));
    expect(manual).toEqual({ allowed: false, holder: 'b', lease: false });
    const maintenance = recordOf({ writer: { ...writer, maintenance: true }, parameters });
    expect(judgeTakeOver(maintenance, 'a', new Set(['s']))).toEqual({ allowed: true });
    expect(judgeTakeOver(recordOf({ parameters }), 'a', new Set())).toEqual({ allowed: true });
    expect(judgeTakeOver(recordOf({ writer, parameters }), 'b', new Set())).toEqual({ allowed: true });
  });

  it('a replica that is not wanted leaves the set unless it is the last, or writes would wait without it', () => {
    expect(mayRetire('a', new Set(['a']), new Set(), 1)).toBe(false);
    expect(mayRetire('b', new Set(['a', 'b']), new Set(), 1)).toBe(true);
    expect(mayRetire('b', new Set(['a', 'b']), new Set(['a']), 1)).toBe(false);
    expect(mayRetire('b', new Set(['a', 'b']), new Set(), 2)).toBe(false);
    expect(mayRetire('c', new Set(['a', 'b']), new Set(), 2)).toBe(true);
  });

  it('as many as are wanted stay in sync, whenever the request to leave was made; one that is away holds nothing up', () => {
    expect(mustStay({ replicas: 2, minInSync: 1 }, false)).toBe(2);
    expect(mustStay({ replicas: 2, minInSync: 1 }, true)).toBe(1);
    expect(mustStay({ replicas: 3, minInSync: 2 }, true)).toBe(2);
  });

  it('R9: a new writer waits unless all older ones are known to be silent', () => {
    expect(mustOutwait({ quiet: true, formerHadServed: false, formerHasStopped: false })).toBe(false);
    expect(mustOutwait({ quiet: false, formerHadServed: true, formerHasStopped: true })).toBe(false);
    expect(mustOutwait({ quiet: false, formerHadServed: false, formerHasStopped: true })).toBe(true);
    expect(mustOutwait({ quiet: false, formerHadServed: true, formerHasStopped: false })).toBe(true);
  });

  it('R10: a marked replica is not used where one without mark was reached', () => {
    const states = new Map([
      ['a', { crashMark: true }],
      ['b', { crashMark: false }],
    ]);
    expect(judgeUsable(states)).toEqual({ kind: 'usable', nodes: new Set(['b']) });
    expect(judgeUsable(new Map([['a', { crashMark: true }]]))).toEqual({ kind: 'all-crashed', nodes: new Set(['a']) });
    expect(judgeUsable(new Map())).toEqual({ kind: 'none' });
  });

  it('R6: a piece is copied from whom its checksums vouch for, else from whom nothing speaks against', () => {
    const verified = { digest: 'x', state: 'verified' } as const;
    const unverified = { digest: 'y', state: 'unverified' } as const;
    const corrupt = { digest: '', state: 'corrupt' } as const;
    expect(judgePiece([verified, verified])).toEqual({ source: 0, targets: [] });
    expect(judgePiece([unverified, verified, corrupt])).toEqual({ source: 1, targets: [0, 2] });
    expect(judgePiece([corrupt, unverified, unverified])).toEqual({ source: 1, targets: [0] });
    expect(judgePiece([unverified, { ...unverified, digest: 'z' }])).toEqual({ source: 0, targets: [1] });
    expect(judgePiece([corrupt, corrupt])).toBeUndefined();
  });

  it('R7: a region is left out of a resync only where both are closed with one stamp', () => {
    expect(mustCopy(3, 3)).toBe(false);
    expect(mustCopy(0, 0)).toBe(false);
    expect(mustCopy(-1, -1)).toBe(true);
    expect(mustCopy(3, -1)).toBe(true);
    expect(mustCopy(4, 3)).toBe(true);
  });

  it('R7: an entry is taken only if it is closed, older than the epoch, and not written since', () => {
    expect(mayTakeEntry(3, 4, false)).toBe(true);
    expect(mayTakeEntry(4, 4, false)).toBe(false);
    expect(mayTakeEntry(-1, 4, false)).toBe(false);
    expect(mayTakeEntry(3, 4, true)).toBe(false);
  });
});
