import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { maintenanceNeed } from '../../../src/control/maintenance-need.js';
import { missingReplicas } from '../../../src/control/missing-replicas.js';
import { byUrgency, RebuildLoad } from '../../../src/control/rebuild-load.js';
import { standingOf, type ReplicaFacts } from '../../../src/control/replica-standing.js';
import { surplusOf, type NodeMerit } from '../../../src/control/surplus.js';
import { isSolid, type VolumeSight } from '../../../src/control/volume-sight.js';
import { AWAY, LOST, attachedAt, maintainedAt, sightOf } from './sights.js';

const PLAIN: NodeMerit = { zone: '', cordoned: false, filled: 0 };

function surplus(sight: VolumeSight, merits: Readonly<Record<string, Partial<NodeMerit>>> = {}): string {
  const found = surplusOf(sight, ({ node }) => ({ ...PLAIN, ...merits[node] }));
  return found === undefined ? 'nothing' : `${found.kind} ${found.node}`;
}

describe('how a replica stands', () => {
  const well: ReplicaFacts = {
    node: 'b',
    disk: 'd',
    registered: true,
    lease: 'live',
    expiredMs: 0,
    diskRecord: { node: 'b', state: 'ready', reason: '' },
    diskWrongMs: 0,
    notFound: false,
  };
  const patience = { graceMs: 600_000, diskGraceMs: 15_000 };

  it.each<[string, Partial<ReplicaFacts>, object]>([
    ['on a live node and a disk that works it is present', {}, { kind: 'present' }],
    ['its node is away until the grace period has passed', { lease: 'expired', expiredMs: 599_999 }, { kind: 'away' }],
    ['then it is lost, but may return', { lease: 'expired', expiredMs: 600_000 }, { kind: 'lost', mayReturn: true }],
    ['without a record of its node it is lost at once', { registered: false }, { kind: 'lost', mayReturn: false }],
    ['nothing is decided while the lease is not seen', { lease: 'unknown' }, { kind: 'unsure' }],
    [
      'a disk that fails for a moment decides nothing',
      { diskRecord: { node: 'b', state: 'failed', reason: 'EIO' }, diskWrongMs: 14_999 },
      { kind: 'unsure', reason: 'disk d of node b has failed (EIO)' },
    ],
    [
      'a disk that stays failed takes it along',
      { diskRecord: { node: 'b', state: 'failed', reason: '' }, diskWrongMs: 15_000 },
      { kind: 'lost', mayReturn: false },
    ],
    ['so does a disk that is gone', { diskRecord: undefined, diskWrongMs: 15_000 }, { kind: 'lost', mayReturn: false }],
    [
      'or with another node',
      { diskRecord: { node: 'c', state: 'ready', reason: '' }, diskWrongMs: 15_000 },
      { kind: 'lost', reason: 'disk d of node b is with node c now' },
    ],
    ['one that is not found on its disk has failed (R12)', { notFound: true }, { kind: 'lost', mayReturn: false }],
    [
      'one that is not found while its disk is not open, as one that was too slow at the start of its plugin, has not',
      { notFound: true, diskRecord: { node: 'b', state: 'failed', reason: 'opening' }, diskWrongMs: 14_999 },
      { kind: 'unsure', reason: 'disk d of node b has failed (opening)' },
    ],
    [
      'what a dead node does not tell says nothing',
      { lease: 'expired', expiredMs: 1, notFound: true, diskWrongMs: 99_999, diskRecord: undefined },
      { kind: 'away' },
    ],
  ])('%s', (_claim, facts, expected) => {
    expect(standingOf({ ...well, ...facts }, patience)).toMatchObject(expected);
  });
});

