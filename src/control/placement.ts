import { TOPOLOGY_ZONE } from '../config.js';
import type { DiskId, NodeName } from '../model/ids.js';
import type { DiskRecord } from '../model/records.js';

/**
 * Where the replicas of a volume lie. Pure: a view of the cluster and an order go in; sites or, for each node, why it
 * was not taken come out.
 *
 *     nodes ─ filters in a row ─▶ candidates ─ weighed scores ─▶ best ─ again with one site more ─▶ sites
 *
 * A volume is usable from every node over the network, so topology never excludes a node: it says where the volume
 * will be used first, and the first replica is put as near to that as there is room. `zones: spread` is a promise: no
 * zone holds more than its even share of the replicas. Taking the best candidate again and again finds a placement
 * whenever there is one, since a zone's share is the only thing that one choice takes from the next.
 */
export interface PlacementNode {
  readonly name: NodeName;
  readonly topology: Readonly<Record<string, string>>;
  /** '' where the node names none; all such nodes are one zone. */
  readonly zone: string;
  readonly ready: boolean;
  readonly cordoned: boolean;
  readonly disks: readonly PlacementDisk[];
}

export interface PlacementDisk {
  readonly id: DiskId;
  readonly state: DiskRecord['state'];
  readonly capacityBytes: number;
  readonly usedBytes: number;
  /** The sum of the capacities of the volumes that have a replica there. */
  readonly provisionedBytes: number;
}

export interface Site {
  readonly node: NodeName;
  readonly disk: DiskId;
}

export type Segments = Readonly<Record<string, string>>;

export interface PlacementOrder {
  readonly capacityBytes: number;
  readonly replicas: number;
  /** Replicas that the zones share evenly, where not all of them are to be placed now; absent: `replicas`. */
  readonly shared?: number;
  readonly zones: 'spread' | 'same';
  /** Topologies the volume will be used from: preferred ones in order, then those that are merely allowed. */
  readonly preferred: readonly Segments[];
  readonly requisite: readonly Segments[];
  /** Sites the volume has already; they count, and stay. */
  readonly kept: readonly Site[];
  /** Nodes not to be tried, and why. */
  readonly avoided: ReadonlyMap<NodeName, string>;
}

export interface PlacementLimits {
  /** Provisioned bytes on a disk may be this many times its capacity. */
  readonly overcommit: number;
}

export type Placement = { readonly sites: readonly Site[] } | { readonly missing: string };

/** A disk above this share of used bytes takes no new replica, however little is provisioned on it. */
export const HIGH_WATER = 0.9;

/** The further sites that the order needs, best first; or what is missing where. */
export function place(nodes: readonly PlacementNode[], order: PlacementOrder, limits: PlacementLimits): Placement {
  const share = zoneShare(nodes, order);
  const zone = order.zones === 'same' ? commonZone(nodes, order, limits) : undefined;
  const sites: Site[] = [];
  while (order.kept.length + sites.length < order.replicas) {
    const taken = [...order.kept, ...sites];
    const candidates = nodes.filter((node) => whyNot(node, { nodes, order, limits, taken, share, zone }) === undefined);
    const best = candidates.toSorted(byScore({ nodes, order, limits }, taken))[0];
    const disk = best === undefined ? undefined : roomiest(best, limits);
    if (best === undefined || disk === undefined) {
      return { missing: explain({ nodes, order, limits, taken, share, zone }) };
    }
    sites.push({ node: best.name, disk: disk.id });
  }
  return { sites };
}

/** What a disk can still take; 0 where it takes nothing. */
export function roomOf(disk: PlacementDisk, limits: PlacementLimits): number {
  if (disk.state !== 'ready' || disk.usedBytes >= disk.capacityBytes * HIGH_WATER) return 0;
  return Math.max(0, Math.floor(disk.capacityBytes * limits.overcommit) - disk.provisionedBytes);
}

/** The largest volume a node can take a replica of now. */
export function roomOfNode(node: PlacementNode, limits: PlacementLimits): number {
  if (!node.ready || node.cordoned) return 0;
  return Math.max(0, ...node.disks.map((disk) => roomOf(disk, limits)));
}

interface Round {
  readonly nodes: readonly PlacementNode[];
  readonly order: PlacementOrder;
  readonly limits: PlacementLimits;
  readonly taken: readonly Site[];
  readonly share: number;
  /** The zone that all replicas must lie in; undefined: any. */
  readonly zone: string | undefined;
}

/** The filters, in a row. Each says why a node is not taken; none does: it is a candidate. */
const FILTERS: readonly ((node: PlacementNode, round: Round) => string | undefined)[] = [
  (node, { taken }) => (taken.some((site) => site.node === node.name) ? 'has a replica already' : undefined),
  (node, { order }) => order.avoided.get(node.name),
  (node) => (node.ready ? undefined : 'is not ready'),
  (node) => (node.cordoned ? 'is cordoned' : undefined),
  (node) => (node.disks.length > 0 ? undefined : 'has no disk'),
  (node) => (node.disks.some((disk) => disk.state === 'ready') ? undefined : 'has no working disk'),
  (node, { order, limits }) => (roomiest(node, limits, order.capacityBytes) ? undefined : noRoom(node, limits)),
  (node, { zone }) => (zone === undefined || node.zone === zone ? undefined : `is not in zone ${named(zone)}`),
  (node, { nodes, taken, share, order }) =>
    order.zones === 'spread' && inZone(node.zone, nodes, taken) >= share
      ? `zone ${named(node.zone)} has its share of the replicas already`
      : undefined,
];

