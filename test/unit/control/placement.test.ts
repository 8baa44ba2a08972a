import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TOPOLOGY_NODE, TOPOLOGY_ZONE } from '../../../src/config.js';
import { place, roomOf, type PlacementNode, type PlacementOrder } from '../../../src/control/placement.js';
import { roomFor } from '../../../src/control/room.js';

const GIB = 1024 ** 3;
const LIMITS = { overcommit: 1 };

interface Plan {
  readonly zone?: string;
  /** GiB free on each disk of 100 GiB. */
  readonly free?: readonly number[];
  readonly ready?: boolean;
  readonly cordoned?: boolean;
  readonly used?: number;
}

function node(name: string, { zone = '', free = [50], ready = true, cordoned = false, used = 0 }: Plan): PlacementNode {
  return {
    name,
    zone,
    ready,
    cordoned,
    topology: { [TOPOLOGY_NODE]: name, ...(zone === '' ? {} : { [TOPOLOGY_ZONE]: zone }) },
    disks: free.map((gib, index) => ({
      id: `disk-${name}${index}`,
      state: 'ready' as const,
      capacityBytes: 100 * GIB,
      usedBytes: used * GIB,
      provisionedBytes: (100 - gib) * GIB,
    })),
  };
}

function order(change: Partial<PlacementOrder> = {}): PlacementOrder {
  const nothing = { preferred: [], requisite: [], kept: [], avoided: new Map<string, string>() };
  return { capacityBytes: 10 * GIB, replicas: 2, zones: 'spread', ...nothing, ...change };
}

function sites(nodes: readonly PlacementNode[], wanted: PlacementOrder): string[] {
  const placement = place(nodes, wanted, LIMITS);
  return 'sites' in placement ? placement.sites.map((site) => site.node) : [`missing: ${placement.missing}`];
}

describe('placement', () => {
  it('the roomiest nodes are taken, and on each its roomiest disk', () => {
    const nodes = [node('a', { free: [20] }), node('b', { free: [30, 60] }), node('c', { free: [40] })];
    const placement = place(nodes, order(), LIMITS);
    expect(placement).toEqual({
      sites: [
        { node: 'b', disk: 'disk-b1' },
        { node: 'c', disk: 'disk-c0' },
      ],
    });
  });

  it('the first replica lies on the preferred node, even if others have more room', () => {
    const nodes = [node('a', { free: [20] }), node('b', { free: [90] }), node('c', { free: [80] })];
    expect(sites(nodes, order({ preferred: [{ [TOPOLOGY_NODE]: 'a' }] }))).toEqual(['a', 'b']);
  });

  it('the order of the preferred topologies counts, then the allowed ones', () => {
    const nodes = [node('a', {}), node('b', {}), node('c', { free: [90] })];
    const wish = (name: string) => ({ [TOPOLOGY_NODE]: name });
    expect(sites(nodes, order({ replicas: 1, preferred: [wish('b'), wish('a')] }))).toEqual(['b']);
    expect(sites(nodes, order({ replicas: 1, requisite: [wish('a')] }))).toEqual(['a']);
    expect(sites(nodes, order({ replicas: 1, preferred: [wish('full'), wish('b')], requisite: [wish('a')] }))).toEqual([
      'b',
    ]);
  });

  it('a preferred node without disks or room draws the replica into its zone', () => {
    const nodes = [
      node('a', { zone: 'z1', free: [] }),
      node('b', { zone: 'z1' }),
      node('c', { zone: 'z2', free: [90] }),
    ];
    expect(sites(nodes, order({ replicas: 1, preferred: [{ [TOPOLOGY_NODE]: 'a' }] }))).toEqual(['b']);
  });

  it('topology never excludes: a zone without a pool is served from elsewhere', () => {
    const nodes = [node('a', { zone: 'z1' }), node('b', { zone: 'z2' })];
    expect(sites(nodes, order({ requisite: [{ [TOPOLOGY_ZONE]: 'z9' }] })).toSorted()).toEqual(['a', 'b']);
  });

  it('spread takes another zone before a roomier node of the same', () => {
    const nodes = [
      node('a', { zone: 'z1', free: [90] }),
      node('b', { zone: 'z1', free: [80] }),
      node('c', { zone: 'z2', free: [20] }),
    ];
    expect(sites(nodes, order())).toEqual(['a', 'c']);
  });

  it('spread is a promise: where the other zone has no room it is refused', () => {
    const nodes = [node('a', { zone: 'z1' }), node('b', { zone: 'z1' }), node('c', { zone: 'z2', ready: false })];
    expect(sites(nodes, order())[0]).toMatch(/zone z1 has its share.*c is not ready/);
  });

  it('same keeps all replicas in one zone, and picks one that can hold them', () => {
    const nodes = [node('a', { zone: 'z1', free: [90] }), node('b', { zone: 'z2' }), node('c', { zone: 'z2' })];
    expect(sites(nodes, order({ zones: 'same' })).toSorted()).toEqual(['b', 'c']);
    expect(sites(nodes, order({ zones: 'same', kept: [{ node: 'a', disk: 'disk-a0' }] }))[0]).toContain(
      'is not in zone z1',
    );
  });

  it('a refusal says for each node why not', () => {
    const nodes = [
      node('away', { ready: false }),
      node('bare', { free: [] }),
      node('closed', { cordoned: true }),
      node('full', { used: 95 }),
      node('tight', { free: [5] }),
    ];
    const [text] = sites(nodes, order({ avoided: new Map([['other', 'x']]) }));
    expect(text).toContain('replica 1 of 2 of 10.00 GiB');
    for (const part of [
      'away is not ready',
      'bare has no disk',
      'closed is cordoned',
      'full has 0.00 GiB',
      'tight has 5.00 GiB',
    ]) {
      expect(text).toContain(part);
    }
  });

  it('a refusal stays short in a big cluster', () => {
    const nodes = Array.from({ length: 500 }, (_, index) => node(`node-${index}`, { ready: false }));
    expect(sites(nodes, order())[0]?.length).toBeLessThan(1_000);
  });

  it('three pools of 40, 50 and 10 GiB take 40 GiB twice, and refuse 45', () => {
    const nodes = [
      node('a', { free: [40] }),
      node('b', { free: [50] }),
      node('c', { free: [10] }),
      node('d', { free: [] }),
    ];
    expect(sites(nodes, order({ capacityBytes: 40 * GIB, preferred: [{ [TOPOLOGY_NODE]: 'c' }] })).toSorted()).toEqual([
      'a',
      'b',
    ]);
    expect(sites(nodes, order({ capacityBytes: 45 * GIB }))[0]).toContain('a has 40.00 GiB');
  });
});

