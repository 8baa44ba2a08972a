import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock } from '../io/io.js';
import type { DiskId, NodeName, VolumeId } from '../model/ids.js';
import type { NodeRecord } from '../model/records.js';
import type { ReplicaSummary } from '../replica/replicas.js';
import type { ClusterRecords, NodeLiveness } from './cluster-view.js';
import type { RebuildAgents } from './rebuild-agents.js';

interface Listing {
  readonly askedAt: number;
  /** Those that records name. */
  readonly replicas: ReadonlyMap<VolumeId, ReplicaSummary>;
  /** Volumes whose record named a replica there, and that the node did not list; how often in a row. */
  readonly misses: Map<VolumeId, number>;
}

export interface InventoryOptions {
  readonly agents: RebuildAgents;
  readonly liveness: NodeLiveness;
  readonly clock: Clock;
  readonly everyMs: number;
  readonly log: Log;
}

/** A replica has to be missed so often in a row: a node may have been asked while one was on its way. */
const MISSES = 2;

/** What the live nodes tell of the replicas on their disks, asked every so often. */
export class Inventory {
  readonly #listings = new Map<NodeName, Listing>();
  #lookedAt = -Infinity;

  constructor(private readonly options: InventoryOptions) {}

  /** Asks every live node, all at once, if it is time. A node that doesn't answer is known by its last answer. */
  async look(cluster: ClusterRecords): Promise<void> {
    const { clock, everyMs, liveness } = this.options;
    if (clock.now() - this.#lookedAt < everyMs) return;
    this.#lookedAt = clock.now();
    const live = cluster.nodes.filter(({ name }) => liveness.state(name) === 'live');
    const names = new Set(live.map(({ name }) => name));
    // What a node told before it went away is no longer true when it is back.
    for (const name of this.#listings.keys()) if (!names.has(name)) this.#listings.delete(name);
    await Promise.all(live.map((node) => this.#list(node, cluster)));
  }

  /** What its node told of a replica, and when it was asked (monotonic milliseconds); undefined: nothing. */
  told(node: NodeName, volume: VolumeId): { readonly askedAt: number; readonly replica: ReplicaSummary } | undefined {
    const listing = this.#listings.get(node);
    const replica = listing?.replicas.get(volume);
    return listing && replica && { askedAt: listing.askedAt, replica };
  }

  /** R12: the node does not find the replica on its disks. */
  isMissing(node: NodeName, volume: VolumeId): boolean {
    return (this.#listings.get(node)?.misses.get(volume) ?? 0) >= MISSES;
  }

  /** A replica was made there just now: that one was missing before says nothing of it. */
  made(node: NodeName, volume: VolumeId): void {
    this.#listings.get(node)?.misses.delete(volume);
  }

  async #list(node: NodeRecord, { volumes, disks }: ClusterRecords): Promise<void> {
    const { agents, clock, log } = this.options;
    const askedAt = clock.now();
    try {
      const told = await agents.of(node).listReplicas();
      const replicas = new Map<VolumeId, ReplicaSummary>();
      const before = this.#listings.get(node.name)?.misses;
      const misses = new Map<VolumeId, number>();
      // Of a disk that its node does not have open yet it can't tell.
      const isOpen = (id: DiskId): boolean =>
        disks.some(({ diskId, node: at, state }) => diskId === id && at === node.name && state === 'ready');
      // The records were read before the question, and a ready record names no replica before it is made.
      for (const { id, phase, replicas: named } of volumes) {
        const here = named.find((replica) => replica.node === node.name);
        if (!here) continue;
        // On another disk it may have an older one.
        const found = told.find(({ volume, disk }) => volume === id && disk === here.disk);
        if (found) replicas.set(id, found);
        else if (phase === 'ready' && isOpen(here.disk)) misses.set(id, (before?.get(id) ?? 0) + 1);
      }
      this.#listings.set(node.name, { askedAt, replicas, misses });
    } catch (error) {
      log.debug({ node: node.name, reason: messageOf(error) }, 'node does not tell about its replicas');
    }
  }
}
