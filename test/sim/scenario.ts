import { Layout } from '../../src/model/layout.js';
import { DEFAULT_TIMING, type Timing } from '../../src/writer/timing.js';
import { Prng } from './prng.js';

/** What can befall a cluster; a scenario has some of them on. */
export const FAULT_KINDS = [
  'crash',
  'kill',
  'pause',
  'lost-writer',
  'cut',
  'cut-one-way',
  'cut-from-store',
  'slow-link',
  'reset',
  'slow-disk',
  'hung-disk',
  'read-errors',
  'write-errors',
  'sync-errors',
  'full-disk',
  'bit-flip',
  'lost-disk',
  'stale-disk',
  'store-outage',
  'lossy-store',
  'clock-jump',
  'controller-kill',
  'reboot-all',
] as const;

/** As above, but only in runs whose theme has them. */
const THEME_FAULT_KINDS = ['late-write'] as const;

export type FaultKind = (typeof FAULT_KINDS)[number] | (typeof THEME_FAULT_KINDS)[number];

/**
 * After these a replica has no checksums of regions that were open, or a block may be broken in all replicas: rot then can
 * stay hidden, as it does without checksums.
 */
const FORGETS_CHECKSUMS: readonly FaultKind[] = [
  'crash',
  'reboot-all',
  'kill',
  'read-errors',
  'write-errors',
  'sync-errors',
  'lost-disk',
  'stale-disk',
  // The other replica may be dropped before the rot is found.
  'pause',
  'lost-writer',
  'cut',
  'cut-one-way',
  'cut-from-store',
  'slow-link',
  'slow-disk',
  'hung-disk',
  'full-disk',
];

/** What a run is drawn from. */
interface Theme {
  /** On in every run of the theme; the others are drawn one by one. */
  readonly faults: readonly FaultKind[];
  /** The chance of each other fault. */
  readonly others: number;
  /** The shortest and the longest time with faults, in milliseconds. */
  readonly activeMs: readonly [number, readonly number[]];
  readonly faultEveryMs: readonly number[];
  readonly operations: readonly number[];
  readonly mostBlocks: number;
  readonly evictAfterMs: readonly number[];
  /** The longest time that a fault lasts. */
  readonly spansMs: readonly number[];
  readonly replicas: readonly number[];
  /** Weights of the load. */
  readonly flushes: readonly number[];
  readonly fuas: readonly number[];
  readonly idleCloseMs: readonly number[];
  readonly maxOpenRegions: readonly number[];
  /** Mean times between two moves of a pod. */
  readonly moveEveryMs: readonly number[];
}

const USUAL: Theme = {
  faults: [],
  others: 0.25,
  activeMs: [1_000, [8_000, 16_000, 40_000]],
  faultEveryMs: [500, 1_500, 4_000],
  operations: [30, 100, 300],
  mostBlocks: 64,
  evictAfterMs: [Infinity, 1_000, 4_000],
  spansMs: [100, 2_000, 8_000, 25_000],
  replicas: [1, 2, 2, 2, 3, 3],
  flushes: [0, 0.2, 1],
  fuas: [0, 1],
  idleCloseMs: [500, 2_000, 10_000],
  maxOpenRegions: [1, 2, 4, 1_024],
  moveEveryMs: [Infinity, 4_000, 15_000],
};

