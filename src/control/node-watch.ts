import type { Clock } from '../io/io.js';
import type { DiskId, NodeName } from '../model/ids.js';
import type { ReplicaRecord } from '../model/records.js';
import type { ClusterRecords, NodeLiveness } from './cluster-view.js';
import { whatIsWrong, type ReplicaFacts } from './replica-standing.js';

/**
 * Since when nodes are away and disks can't be used, as this process has seen it on its own clock. After a restart it
 * begins anew: a rebuild too late costs little, one too early copies whole volumes for nothing.
 */
export class NodeWatch {
  readonly #expiredSince = new Map<NodeName, number>();
  readonly #wrongSince = new Map<string, number>();

  constructor(
    private readonly clock: Clock,
    private readonly liveness: NodeLiveness,
  ) {}

  /** One look at the whole cluster. */
  observe(cluster: ClusterRecords): void {
    const names = new Set(cluster.nodes.map(({ name }) => name));
    const expired = [...names].filter((name) => this.liveness.state(name) === 'expired');
    this.#note(this.#expiredSince, expired);
    const disks = new Map(cluster.disks.map((disk) => [disk.diskId, disk]));
    const wrong = new Set<string>();
    for (const { replicas } of cluster.volumes) {
      for (const { node, disk } of replicas) {
        if (this.liveness.state(node) !== 'live') continue;
        if (whatIsWrong(disks.get(disk), node) !== undefined) wrong.add(keyOf(node, disk));
      }
    }
    this.#note(this.#wrongSince, wrong);
  }

  /** What is known of where a replica lies, but for what its node would tell of it. */
  factsOf({ node, disk }: Pick<ReplicaRecord, 'node' | 'disk'>, cluster: ClusterIndex): Omit<ReplicaFacts, 'notFound'> {
    return {
      node,
      disk,
      registered: cluster.nodes.has(node),
      lease: this.liveness.state(node),
      expiredMs: this.#since(this.#expiredSince.get(node)),
      diskRecord: cluster.disks.get(disk),
      diskWrongMs: this.#since(this.#wrongSince.get(keyOf(node, disk))),
    };
  }

  #since(at: number | undefined): number {
    return at === undefined ? 0 : this.clock.now() - at;
  }

  /** Keeps the time of those that were seen so before; whoever is not seen so now begins anew the next time. */
  #note(since: Map<string, number>, seen: Iterable<string>): void {
    const now = new Set(seen);
    for (const key of since.keys()) if (!now.has(key)) since.delete(key);
    for (const key of now) if (!since.has(key)) since.set(key, this.clock.now());
  }
}

/** The records of a cluster by their keys. */
export interface ClusterIndex {
  readonly nodes: ReadonlyMap<NodeName, ClusterRecords['nodes'][number]>;
  readonly disks: ReadonlyMap<DiskId, ClusterRecords['disks'][number]>;
}

export function indexOf({ nodes, disks }: Pick<ClusterRecords, 'nodes' | 'disks'>): ClusterIndex {
  return {
    nodes: new Map(nodes.map((node) => [node.name, node])),
    disks: new Map(disks.map((disk) => [disk.diskId, disk])),
  };
}

function keyOf(node: NodeName, disk: DiskId): string {
  return `${node} ${disk}`;
}
