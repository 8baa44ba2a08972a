import { HoldfastError, messageOf } from '../base/errors.js';
import type { NodeName } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { placementNodes, readCluster } from './cluster-view.js';
import { missingReplicas, whyMissing } from './missing-replicas.js';
import { indexOf } from './node-watch.js';
import { place, type PlacementNode, type PlacementOrder, type Site } from './placement.js';
import { sourceOf } from './rebuild-load.js';
import type { RebuildAgent } from './rebuild-agents.js';
import type { RebuildRound } from './rebuild-round.js';
import { isLost, type VolumeSight } from './volume-sight.js';

/** A node on which a replica could not be made is not tried again for the same volume in this time. */
const AVOID_MS = 60_000;

/**
 * Given a volume with fewer replicas than wanted, or with one that is lost, then an empty replica is made on another
 * node and put into the record, not in sync; a writer brings it up.
 */
export class ReplicaPlacer {
  /** `volume node` → what it failed with, and until when it is avoided. */
  readonly #failed = new Map<string, { readonly reason: string; readonly untilMs: number }>();

  /** The record with one more replica; undefined: none was to be placed, or none could be. */
  async tend(round: RebuildRound, sight: VolumeSight): Promise<VolumeRecord | undefined> {
    if (missingReplicas(sight) === 0) return undefined;
    // Most of many that wait need no look at the cluster anew to know that it is not their turn.
    if (this.#choose(round, round.nodes, sight) === undefined) return undefined;
    return round.parts.placing.run(() => this.#placeOne(round, sight.record.id));
  }

  async #placeOne(round: RebuildRound, id: string): Promise<VolumeRecord | undefined> {
    const cluster = await readCluster(round.parts.store);
    const record = cluster.volumes.find((volume) => volume.id === id);
    if (record === undefined) return undefined;
    const sight = round.sightOf(record, indexOf(cluster));
    if (missingReplicas(sight) === 0) return undefined;
    const site = this.#choose(round, placementNodes(cluster, round.parts.liveness), sight);
    if (site === undefined) return undefined;
    // No record names it yet: should this process end here, the node finds so by itself and collects it.
    if (!(await this.#make(round, record, site))) return undefined;
    const why = `a new replica is made on ${site.node}: ${whyMissing(sight)}`;
    const changed = await round.change(id, (now) => {
      if (missingReplicas(now) === 0 || now.record.capacityBytes !== record.capacityBytes) return undefined;
      if (now.record.replicas.some(({ node }) => node === site.node)) return undefined;
      const placement = (now.record.placements ?? 0) + 1;
      const replicas = [...now.record.replicas, { ...site, inSync: false, placement }];
      return { replicas, placements: placement, why };
    });
    if (changed === undefined) {
      round.parts.strays.add(site.node, id);
      return undefined;
    }
    round.load.add([site.node, ...sourcesOf(sight)]);
    round.parts.log.info({ volume: id, ...site, why }, 'replica placed');
    return changed;
  }

  /** The best site, within the bound on rebuilds; undefined: none now, and why stands in the round's problems. */
  #choose(round: RebuildRound, nodes: readonly PlacementNode[], sight: VolumeSight): Site | undefined {
    const { limits } = round.parts;
    const { id } = sight.record;
    if (!round.load.allows(sourcesOf(sight))) return undefined;
    const order = orderFor(sight, this.#avoided(round, sight));
    const placement = place(nodes, order, limits);
    if ('missing' in placement) {
      round.problems.set(id, placement.missing);
      return undefined;
    }
    // A node that is busy with others is only the second choice, and waited for where there is no other.
    const busy = nodes.filter(({ name }) => !round.load.allows([name]));
    const avoided = new Map([...order.avoided, ...busy.map(({ name }) => [name, 'is busy with rebuilds'] as const)]);
    const now = place(nodes, { ...order, avoided }, limits);
    return 'missing' in now ? undefined : now.sites[0];
  }

  async #make(round: RebuildRound, { id, capacityBytes }: VolumeRecord, { node, disk }: Site): Promise<boolean> {
    try {
      await round.ask(node, (agent) => createAnew(agent, id, disk, capacityBytes));
      this.#failed.delete(keyOf(id, node));
      round.made(node, id);
      return true;
    } catch (error) {
      const reason = `failed to make a replica: ${messageOf(error)}`;
      this.#failed.set(keyOf(id, node), { reason, untilMs: round.parts.clock.now() + AVOID_MS });
      round.parts.strays.add(node, id);
      round.problems.set(id, `node ${node} ${reason}`);
      return false;
    }
  }

  /** Nodes of lost replicas, for a volume never has two replicas on one node; and those that failed of late. */
  #avoided(round: RebuildRound, { record, replicas }: VolumeSight): Map<NodeName, string> {
    const now = round.parts.clock.now();
    for (const [key, { untilMs }] of this.#failed) if (untilMs <= now) this.#failed.delete(key);
    const avoided = new Map<NodeName, string>();
    for (const { name } of round.cluster.nodes) {
      const failed = this.#failed.get(keyOf(record.id, name));
      if (failed !== undefined) avoided.set(name, failed.reason);
    }
    for (const { node } of replicas.filter(isLost)) avoided.set(node, 'has a replica that is lost');
    return avoided;
  }
}

/** One that is left on another disk of the node by an earlier try makes way: no record names it. */
async function createAnew(agent: RebuildAgent, id: string, disk: string, capacityBytes: number): Promise<void> {
  try {
    await agent.createReplica(id, disk, capacityBytes);
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'already-exists') throw error;
    await agent.removeReplica(id);
    await agent.createReplica(id, disk, capacityBytes);
  }
}

/** One further replica beside those that are not lost. Topology has had its say when the volume was made. */
export function orderFor(
  { record, replicas }: Pick<VolumeSight, 'record' | 'replicas'>,
  avoided: ReadonlyMap<NodeName, string>,
): PlacementOrder {
  const kept = replicas.filter((replica) => !isLost(replica)).map(({ node, disk }) => ({ node, disk }));
  const { zones, replicas: wanted } = record.parameters;
  const { capacityBytes } = record;
  const topology = { preferred: [], requisite: [] };
  return { capacityBytes, replicas: kept.length + 1, shared: wanted, zones, ...topology, kept, avoided };
}

function sourcesOf(sight: VolumeSight): NodeName[] {
  const source = sourceOf(sight, sight.writer.kind === 'none' ? undefined : sight.writer.node);
  return source === undefined ? [] : [source];
}

function keyOf(volume: string, node: NodeName): string {
  return `${volume} ${node}`;
}