/** Faults that hurt most together. */
const THEMES: readonly Theme[] = [
  // Writers that do not know that they are none any more, and replicas that may have forgotten what they knew. A node is
  // given up, another takes over, and then the first one comes back: that takes its time.
  ...Array<Theme>(2).fill({
    ...USUAL,
    faults: ['lost-writer', 'kill', 'reset'],
    others: 0.15,
    activeMs: [25_000, [60_000]],
    faultEveryMs: [3_000, 8_000],
    operations: [200, 600],
    evictAfterMs: [1_000],
  }),
  // Nodes that come back before they are given up, without what was not flushed.
  {
    ...USUAL,
    faults: ['crash', 'reboot-all'],
    others: 0.08,
    activeMs: [20_000, [60_000]],
    faultEveryMs: [2_500, 5_000],
    operations: [300, 600],
    spansMs: [100, 1_000, 4_000],
    replicas: [1, 2, 2, 3],
    flushes: [0, 0.05],
    fuas: [0],
    idleCloseMs: [10_000],
    maxOpenRegions: [1_024],
    evictAfterMs: [Infinity, 1_000],
  },
  // Writes on one disk only, or on no disk yet.
  { ...USUAL, faults: ['crash', 'reset', 'slow-disk', 'slow-link', 'sync-errors'], others: 0.15 },
  // Requests of a connection that has ended, to the same few blocks.
  {
    ...USUAL,
    faults: ['reset', 'late-write', 'slow-disk', 'hung-disk'],
    others: 0.15,
    faultEveryMs: [300, 700],
    operations: [200, 600],
    mostBlocks: 4,
  },
  // Changes of the record of which nobody knows whether they were done.
  { ...USUAL, faults: ['lossy-store', 'store-outage', 'reset', 'kill'], others: 0.15 },
];

/** Only these befall data that rots. */
const ROT: Theme = { ...USUAL, faults: ['bit-flip'] };

export interface VolumePlan {
  readonly name: string;
  /** Nodes with a replica. */
  readonly replicas: readonly string[];
  readonly minInSync: number;
  readonly blocks: number;
  /** The client works in bursts: so many operations at once, each followed by some more. */
  readonly queueDepth: number;
  /** Mean pause between two bursts. */
  readonly burstEveryMs: number;
  /** Weights of the client's operations. */
  readonly weights: { write: number; fua: number; read: number; flush: number; trim: number };
  /** Mean time between two moves of the pod; Infinity: it stays. */
  readonly moveEveryMs: number;
  /** Between two moves nobody uses the volume for up to so long. */
  readonly absentMs: number;
  /** When its node has not been heard of for so long, another pod is started elsewhere; Infinity: it is waited for. */
  readonly evictAfterMs: number;
  readonly grows: boolean;
  /** Mean time between two changes of the number of replicas; Infinity: it stays. */
  readonly resizeEveryMs: number;
}

/** One run, drawn from its seed: cluster, load and faults. Small, so that it is cheap and that things collide. */
export interface Scenario {
  readonly seed: number;
  readonly nodes: readonly string[];
  readonly volumes: readonly VolumePlan[];
  readonly layout: Layout;
  readonly timing: Timing;
  /** Faults and load go on for so long; then everything is healed, and must come to rest. */
  readonly activeMs: number;
  readonly faults: readonly FaultKind[];
  /** Mean time between two faults. */
  readonly faultEveryMs: number;
  readonly spansMs: readonly number[];
  /** How far clocks run apart: each runs at 1 ± this. */
  readonly drift: number;
  /** After so long without its node a replica is made elsewhere. */
  readonly graceMs: number;
  /** At the end the pods leave, and their volumes must come to rest without them. */
  readonly restsUnattached: boolean;
  /** When all is well again a node without a writer goes, and I/O must go on without it. */
  readonly losesPeer: boolean;
}

/** Of a burst, on average. */
export const OPERATIONS_PER_SLOT = 2;

const PAGE = 4096;
const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];

