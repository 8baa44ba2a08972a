import { CAPACITY_STEP_BYTES, MAX_CAPACITY_BYTES } from '../model/layout.js';
import { roomOf, roomOfNode, type PlacementLimits, type PlacementNode } from './placement.js';

/** What the cluster can still take. */
export interface Room {
  /** The sum of the capacities of further volumes, if they are small enough to fill every gap. */
  readonly availableBytes: number;
  /** The largest single volume. */
  readonly largestBytes: number;
}

/**
 * Room for volumes of `replicas` copies on as many nodes. Pure. The sum is the largest total T for which every replica
 * finds a place: a node can hold at most one copy of each volume, so at most T of its room counts, and the counted room
 * must hold `replicas` times T.
 */
export function roomFor(
  nodes: readonly PlacementNode[],
  order: { readonly replicas: number; readonly zones: 'spread' | 'same' },
  limits: PlacementLimits,
): Room {
  const groups = order.zones === 'same' ? byZone(nodes) : [nodes];
  const rooms = groups.map((group) => roomOfGroup(group, order, limits));
  return {
    availableBytes: roundDown(rooms.reduce((sum, room) => sum + room.availableBytes, 0)),
    largestBytes: roundDown(Math.min(MAX_CAPACITY_BYTES, Math.max(0, ...rooms.map((room) => room.largestBytes)))),
  };
}

function roomOfGroup(
  nodes: readonly PlacementNode[],
  { replicas, zones }: { readonly replicas: number; readonly zones: 'spread' | 'same' },
  limits: PlacementLimits,
): Room {
  // `spread` gives each zone an even share of the replicas, so within a zone only that many nodes count for one volume.
  const zoned = byZone(nodes);
  const withDisks = zoned.filter((group) => group.some((node) => node.disks.length > 0)).length;
  const share = zones === 'spread' ? Math.ceil(replicas / Math.max(1, withDisks)) : replicas;
  const largest = zoned
    .flatMap((group) => descending(group.map((node) => roomOfNode(node, limits))).slice(0, share))
    .toSorted((a, b) => b - a);
  const sums = zoned.map((group) => ({ rooms: group.map((node) => totalRoomOf(node, limits)), share }));
  return { availableBytes: largestTotal(sums, replicas), largestBytes: largest[replicas - 1] ?? 0 };
}

/** The largest T with Σ over zones of min(share·T, Σ over nodes of min(room, T)) ≥ replicas·T, by bisection. */
function largestTotal(zones: readonly { rooms: readonly number[]; share: number }[], replicas: number): number {
  const fits = (total: number): boolean => {
    const counted = zones.map(({ rooms, share }) =>
      Math.min(
        share * total,
        rooms.reduce((sum, room) => sum + Math.min(room, total), 0),
      ),
    );
    return counted.reduce((sum, value) => sum + value, 0) >= replicas * total;
  };
  // Whole steps, so that a total that just fits is found.
  let most = 0;
  let tooMany =
    Math.floor(zones.flatMap((zone) => zone.rooms).reduce((sum, room) => sum + room, 0) / CAPACITY_STEP_BYTES) + 1;
  while (tooMany - most > 1) {
    const middle = Math.floor((most + tooMany) / 2);
    if (fits(middle * CAPACITY_STEP_BYTES)) most = middle;
    else tooMany = middle;
  }
  return most * CAPACITY_STEP_BYTES;
}

function totalRoomOf(node: PlacementNode, limits: PlacementLimits): number {
  if (!node.ready || node.cordoned) return 0;
  return node.disks.reduce((sum, disk) => sum + roomOf(disk, limits), 0);
}

function byZone(nodes: readonly PlacementNode[]): PlacementNode[][] {
  return [...new Set(nodes.map((node) => node.zone))].map((zone) => nodes.filter((node) => node.zone === zone));
}

function descending(values: readonly number[]): number[] {
  return values.toSorted((a, b) => b - a);
}

function roundDown(bytes: number): number {
  return Math.floor(bytes / CAPACITY_STEP_BYTES) * CAPACITY_STEP_BYTES;
}