const aPlan = fc.record({
  zone: fc.constantFrom('', 'z1', 'z2', 'z3'),
  free: fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 2 }),
  ready: fc.boolean(),
  cordoned: fc.boolean(),
});
const aCluster = fc
  .array(aPlan, { maxLength: 6 })
  .map((plans) => plans.map((plan, index) => node(`n${index}`, { ...plan, ready: plan.ready || index % 2 === 0 })));
const anOrder = fc.record({
  capacityBytes: fc.integer({ min: 1, max: 40 }).map((gib) => gib * GIB),
  replicas: fc.integer({ min: 1, max: 3 }),
  zones: fc.constantFrom('spread' as const, 'same' as const),
  preferred: fc.array(fc.constantFrom({ [TOPOLOGY_NODE]: 'n1' }, { [TOPOLOGY_ZONE]: 'z2' }), { maxLength: 2 }),
});

describe('any placement', () => {
  it('keeps every rule, and is found whenever there is one', () => {
    fc.assert(
      fc.property(aCluster, anOrder, (nodes, change) => {
        const wanted = order(change);
        const placement = place(nodes, wanted, LIMITS);
        const possible = choices(nodes, wanted.replicas).filter((choice) => allowed(choice, nodes, wanted));
        expect('sites' in placement).toBe(possible.length > 0);
        if (!('sites' in placement)) return;
        const chosen = placement.sites.map((site) => nodes.find((each) => each.name === site.node));
        expect(
          allowed(
            chosen.filter((each) => each !== undefined),
            nodes,
            wanted,
          ),
        ).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('fits in the room that is told, and nothing larger does', () => {
    fc.assert(
      fc.property(aCluster, anOrder, (nodes, change) => {
        const { largestBytes, availableBytes } = roomFor(nodes, { ...change }, LIMITS);
        expect(availableBytes).toBeGreaterThanOrEqual(largestBytes - 1024 ** 2);
        if (largestBytes > 0)
          expect('sites' in place(nodes, order({ ...change, capacityBytes: largestBytes }), LIMITS)).toBe(true);
        expect('sites' in place(nodes, order({ ...change, capacityBytes: largestBytes + GIB }), LIMITS)).toBe(false);
      }),
      { numRuns: 500 },
    );
  });
});

function choices(nodes: readonly PlacementNode[], count: number): PlacementNode[][] {
  if (count === 0) return [[]];
  return nodes.flatMap((first, index) => choices(nodes.slice(index + 1), count - 1).map((rest) => [first, ...rest]));
}

function allowed(chosen: readonly PlacementNode[], nodes: readonly PlacementNode[], wanted: PlacementOrder): boolean {
  const zones = new Set(nodes.filter((each) => each.disks.length > 0).map((each) => each.zone)).size;
  const share = Math.ceil(wanted.replicas / Math.max(1, zones));
  const most = Math.max(0, ...chosen.map((each) => chosen.filter((other) => other.zone === each.zone).length));
  return (
    new Set(chosen).size === wanted.replicas &&
    chosen.every(
      (each) => each.ready && !each.cordoned && each.disks.some((disk) => roomOf(disk, LIMITS) >= wanted.capacityBytes),
    ) &&
    (wanted.zones === 'same' ? most === chosen.length : most <= share)
  );
}

describe('room', () => {
  it('counts a node at most once for each volume', () => {
    const nodes = [node('a', { free: [40] }), node('b', { free: [50] }), node('c', { free: [10] })];
    expect(roomFor(nodes, { replicas: 2, zones: 'spread' }, LIMITS)).toEqual({
      availableBytes: 50 * GIB,
      largestBytes: 40 * GIB,
    });
    expect(roomFor(nodes, { replicas: 3, zones: 'spread' }, LIMITS)).toEqual({
      availableBytes: 10 * GIB,
      largestBytes: 10 * GIB,
    });
    expect(roomFor([], { replicas: 1, zones: 'same' }, LIMITS)).toEqual({ availableBytes: 0, largestBytes: 0 });
  });
});
