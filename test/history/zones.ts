import type { Cluster } from './cluster.js';

/**
 * Finds two contents that can't both have been there in any order: two that were held at the same time, or one that
 * was written, at whatever moment, while another was held.
 */
export function findConflict(clusters: readonly Cluster[]): [Cluster, Cluster] | undefined {
  const held = clusters.filter((cluster) => cluster.isHeld);
  if (held.length === 0) return undefined;
  held.sort((one, other) => one.firstEnd - other.firstEnd);
  for (const [index, cluster] of held.entries()) {
    const next = held[index + 1];
    if (next !== undefined && next.firstEnd < cluster.lastStart) return [cluster, next];
  }
  for (const cluster of clusters) {
    if (cluster.isHeld) continue;
    const around = lastBefore(held, cluster.lastStart);
    if (around !== undefined && cluster.firstEnd < around.lastStart) return [around, cluster];
  }
  return undefined;
}

/** Of clusters in the order of `firstEnd`, the last one with less than `moment`. */
function lastBefore(held: readonly Cluster[], moment: number): Cluster | undefined {
  let low = 0;
  let high = held.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((held[middle]?.firstEnd ?? 0) < moment) low = middle + 1;
    else high = middle;
  }
  return held[low - 1];
}
