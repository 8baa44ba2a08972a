import type { DiskId, VolumeId } from '../model/ids.js';

/** The replicas on a node's disks, as its main thread and the controller manage them. */
export interface Replicas {
  /** Reads what the mounted disk at `directory` holds and serves it. `corrupt` where a header is unreadable: that replica is left out. */
  openDisk(disk: { diskId: DiskId; directory: string; incarnation: string }): Promise<ReplicaSummary[]>;
  /** Makes an empty replica. A repeat with the same arguments succeeds; on another disk → `already-exists`. */
  create(volume: VolumeId, disk: DiskId, capacityBytes: number): Promise<void>;
  /**
   * Moves the replica to its disk's trash: `deleted`, to go soon; `unnamed`, since no record names it, to be kept for a
   * grace period. Missing: nothing happens. In use by a writer → it is fenced off first. `disk`: only one that is there.
   */
  remove(volume: VolumeId, reason: RemovalReason, disk?: DiskId): Promise<void>;
  /** One that can't be opened now is told with no more than its place. */
  list(): Promise<ReplicaSummary[]>;
}

export type RemovalReason = 'deleted' | 'unnamed';

export interface ReplicaSummary {
  readonly volume: VolumeId;
  readonly disk: DiskId;
  readonly capacityBytes: number;
  readonly epoch: number;
  /** R10: acknowledged writes that were not flushed may be missing. */
  readonly crashMark: boolean;
  readonly openRegions: number;
  /** Blocks known to be bad; the volume's writer mends them from another replica. */
  readonly damagedBlocks: number;
  /** A writer on another node has asked it for confirmations of late (R9): that writer works, whatever its lease says. */
  readonly writerHeard: boolean;
}
