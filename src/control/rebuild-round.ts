import { codeOf, HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Mutex } from '../base/mutex.js';
import type { Clock } from '../io/io.js';
import { CONTROLLER, decided } from '../model/decisions.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import type { ClusterWatch } from './cluster-watch.js';
import { placementNodes, type ClusterRecords, type NodeLiveness } from './cluster-view.js';
import { indexOf, type ClusterIndex } from './node-watch.js';
import { changeVolume } from './parts.js';
import type { PlacementLimits, PlacementNode } from './placement.js';
import type { RebuildAgent, RebuildAgents } from './rebuild-agents.js';
import { byUrgency, RebuildLoad } from './rebuild-load.js';
import type { Patience } from './replica-standing.js';
import type { Strays } from './strays.js';
import { meritIn, type NodeMerit } from './surplus.js';
import type { ReplicaSight, VolumeSight } from './volume-sight.js';

export interface RebuildLimits extends PlacementLimits, Patience {
  /** Replicas that are brought back at once from and to one node. */
  readonly rebuildsPerNode: number;
  /** How often nodes are asked about their replicas. */
  readonly inspectEveryMs: number;
}

/** What the duties of the rebuilder work with. */
export interface RebuildParts {
  readonly store: RecordStore;
  readonly liveness: NodeLiveness;
  readonly agents: RebuildAgents;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: RebuildLimits;
  /** ISO 8601, for people only. */
  readonly wallClock: () => string;
  /** Held from reading the cluster to writing down what was placed; shared with the creation of volumes. */
  readonly placing: Mutex;
  /** Replicas to be removed when their nodes answer again. */
  readonly strays: Strays;
}

/** One look at the cluster, and what is done on the strength of it. */
export class RebuildRound {
  /** Volumes that can be used, the most urgent first. */
  readonly sights: readonly VolumeSight[];
  readonly load: RebuildLoad;
  /** What stands in a volume's way, in words. */
  readonly problems = new Map<VolumeId, string>();
  readonly #index: ClusterIndex;
  readonly #silent = new Set<NodeName>();
  #nodes: readonly PlacementNode[] | undefined;
  #meritOf: ((replica: ReplicaSight) => NodeMerit) | undefined;

  constructor(
    readonly parts: RebuildParts,
    private readonly watch: ClusterWatch,
    readonly cluster: ClusterRecords,
  ) {
    this.#index = indexOf(cluster);
    this.sights = watch.sights(cluster).toSorted(byUrgency);
    this.load = new RebuildLoad(this.sights, parts.limits.rebuildsPerNode);
  }

  /** A replica was made on the node just now. */
  made(node: NodeName, volume: VolumeId): void {
    this.watch.made(node, volume);
  }

  /** The cluster as placement looked at it when the round began. */
  get nodes(): readonly PlacementNode[] {
    return (this.#nodes ??= placementNodes(this.cluster, this.parts.liveness));
  }

  /** The volume of another record, as the nodes stood when the round began. */
  sightOf(record: VolumeRecord, cluster: ClusterIndex = this.#index): VolumeSight {
    return this.watch.sightOf(record, cluster);
  }

  meritOf(replica: ReplicaSight): NodeMerit {
    this.#meritOf ??= meritIn(this.nodes);
    return this.#meritOf(replica);
  }

  /**
   * Asks a node. One that did not answer once is not asked again in this round, so that a round about thousands of
   * volumes waits for it only once: `unavailable`.
   */
  async ask<T>(name: NodeName, question: (agent: RebuildAgent) => Promise<T>): Promise<T> {
    const node = this.#index.nodes.get(name);
    if (node === undefined) throw new HoldfastError('unavailable', `node ${name} is not registered`);
    if (this.parts.liveness.state(name) === 'expired' || this.#silent.has(name)) {
      throw new HoldfastError('unavailable', `node ${name} does not answer`);
    }
    try {
      return await question(this.parts.agents.of(node));
    } catch (error) {
      const code = codeOf(error);
      if (code === 'unavailable' || code === 'deadline-exceeded') this.#silent.add(name);
      throw error;
    }
  }

  /**
   * Changes the record of a volume as `decide` says, given the volume anew. Resolves to the changed record; undefined:
   * nothing was to be changed. The epoch stays: neither writer nor in-sync set is changed here.
   */
  async change(
    id: VolumeId,
    decide: (sight: VolumeSight) => (Pick<VolumeRecord, 'replicas' | 'placements'> & { why: string }) | undefined,
  ): Promise<VolumeRecord | undefined> {
    const { store, wallClock } = this.parts;
    // The last try is the one that came through.
    const last = { changed: false };
    const found = await changeVolume({ store }, volumeKey(id), (record) => {
      last.changed = false;
      if (record.id !== id || record.phase !== 'ready') return undefined;
      const change = decide(this.sightOf(record));
      if (change === undefined) return undefined;
      last.changed = true;
      const { why, ...fields } = change;
      return decided({ ...record, ...fields }, { at: wallClock(), by: CONTROLLER, what: why });
    });
    return last.changed ? found?.record : undefined;
  }
}
