import type { Log } from '../base/log.js';
import type { Clock } from '../io/io.js';
import type { NodeName, VolumeId } from '../model/ids.js';
import type { ReplicaRecord, VolumeRecord } from '../model/records.js';
import type { ClusterRecords, NodeLiveness } from './cluster-view.js';
import { Inventory } from './inventory.js';
import { indexOf, NodeWatch, type ClusterIndex } from './node-watch.js';
import type { RebuildAgents } from './rebuild-agents.js';
import { standingOf, type Patience, type Standing } from './replica-standing.js';
import type { ReplicaSight, ReplicaTold, VolumeSight, WriterSight } from './volume-sight.js';

export interface ClusterWatchOptions {
  readonly agents: RebuildAgents;
  readonly liveness: NodeLiveness;
  readonly clock: Clock;
  readonly patience: Patience;
  /** How often nodes are asked about their replicas. */
  readonly inspectEveryMs: number;
  readonly log: Log;
}

/** Sees volumes: what their records name, how that stands, and what nodes told of it. */
export class ClusterWatch {
  readonly #nodes: NodeWatch;
  readonly #inventory: Inventory;
  /** When a writer was last seen in a volume's record: what nodes told of its replicas before says nothing now. */
  readonly #writtenAt = new Map<VolumeId, number>();

  constructor(private readonly options: ClusterWatchOptions) {
    const { agents, liveness, clock, inspectEveryMs: everyMs, log } = options;
    this.#nodes = new NodeWatch(clock, liveness);
    this.#inventory = new Inventory({ agents, liveness, clock, everyMs, log });
  }

  /** One look at the records, and, if it is time, at the nodes. */
  async observe(cluster: ClusterRecords): Promise<void> {
    this.#nodes.observe(cluster);
    const known = new Set(cluster.volumes.map(({ id }) => id));
    for (const id of this.#writtenAt.keys()) if (!known.has(id)) this.#writtenAt.delete(id);
    for (const { id, writer } of cluster.volumes) {
      if (writer !== null) this.#writtenAt.set(id, this.options.clock.now());
    }
    await this.#inventory.look(cluster);
  }

  /** A replica was made on the node just now. */
  made(node: NodeName, volume: VolumeId): void {
    this.#inventory.made(node, volume);
  }

  /** The volumes of the cluster that can be used, as they stand now. */
  sights(cluster: ClusterRecords): VolumeSight[] {
    const index = indexOf(cluster);
    return cluster.volumes.filter(({ phase }) => phase === 'ready').map((record) => this.sightOf(record, index));
  }

  sightOf(record: VolumeRecord, cluster: ClusterIndex): VolumeSight {
    const replicas = record.replicas.map((replica): ReplicaSight => ({
      ...replica,
      standing: this.standingOf(record.id, replica, cluster),
      told: this.#told(record.id, replica),
    }));
    return { record, replicas, writer: this.#writer(record, cluster) };
  }

  standingOf(volume: VolumeId, replica: ReplicaRecord, cluster: ClusterIndex): Standing {
    const notFound = this.#inventory.isMissing(replica.node, volume);
    return standingOf({ ...this.#nodes.factsOf(replica, cluster), notFound }, this.options.patience);
  }

  #told(volume: VolumeId, { node, disk }: ReplicaRecord): ReplicaTold | undefined {
    const told = this.#inventory.told(node, volume);
    if (told?.replica.disk !== disk) return undefined;
    const { crashMark, openRegions, damagedBlocks } = told.replica;
    return { crashMark, openRegions, damagedBlocks, fresh: told.askedAt > (this.#writtenAt.get(volume) ?? -Infinity) };
  }

  #writer({ id, writer, replicas }: VolumeRecord, cluster: ClusterIndex): WriterSight {
    if (writer === null) return { kind: 'none' };
    const { node } = writer;
    // The writer's node is judged as if it had a disk that works: what counts is the node.
    const facts = { ...this.#nodes.factsOf({ node, disk: '' }, cluster), diskWrongMs: 0, notFound: false };
    return {
      kind: writer.maintenance === true ? 'maintenance' : 'attached',
      node,
      standing: standingOf({ ...facts, diskRecord: { node, state: 'ready', reason: '' } }, this.options.patience),
      heard: replicas.some(
        (replica) => replica.node !== node && this.#inventory.told(replica.node, id)?.replica.writerHeard === true,
      ),
    };
  }
}
