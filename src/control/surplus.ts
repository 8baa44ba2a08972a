import type { NodeName } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { PlacementNode } from './placement.js';
import { isDead, isLost, isSolid, type ReplicaSight, type VolumeSight } from './volume-sight.js';

/**
 * Which replica of a volume has to go, if any. Pure.
 *
 * forget: it is not in sync; its entry is taken out of the record. drop: it is in sync; only a writer may take it out.
 */
export type Surplus = { readonly kind: 'forget' | 'drop'; readonly node: NodeName; readonly why: string };

/** What is known of the nodes, for the choice among replicas that are all well. */
export interface NodeMerit {
  readonly zone: string;
  readonly cordoned: boolean;
  /** Share of the disk that is provisioned. */
  readonly filled: number;
}

/**
 * - One that is gone for good is of no use: it goes at once, in sync by record or not, while another one is well and
 *   writes do not have to wait for want of it.
 * - One more than wanted goes when as many as wanted are in sync on live nodes without it. So a node that comes back
 *   while its replica is rebuilt elsewhere is kept if it is in sync first.
 * - Nothing is decided while the lease of one of the nodes is unknown.
 */
export function surplusOf(
  { record, replicas, writer }: VolumeSight,
  meritOf: (replica: ReplicaSight) => NodeMerit,
): Surplus | undefined {
  if (replicas.some(({ standing }) => standing.kind === 'unsure')) return undefined;
  const solid = replicas.filter(isSolid);
  const dead = replicas.filter(isDead);
  const behindForGood = dead.find(({ inSync }) => !inSync);
  if (behindForGood !== undefined && replicas.length > 1) return forget(behindForGood, reasonOf(behindForGood));
  const inSyncForGood = dead.find(({ inSync }) => inSync);
  if (inSyncForGood !== undefined && solid.length > 0 && mayLeave(record, inSyncForGood.node)) {
    return drop(inSyncForGood, reasonOf(inSyncForGood));
  }
  const wanted = record.parameters.replicas;
  if (replicas.length <= wanted || solid.length < wanted) return undefined;
  const why = `${wanted} ${wanted === 1 ? 'is' : 'are'} wanted, and as many are in sync without it`;
  const worst = replicas.filter((replica) => !isSolid(replica)).toSorted((a, b) => rank(a) - rank(b))[0];
  if (worst !== undefined) return worst.inSync ? drop(worst, why) : forget(worst, why);
  const writing = writer.kind === 'none' ? undefined : writer.node;
  const least = leastNeeded(solid, writing, record.parameters.zones === 'spread', meritOf);
  return least && mayLeave(record, least.node) ? drop(least, why) : undefined;
}

/** What placement knows of the node and the disk that a replica lies on. */
export function meritIn(nodes: readonly PlacementNode[]): (replica: Pick<ReplicaSight, 'node' | 'disk'>) => NodeMerit {
  const byName = new Map(nodes.map((node) => [node.name, node]));
  return ({ node: name, disk: diskId }) => {
    const node = byName.get(name);
    const disk = node?.disks.find(({ id }) => id === diskId);
    const filled = disk === undefined ? 0 : disk.provisionedBytes / Math.max(1, disk.capacityBytes);
    return { zone: node?.zone ?? '', cordoned: node?.cordoned ?? false, filled };
  };
}

/** The last in-sync replica never leaves the set, nor one without which writes would wait (minInSync). */
export function mayLeave({ replicas, parameters }: VolumeRecord, node: NodeName): boolean {
  const left = replicas.filter((replica) => replica.inSync && replica.node !== node).length;
  return left >= Math.max(1, parameters.minInSync);
}

/** Those that are of least use first: behind before in sync, lost before away before live. */
function rank(replica: ReplicaSight): number {
  return (replica.inSync ? 3 : 0) + (isLost(replica) ? 0 : replica.standing.kind === 'away' ? 1 : 2);
}

/** The writer's own replica stays; of the others: one on a cordoned node, in the fullest zone, on the fullest disk. */
function leastNeeded(
  solid: readonly ReplicaSight[],
  writing: NodeName | undefined,
  spread: boolean,
  meritOf: (replica: ReplicaSight) => NodeMerit,
): ReplicaSight | undefined {
  const weighed = solid
    .filter((replica) => replica.node !== writing)
    .map((replica) => {
      const { zone, cordoned, filled } = meritOf(replica);
      const inZone = spread ? solid.filter((other) => meritOf(other).zone === zone).length : 0;
      return { replica, score: (cordoned ? 100 : 0) + 10 * inZone + Math.min(filled, 9) };
    });
  return weighed.toSorted((a, b) => b.score - a.score || (a.replica.node < b.replica.node ? 1 : -1))[0]?.replica;
}

function reasonOf({ standing }: ReplicaSight): string {
  return standing.kind === 'lost' ? standing.reason : '';
}

function forget({ node }: ReplicaSight, why: string): Surplus {
  return { kind: 'forget', node, why };
}

function drop({ node }: ReplicaSight, why: string): Surplus {
  return { kind: 'drop', node, why };
}