export function drawScenario(seed: number): Scenario {
  const random = new Prng(seed);
  // Three nodes are the common case, and the cheapest in which everything can happen.
  const nodes = NAMES.slice(0, random.chance(0.5) ? 3 : 2 + random.below(6));
  const layout = drawLayout(random);
  const rots = random.chance(0.12);
  const theme = rots ? ROT : random.chance(0.6) ? random.pick(THEMES) : USUAL;
  const [shortest, longest] = theme.activeMs;
  const activeMs = random.between(shortest, random.pick(longest));
  return {
    seed,
    nodes,
    layout,
    timing: drawTiming(random, rots, theme),
    volumes: Array.from({ length: random.chance(0.8) ? 1 : 2 }, (_, index) =>
      drawVolume(random, `v${index}`, nodes, { layout, activeMs, rots, theme }),
    ),
    activeMs,
    faults: drawFaults(random, rots, theme),
    faultEveryMs: random.pick(theme.faultEveryMs),
    spansMs: theme.spansMs,
    drift: random.pick([0, 0, 0.001, 0.02]),
    graceMs: random.pick([5_000, 30_000, 600_000]),
    restsUnattached: random.chance(0.3),
    losesPeer: random.chance(0.25),
  };
}

function drawFaults(random: Prng, rots: boolean, theme: Theme): readonly FaultKind[] {
  const kinds = FAULT_KINDS.filter((kind) => (rots ? !FORGETS_CHECKSUMS.includes(kind) : kind !== 'bit-flip'));
  const drawn = kinds.filter((kind) => theme.faults.includes(kind) || random.chance(theme.others));
  const faults = [...drawn, ...THEME_FAULT_KINDS.filter((kind) => theme.faults.includes(kind))];
  return faults.length > 0 ? faults : [random.pick(kinds)];
}

function drawLayout(random: Prng): Layout {
  const comparePages = random.pick([1, 2, 4]);
  const compareBytes = comparePages * PAGE;
  const regionBytes = compareBytes * random.pick([1, 2, 4]);
  return new Layout(regionBytes, regionBytes * random.pick([1, 4, 16]), compareBytes);
}

function drawTiming(random: Prng, rots: boolean, theme: Theme): Timing {
  return {
    ...DEFAULT_TIMING,
    idleCloseMs: random.pick(theme.idleCloseMs),
    maxOpenRegions: random.pick(theme.maxOpenRegions),
    resyncPauseMs: random.pick([200, 1_000]),
    scrubEveryMs: rots ? random.pick([2_000, 10_000]) : random.pick([0, 5_000, 20_000]),
    scrubBytesPerSecond: 4 * 1024 * 1024,
    mendEveryMs: random.pick([1_000, 10_000]),
    maintenanceIdleMs: random.pick([6_000, 20_000]),
    resyncsAtOnce: random.pick([1, 2]),
    resyncBytesPerSecond: random.pick([32 * 1024, 256 * 1024, 256 * 1024 * 1024]),
  };
}

function drawVolume(
  random: Prng,
  name: string,
  nodes: readonly string[],
  { layout, activeMs, rots, theme }: { layout: Layout; activeMs: number; rots: boolean; theme: Theme },
): VolumePlan {
  const replicas = random.shuffled(nodes).slice(0, Math.min(nodes.length, random.pick(theme.replicas)));
  const regions = random.pick([1, 2, 4, 8]);
  const queueDepth = random.pick([1, 2, 4, 8]);
  const operations = random.pick(theme.operations);
  return {
    name,
    replicas,
    minInSync: replicas.length > 1 && random.chance(0.15) ? 2 : 1,
    blocks: Math.max(2, Math.min(theme.mostBlocks, (regions * layout.regionBytes) / PAGE)),
    queueDepth,
    burstEveryMs: (activeMs * queueDepth * OPERATIONS_PER_SLOT) / operations,
    weights: {
      write: random.pick([2, 6]),
      fua: random.pick(theme.fuas),
      read: random.pick([1, 4]),
      flush: random.pick(theme.flushes),
      trim: random.pick([0, 0.3, 1]),
    },
    moveEveryMs: random.pick(theme.moveEveryMs),
    absentMs: random.pick([0, 0, 0, 15_000]),
    evictAfterMs: random.pick(theme.evictAfterMs),
    grows: random.chance(0.15),
    resizeEveryMs: random.pick([Infinity, Infinity, Infinity, rots ? Infinity : 5_000]),
  };
}
