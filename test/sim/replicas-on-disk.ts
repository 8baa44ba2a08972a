import { volumeKey, type VolumeId } from '../../src/model/ids.js';
import { DISK_DIRECTORY } from './plugin.js';
import { isRotten } from './rot.js';
import type { SimCluster } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';

/*
 * What stands on the disks, read from outside: by the on-disk form that the documentation gives, with no code of the
 * product.
 */

const PAGE_BYTES = 4096;
const SECTOR_BYTES = 512;
const ENTRY_BYTES = 16;
const ENTRIES_PER_SECTOR = 31;

export const OPEN = -1;

/** I8: any two replicas that are closed with the same stamp in a region are equal there. */
export function checkStamps(cluster: SimCluster): void {
  const { layout } = cluster.scenario;
  for (const volume of cluster.volumes) {
    const record = cluster.store.volume(volumeKey(volume));
    if (!record) continue;
    const regions = layout.regionCount(record.capacityBytes);
    const tables = [...cluster.nodes.values()]
      .map((node) => ({ node, table: tableOf(node, volume, regions) }))
      .filter(({ table }) => table !== undefined);
    for (let region = 0; region < regions; region++) {
      const first = new Map<number, SimNode>();
      for (const { node, table } of tables) {
        const stamp = table?.[region] ?? OPEN;
        if (stamp === OPEN) continue;
        const other = first.get(stamp);
        if (!other) {
          first.set(stamp, node);
          continue;
        }
        const { offset, length } = layout.rangeOf(region);
        const differs = firstDifference(
          cluster,
          volume,
          [other, node],
          offset,
          Math.min(record.capacityBytes, offset + length),
        );
        if (differs !== undefined) {
          cluster.problem(
            `I8: region ${region} of ${record.name} is closed with ${stamp} on ${other.name} and ${node.name}, which differ in block ${differs}`,
          );
          return;
        }
      }
    }
  }
}

/** I5: after quiescence the in-sync replicas are equal byte for byte. */
export function checkEqual(cluster: SimCluster, volume: VolumeId): void {
  const record = cluster.store.volume(volumeKey(volume));
  if (!record) return;
  const [first, ...others] = record.replicas.filter((one) => one.inSync).map(({ node }) => cluster.node(node));
  for (const other of others) {
    if (!first) return;
    const differs = firstDifference(cluster, volume, [first, other], 0, record.capacityBytes);
    if (differs !== undefined) {
      cluster.problem(`I5: ${first.name} and ${other.name} differ in block ${differs} of ${record.name}`);
    }
  }
}

/** Entries of the region table; undefined where there is no replica. A sector that was never written is closed with 0. */
export function tableOf(node: SimNode, volume: VolumeId, regions: number): number[] | undefined {
  const path = `${DISK_DIRECTORY}/replicas/${volume}/regions`;
  if (node.machine.disk.size(path) === undefined) return undefined;
  const sectors = Math.ceil(regions / ENTRIES_PER_SECTOR);
  const bytes = node.machine.disk.peek(path, 0, sectors * SECTOR_BYTES) ?? new Uint8Array(0);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: regions }, (_, region) => {
    const at = Math.floor(region / ENTRIES_PER_SECTOR) * SECTOR_BYTES + (region % ENTRIES_PER_SECTOR) * ENTRY_BYTES;
    // A short table is that of a replica that has not grown yet.
    if (at + ENTRY_BYTES > bytes.length) return OPEN;
    const value = view.getBigUint64(at, true);
    return value > 0xffff_ffff_ffffn ? OPEN : Number(value);
  });
}

function firstDifference(
  cluster: SimCluster,
  volume: VolumeId,
  [one, other]: readonly [SimNode, SimNode],
  from: number,
  to: number,
): number | undefined {
  for (let offset = from; offset < to; offset += PAGE_BYTES) {
    const left = blockOf(cluster, one, volume, offset);
    const right = blockOf(cluster, other, volume, offset);
    if (left === right) continue;
    const block = offset / PAGE_BYTES;
    if (isRotten(cluster, { node: one, volume, block }) || isRotten(cluster, { node: other, volume, block })) continue;
    if (Buffer.compare(left ?? ZEROS, right ?? ZEROS) !== 0) return offset / PAGE_BYTES;
  }
  return undefined;
}

const ZEROS = new Uint8Array(PAGE_BYTES);

/** Undefined: a hole. */
export function blockOf(cluster: SimCluster, node: SimNode, volume: VolumeId, offset: number): Uint8Array | undefined {
  const place = placeOf(cluster, volume, offset);
  const bytes = node.machine.disk.peek(place.path, place.offset, PAGE_BYTES);
  // A slice that was made a moment ago has no size yet.
  return bytes?.length === PAGE_BYTES ? bytes : undefined;
}

/** The file, and where in it, that holds a byte of a volume. */
export function placeOf(cluster: SimCluster, volume: VolumeId, offset: number): { path: string; offset: number } {
  const { sliceBytes } = cluster.scenario.layout;
  const name = Math.floor(offset / sliceBytes)
    .toString(16)
    .padStart(8, '0');
  return { path: `${DISK_DIRECTORY}/replicas/${volume}/data/${name}`, offset: offset % sliceBytes };
}

export function hasReplica(node: SimNode, volume: VolumeId): boolean {
  return node.machine.disk.size(`${DISK_DIRECTORY}/replicas/${volume}/header`) !== undefined;
}

/** I7, space: with the replicas removed nothing of them is left but what lies in the trash. */
export function checkNothingLeft(cluster: SimCluster): void {
  for (const node of cluster.nodes.values()) {
    const left = node.machine.disk
      .paths()
      // What a creation that failed has left is removed by the next start.
      .filter((path) => path.startsWith(`${DISK_DIRECTORY}/replicas/`) && !path.includes('.new/'));
    if (left.length > 0) cluster.problem(`space: ${node.name} keeps ${left.join(', ')}`);
  }
}