function whyNot(node: PlacementNode, round: Round): string | undefined {
  for (const filter of FILTERS) {
    const reason = filter(node, round);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

/** Nearness to where the volume will be used outweighs all else for the first replica; then room; then the name. */
function byScore(
  { nodes, order, limits }: Pick<Round, 'nodes' | 'order' | 'limits'>,
  taken: readonly Site[],
): (a: PlacementNode, b: PlacementNode) => number {
  const score = (node: PlacementNode): number =>
    (taken.length === 0 ? 10 * nearness(node, order, nodes) : 0) + freeShare(node, limits);
  return (a, b) => score(b) - score(a) || (a.name < b.name ? -1 : 1);
}

/**
 * From 0 (anywhere) to above 2: each preferred topology counts less than the one before it, an allowed one less than
 * every preferred one. A node that matches all segments lies nearer than one that only shares the zone.
 */
function nearness(node: PlacementNode, order: PlacementOrder, nodes: readonly PlacementNode[]): number {
  const wishes = [...order.preferred, ...order.requisite];
  const weigh = (match: (wish: Segments) => boolean): number => {
    const rank = wishes.findIndex(match);
    if (rank === -1) return 0;
    return rank < order.preferred.length ? 1 - rank / (2 * wishes.length) : 0.25;
  };
  const same = weigh((wish) => matches(node.topology, wish));
  const zone = weigh((wish) => sharesZone(node, wish, nodes));
  return 2 * same + zone;
}

/** Whether all wanted segments are the node's. */
export function matches(topology: Segments, wanted: Segments): boolean {
  return Object.entries(wanted).every(([key, value]) => topology[key] === value);
}

/** Whether the wish lies in the node's zone: it says so, or a node that fulfils it (one without disks, say) does. */
function sharesZone(node: PlacementNode, wish: Segments, nodes: readonly PlacementNode[]): boolean {
  if (node.zone === '') return false;
  return (
    wish[TOPOLOGY_ZONE] === node.zone ||
    nodes.some((other) => other.zone === node.zone && matches(other.topology, wish))
  );
}

function freeShare(node: PlacementNode, limits: PlacementLimits): number {
  const disk = roomiest(node, limits);
  return disk === undefined ? 0 : roomOf(disk, limits) / (disk.capacityBytes * limits.overcommit);
}

function roomiest(node: PlacementNode, limits: PlacementLimits, atLeast = 1): PlacementDisk | undefined {
  const fits = node.disks.filter((disk) => roomOf(disk, limits) >= atLeast);
  return fits.toSorted((a, b) => roomOf(b, limits) - roomOf(a, limits) || (a.id < b.id ? -1 : 1))[0];
}

/** How many replicas one zone may hold: an even share over the zones that have disks at all, ready or not. */
function zoneShare(nodes: readonly PlacementNode[], order: PlacementOrder): number {
  const zones = new Set(nodes.filter((node) => node.disks.length > 0).map((node) => node.zone));
  return Math.ceil((order.shared ?? order.replicas) / Math.max(1, zones.size));
}

/** `zones: same`: the zone of the replicas there are; else, of the zones that can hold all, the one with the best node. */
function commonZone(
  nodes: readonly PlacementNode[],
  order: PlacementOrder,
  limits: PlacementLimits,
): string | undefined {
  const kept = nodes.find((node) => order.kept.some((site) => site.node === node.name));
  if (kept !== undefined) return kept.zone;
  const round: Round = { nodes, order, limits, taken: [], share: Infinity, zone: undefined };
  const candidates = nodes.filter((node) => whyNot(node, round) === undefined).toSorted(byScore(round, []));
  const count = (zone: string): number => candidates.filter((node) => node.zone === zone).length;
  const enough = candidates.find((node) => count(node.zone) >= order.replicas);
  return (enough ?? candidates.toSorted((a, b) => count(b.zone) - count(a.zone))[0])?.zone;
}

function inZone(zone: string, nodes: readonly PlacementNode[], taken: readonly Site[]): number {
  return nodes.filter((node) => node.zone === zone && taken.some((site) => site.node === node.name)).length;
}

function explain(round: Round): string {
  const { order, taken, nodes } = round;
  const head = `no room for replica ${taken.length + 1} of ${order.replicas} of ${inGib(order.capacityBytes)}`;
  if (nodes.length === 0) return `${head}: no node is registered`;
  const reasons = nodes
    .filter((node) => !taken.some((site) => site.node === node.name))
    .map((node) => `${node.name} ${whyNot(node, round) ?? 'would do'}`);
  const already = taken.map((site) => `${site.node} has one`);
  return `${head}: ${shorten([...already, ...reasons])}`;
}

/** A refusal is read by people and carried in gRPC trailers: it names at most this many nodes. */
const MAX_REASONS = 20;

function shorten(reasons: readonly string[]): string {
  const rest = reasons.length - MAX_REASONS;
  return reasons.slice(0, MAX_REASONS).join('; ') + (rest > 0 ? `; and ${rest} more nodes` : '');
}

function noRoom(node: PlacementNode, limits: PlacementLimits): string {
  const ready = node.disks.filter((disk) => disk.state === 'ready');
  const room = Math.max(0, ...ready.map((disk) => roomOf(disk, limits)));
  const full = ready.filter((disk) => disk.usedBytes >= disk.capacityBytes * HIGH_WATER).length;
  const above = full === 0 ? '' : ` (${full} of its disks above ${HIGH_WATER * 100} % used)`;
  return `has ${inGib(room)} left on its roomiest disk${above}`;
}

function named(zone: string): string {
  return zone === '' ? '(none)' : zone;
}

function inGib(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(2)} GiB`;
}
