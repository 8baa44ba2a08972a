import type { VolumeId } from './ids.js';

/** The data thread a volume belongs to, on every node with as many threads: its id's last 8 hex digits, modulo. */
export function threadOf(volume: VolumeId, threads: number): number {
  return Number.parseInt(volume.slice(-8), 16) % threads;
}