describe('a replica is surplus', () => {
  it.each([
    ['a* b*', 'nothing'],
    ['a* b', 'nothing'],
    ['a* b!', 'nothing'],
    ['a* b! c', 'nothing'],
    ['a* b! c*', 'forget b'],
    ['a* b c*', 'forget b'],
    ['a* b- c*', 'forget b'],
    ['a* b*! c', 'nothing'],
    ['a* b*! c*', 'drop b'],
    ['a* b*- c*', 'drop b'],
    ['a* bx', 'forget b'],
    ['a* b*x', 'drop b'],
    ['a*x b*x', 'nothing'],
    ['a*x b', 'nothing'],
    ['ax', 'nothing'],
    ['a* b? c*', 'nothing'],
    ['a* b! c- d*', 'forget b'],
  ])('of %s, where 2 are wanted: %s', (replicas, expected) => {
    expect(surplus(sightOf(replicas))).toBe(expected);
  });

  it('of those that are all well: not the writer’s; a cordoned node’s, then the fullest zone’s, then the fullest disk’s', () => {
    const sight = sightOf('a* b* c*', { writer: attachedAt('c') });
    expect(surplus(sight)).toBe('drop b');
    expect(surplus(sight, { b: { filled: 0.2 }, a: { filled: 0.6 } })).toBe('drop a');
    const zones = { a: { zone: 'x' }, b: { zone: 'y', filled: 0.9 }, c: { zone: 'x' } };
    expect(surplus(sight, zones)).toBe('drop a');
    expect(surplus(sight, { ...zones, b: { zone: 'y', cordoned: true } })).toBe('drop b');
    expect(surplus(sightOf('a* b* c*', { writer: attachedAt('c'), parameters: { zones: 'same' } }), zones)).toBe(
      'drop b',
    );
  });

  it('never so that writes would wait for want of it', () => {
    expect(surplus(sightOf('a* b*x', { parameters: { minInSync: 2 } }))).toBe('nothing');
    expect(surplus(sightOf('a* b* c*x', { parameters: { minInSync: 2 } }))).toBe('drop c');
  });

  it('never the last in-sync one within reach, nor so that fewer than wanted are in sync though they could be', () => {
    const replica = fc.record({ mark: fc.constantFrom('', '*'), how: fc.constantFrom('', '-', '!', 'x') });
    const volumes = fc.record({
      replicas: fc.array(replica, { minLength: 1, maxLength: 6 }),
      wanted: fc.integer({ min: 1, max: 3 }),
      writer: fc.option(fc.nat(5)),
    });
    fc.assert(
      fc.property(volumes, ({ replicas, wanted, writer }) => {
        const words = replicas.map(({ mark, how }, index) => `${'abcdef'[index] ?? 'a'}${mark}${how}`).join(' ');
        const node = writer === null ? undefined : 'abcdef'[writer];
        const sight = sightOf(words, {
          parameters: { replicas: wanted },
          ...(node === undefined ? {} : { writer: attachedAt(node) }),
        });
        const found = surplusOf(sight, () => PLAIN);
        if (found === undefined) return;
        const solid = sight.replicas.filter(isSolid);
        const left = solid.filter((one) => one.node !== found.node);
        const taken = sight.replicas.find((one) => one.node === found.node);
        expect(taken?.inSync).toBe(found.kind === 'drop');
        if (found.kind === 'drop') expect(left.length).toBeGreaterThan(0);
        expect(left.length).toBeGreaterThanOrEqual(Math.min(solid.length, wanted));
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('replicas are missing', () => {
  it.each([
    ['a* b*', 0],
    ['a*', 1],
    ['a* b-', 0],
    ['a* b*-', 0],
    ['a* b!', 1],
    ['a* b*!', 1],
    ['a* b! c', 0],
    ['a* b?', 0],
    ['a- b!', 0],
    ['a*- b!', 0],
    ['a*x b', 0],
  ])('of %s, where 2 are wanted: %d', (replicas, expected) => {
    expect(missingReplicas(sightOf(replicas))).toBe(expected);
  });
});

describe('a volume without attachment needs a writer', () => {
  const need = (sight: VolumeSight, drop?: string): string | undefined => maintenanceNeed(sight, drop)?.why;

  it('where a replica is behind, damaged, open, marked or surplus, and only then', () => {
    expect(need(sightOf('a* b*'))).toBeUndefined();
    expect(need(sightOf('a* b'))).toBe('the replica on b is not in sync');
    expect(need(sightOf('a* b-'))).toBeUndefined();
    expect(need(sightOf('a* b*', { told: { b: { damagedBlocks: 1 } } }))).toBe('the replica on b has damaged blocks');
    expect(need(sightOf('a* b*', { told: { a: { openRegions: 1 } } }))).toBe('the replica on a has open regions');
    expect(need(sightOf('a* b*', { told: { b: { crashMark: true } } }))).toContain('may have lost writes in a crash');
    expect(need(sightOf('a* b*', { told: { b: { crashMark: true, fresh: false } } }))).toBeUndefined();
    expect(need(sightOf('a* b* c*'), 'c')).toBe('the replica on c is to leave the in-sync set');
    expect(need(sightOf('a*- b'))).toBeUndefined();
  });

  it('but an attachment does not, unless its node is not waited for, no replica hears of it, and failover is auto', () => {
    const of = (writer: VolumeSight['writer'], failover: 'auto' | 'manual' = 'auto'): boolean =>
      maintenanceNeed(sightOf('a* b', { writer, parameters: { failover } }), undefined) !== undefined;
    expect(of(attachedAt('c'))).toBe(false);
    expect(of(attachedAt('c', AWAY))).toBe(false);
    expect(of(attachedAt('c', LOST))).toBe(true);
    expect(of(attachedAt('c', LOST), 'manual')).toBe(false);
    expect(of(attachedAt('c', LOST, true))).toBe(false);
    expect(of(maintainedAt('c'))).toBe(false);
    expect(of(maintainedAt('c', AWAY), 'manual')).toBe(true);
  });

  it('runs where a replica has no mark, rather than where one has', () => {
    const sight = sightOf('a* b* c', { told: { a: { crashMark: true } } });
    expect(maintenanceNeed(sight, undefined)).toMatchObject({ candidates: ['b', 'a'], targets: ['c'] });
  });

  it('waits while all in reach have crashed and one that may not have can still come, or has not told yet', () => {
    const crashed = { a: { crashMark: true }, b: { crashMark: true } };
    expect(need(sightOf('a* b* c*-', { told: crashed }))).toBeUndefined();
    expect(need(sightOf('a* b* c*?', { told: crashed }))).toBeUndefined();
    expect(need(sightOf('a* b* c*', { told: { ...crashed, c: undefined } }))).toBeUndefined();
    expect(need(sightOf('a* b* c*!', { told: crashed }))).toBeDefined();
    expect(need(sightOf('a* b* c-', { told: crashed }))).toBeDefined();
    expect(need(sightOf('a* b*', { told: crashed }))).toBeDefined();
  });
});

describe('the bound on rebuilds', () => {
  it('counts source and targets of volumes that a writer works on', () => {
    const sights = [
      sightOf('a* b c*', { writer: attachedAt('c') }),
      sightOf('a* b', { writer: maintainedAt('a') }),
      sightOf('a* d'),
      sightOf('a* b*', { writer: attachedAt('a') }),
      sightOf('a* e', { writer: attachedAt('a', AWAY) }),
    ];
    const load = new RebuildLoad(sights, 2);
    expect(['a', 'b', 'c', 'd', 'e'].map((node) => load.of(node))).toEqual([1, 2, 1, 0, 0]);
    expect(load.allows(['a', 'c'])).toBe(true);
    expect(load.allows(['a', 'b'])).toBe(false);
    load.add(['a']);
    expect(load.allows(['a'])).toBe(false);
  });

  it('lets the volumes with the fewest copies come first, then those in use', () => {
    const idle = sightOf('a* b', { record: { id: 'idle' } });
    const used = sightOf('a* b', { record: { id: 'used' }, writer: attachedAt('a') });
    const safe = sightOf('a* b* c', { record: { id: 'safe' }, writer: attachedAt('a') });
    expect([safe, idle, used].toSorted(byUrgency).map(({ record }) => record.id)).toEqual(['used', 'idle', 'safe']);
  });
});
