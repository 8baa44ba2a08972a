import type { Replicas, ReplicaSummary } from '../../../src/replica/replicas.js';

/** Replicas that are nothing but their list. */
export class HeldReplicas implements Replicas {
  readonly held = new Set<string>();
  disk = 'disk-0000000000000001';

  openDisk(): Promise<ReplicaSummary[]> {
    return this.list();
  }

  create(volume: string): Promise<void> {
    this.held.add(volume);
    return Promise.resolve();
  }

  remove(volume: string): Promise<void> {
    this.held.delete(volume);
    return Promise.resolve();
  }

  list(): Promise<ReplicaSummary[]> {
    const rest = {
      disk: this.disk,
      capacityBytes: 1,
      epoch: 1,
      crashMark: false,
      openRegions: 0,
      damagedBlocks: 0,
      writerHeard: false,
    };
    return Promise.resolve([...this.held].map((volume) => ({ volume, ...rest })));
  }
}
