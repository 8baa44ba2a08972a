import type { NodeName, VolumeId } from '../model/ids.js';
import type { ExportAddress } from '../device/device.js';

/** What a node's data threads do for its main thread: the attachments, and the replicas of its pool. */
export interface Attachments {
  /**
   * Takes the volume over (R5) and serves it. Repeats on a live attachment succeed.
   * `resume`: an attachment that lived before this process goes on, which only holds while the record names this
   * node; otherwise `fenced`, before anything is changed.
   * `failed-precondition`: another live node is the writer (the message names it), or no in-sync replica is left.
   * `unavailable`: none of them, or not the store, can be reached now; the attachment may go on later.
   */
  attach(volume: VolumeId, options: { resume: boolean; timeoutMs: number }): Promise<Attachment>;
  /**
   * Orderly end: drains, flushes, closes regions, takes the writer out of the record. No such attachment: only makes
   * sure that the record does not name this node. The device must be gone by then.
   */
  release(volume: VolumeId): Promise<void>;
  /**
   * The end whatever stands in its way: an orderly release if that is done in seconds, else the writer ends with regions
   * open, and the record no longer names this node. The next take-over reconciles.
   */
  revoke(volume: VolumeId): Promise<void>;
  /** Lets a live attachment take on the record's capacity (replicas first); resolves to the size served. */
  grow(volume: VolumeId): Promise<number>;
  status(volume: VolumeId): Promise<AttachmentStatus | undefined>;
  /** The writer here reads the record anew, for what others change in it. No writer here: nothing happens. */
  refresh(volume: VolumeId): Promise<void>;
  /**
   * The writer takes a replica out of the in-sync set and out of the record, in one step. Not in the record: nothing
   * happens. `failed-precondition`: it is the last in sync, or writes would wait without it. `not-found`: no writer here.
   */
  dropReplica(volume: VolumeId, node: NodeName, why: string): Promise<void>;
  /**
   * Becomes the volume's writer without a device until the replicas in reach are in line and those on `drop` have left;
   * resolves when that has begun. Attached here: nothing happens. `resource-exhausted`: too many at once.
   */
  maintain(volume: VolumeId, drop: readonly NodeName[]): Promise<void>;
  /** A writer without a device gives the volume up, within about a second. False: it is attached here. */
  yieldUp(volume: VolumeId): Promise<boolean>;
}

export interface Attachment {
  readonly address: ExportAddress;
  readonly sizeBytes: number;
}

export interface AttachmentStatus {
  readonly state: 'taking-over' | 'serving' | 'fenced' | 'failed' | 'releasing';
  readonly epoch: number;
  /** Names of nodes. */
  readonly inSync: string[];
  readonly regionsOpen: number;
  /** Regions that may differ after a take-over and are not compared yet. */
  readonly regionsToReconcile: number;
  readonly resync: { node: string; regionsTotal: number; regionsDone: number } | null;
  /** No device: the writer only brings the replicas into line. */
  readonly maintenance?: boolean;
  /** What I/O, or the return of a replica, waits for, in words. */
  readonly waitsFor: string[];
}
