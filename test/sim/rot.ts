import { volumeKey, type VolumeId } from '../../src/model/ids.js';
import type { Prng } from './prng.js';
import { blockOf, OPEN, placeOf, tableOf } from './replicas-on-disk.js';
import type { SimCluster } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';

/** A block of one replica. */
export interface Place {
  readonly node: SimNode;
  readonly volume: VolumeId;
  readonly block: number;
}

const PAGE_BYTES = 4096;

/**
 * A block that may rot and must be found: of a closed region, with data, of a replica in sync, while another in-sync
 * replica has it whole.
 */
export function findRottable(cluster: SimCluster, random: Prng): Place | undefined {
  const { layout } = cluster.scenario;
  const volume = random.pick(cluster.volumes);
  const record = cluster.store.volume(volumeKey(volume));
  const inSync =
    record?.replicas.filter((replica) => replica.inSync).map((replica) => cluster.node(replica.node)) ?? [];
  if (!record || inSync.length < 2) return undefined;
  const node = random.pick(inSync);
  const table = tableOf(node, volume, layout.regionCount(record.capacityBytes)) ?? [];
  const blocks: number[] = [];
  for (const [region, stamp] of table.entries()) {
    if (stamp === OPEN || stamp === 0) continue;
    const { offset, length } = layout.rangeOf(region);
    for (let at = offset; at < Math.min(offset + length, record.capacityBytes); at += PAGE_BYTES) {
      if (blockOf(cluster, node, volume, at)) blocks.push(at / PAGE_BYTES);
    }
  }
  const whole = blocks.filter(
    (block) => !inSync.some((other) => cluster.rotten.has(nameOf({ node: other, volume, block }))),
  );
  return whole.length > 0 ? { node, volume, block: random.pick(whole) } : undefined;
}

/** Flips one bit of the block at rest. */
export function rot(cluster: SimCluster, place: Place, bit: number): void {
  const { path, offset } = placeOf(cluster, place.volume, place.block * PAGE_BYTES);
  place.node.machine.disk.flipBit(path, offset + Math.floor(bit / 8), bit % 8);
  cluster.rotten.set(nameOf(place), place);
}

export function isRotten(cluster: SimCluster, place: Place): boolean {
  return cluster.rotten.has(nameOf(place));
}

/** Places that rotted, are of an in-sync replica still, and differ from another. What was repaired is forgotten. */
export function stillRotten(cluster: SimCluster): Place[] {
  const left: Place[] = [];
  for (const [name, place] of cluster.rotten) {
    const { node, volume, block } = place;
    const record = cluster.store.volume(volumeKey(volume));
    const others =
      record?.replicas.filter((one) => one.inSync && one.node !== node.name).map((one) => cluster.node(one.node)) ?? [];
    if (!record?.replicas.some((one) => one.node === node.name)) cluster.rotten.delete(name);
    const mine = blockOf(cluster, node, volume, block * PAGE_BYTES);
    const differs = others.some((other) => !equal(mine, blockOf(cluster, other, volume, block * PAGE_BYTES)));
    if (differs) left.push(place);
    else cluster.rotten.delete(name);
  }
  return left;
}

function equal(one: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  return Buffer.compare(one ?? ZEROS, other ?? ZEROS) === 0;
}

const ZEROS = new Uint8Array(PAGE_BYTES);

function nameOf({ node, volume, block }: Place): string {
  return `${node.name}/${volume}/${block}`;
}
