import type { DiskId, NodeName, VolumeId } from '../model/ids.js';
import type { NodeRecord } from '../model/records.js';
import type { ReplicaSummary } from '../replica/replicas.js';

/**
 * What the rebuilder asks of a node. Every call is bounded; `unavailable` and `deadline-exceeded` leave open whether it
 * was carried out, and repeating it is right.
 */
export interface RebuildAgent {
  /** Makes an empty replica; a repeat succeeds. `already-exists`: there is one on another disk of the node. */
  createReplica(volume: VolumeId, disk: DiskId, capacityBytes: number): Promise<void>;
  /** Missing: nothing happens. `failed-precondition`: the volume's record names a replica there. */
  removeReplica(volume: VolumeId): Promise<void>;
  listReplicas(): Promise<readonly ReplicaSummary[]>;
  /** Its writer of the volume, if it has one, reads the record anew. */
  refreshVolume(volume: VolumeId): Promise<void>;
  /**
   * Its writer takes the replica on `node` out of the in-sync set and out of the record, in one step. Not in the record:
   * nothing happens. `failed-precondition`: it is the last, or writes would wait without it; `not-found`: no writer.
   */
  dropReplica(volume: VolumeId, node: NodeName, why: string): Promise<void>;
  /**
   * It becomes the volume's writer without a device until the replicas within reach are in line, and those on `drop`
   * have left; it has begun when the call resolves. A repeat succeeds. `resource-exhausted`: too many at once there.
   */
  maintainVolume(volume: VolumeId, drop: readonly NodeName[]): Promise<void>;
}

export interface RebuildAgents {
  of(node: NodeRecord): RebuildAgent;
}
