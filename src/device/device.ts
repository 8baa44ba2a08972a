import type { VolumeId } from '../model/ids.js';

/** Where the writer's NBD export of an attachment is: a unix socket of this node's data thread, and the export's name. */
export interface ExportAddress {
  readonly socketPath: string;
  readonly exportName: string;
}

export interface BlockDevice {
  readonly volume: VolumeId;
  /** e.g. /dev/loop7; empty in a list where it `isLeaving`. */
  readonly path: string;
  readonly sizeBytes: number;
  readonly readOnly: boolean;
  /** The attachment has ended, or the device has gone: every request fails. */
  readonly failed: boolean;
}

/**
 * Its removal has begun but somebody had it open, or it was detached behind our back. It goes at its last close, and its
 * number may be another's then: it is the volume's device no longer, and only waits to be removed. What is done with it
 * until that close, writing out a page cache say, must still succeed: it is `failed` only if the attachment has ended,
 * or once it has gone.
 */
export function isLeaving(device: BlockDevice): boolean {
  return device.path === '';
}

/**
 * Block devices for attachments. They outlive the node plugin: while no writer serves, I/O waits; when one serves
 * again, unanswered requests are sent again (R11) and I/O goes on. Two drivers stand behind it: the device process
 * (FUSE file + loop), and the kernel's nbd.
 */
export interface BlockDevices {
  /**
   * Makes the device, or finds the one made before for the same volume and export (repeats succeed). One that is leaving
   * is removed first; still open: `failed-precondition`.
   */
  create(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice>;
  /** Online. Smaller than now: nothing happens. Leaving: `failed-precondition`. */
  grow(volume: VolumeId, sizeBytes: number): Promise<void>;
  /** The attachment has ended: all I/O, waiting and future, fails. The device stays until removed. */
  fail(volume: VolumeId): Promise<void>;
  /**
   * Detaches and removes. Missing: nothing happens. `failed-precondition`: still mounted or open, or its node is bound to
   * a path, in any mount namespace that can be seen.
   */
  remove(volume: VolumeId): Promise<void>;
  list(): Promise<BlockDevice[]>;
}
