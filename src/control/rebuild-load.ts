import type { NodeName } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { isBehind, isSolid, isTended, type VolumeSight } from './volume-sight.js';

/**
 * How many replicas are being brought back from and to each node, so that a node's return or loss does not set off more
 * copying than its disks and network bear. Sources and targets count alike.
 */
export class RebuildLoad {
  readonly #loads = new Map<NodeName, number>();

  constructor(
    sights: readonly VolumeSight[],
    /** At most so many for each node. */
    private readonly perNode: number,
  ) {
    for (const sight of sights) if (isTended(sight)) this.add(nodesCopying(sight));
  }

  of(node: NodeName): number {
    return this.#loads.get(node) ?? 0;
  }

  /** One more may begin on each of these nodes. */
  allows(nodes: readonly NodeName[]): boolean {
    return nodes.every((node) => this.of(node) < this.perNode);
  }

  add(nodes: readonly NodeName[]): void {
    for (const node of nodes) this.#loads.set(node, this.of(node) + 1);
  }
}

/** From where a writer on `writing` (or nobody yet) would copy; undefined: from nowhere. */
export function sourceOf(
  { replicas }: Pick<VolumeSight, 'replicas'>,
  writing: NodeName | undefined,
): NodeName | undefined {
  const solid = replicas.filter(isSolid).map(({ node }) => node);
  return solid.find((node) => node === writing) ?? solid[0];
}

/** The nodes between which a volume is being copied: the source, and those whose replicas are behind. */
function nodesCopying(sight: VolumeSight): NodeName[] {
  const targets = sight.replicas.filter(isBehind).map(({ node }) => node);
  const source = sourceOf(sight, sight.writer.kind === 'none' ? undefined : sight.writer.node);
  return targets.length === 0 || source === undefined ? [] : [source, ...targets];
}

/** The volumes with the fewest copies come first, then those in use, then by id. */
export function byUrgency(a: VolumeSight, b: VolumeSight): number {
  const copies = (sight: VolumeSight): number => sight.replicas.filter(isSolid).length;
  const idle = ({ record }: { record: VolumeRecord }): number => (record.writer === null ? 1 : 0);
  return copies(a) - copies(b) || idle(a) - idle(b) || (a.record.id < b.record.id ? -1 : 1);
}
