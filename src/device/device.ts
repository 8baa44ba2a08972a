import type { VolumeId } from '../model/ids.js';

/** Where the writer's NBD export of an attachment is: a unix socket of this node's data thread, and the export's name. */
export interface ExportAddress {
  readonly socketPath: string;
  readonly exportName: string;
}

export interface BlockDevice {
  readonly volume: VolumeId;
  /** e.g. /dev/loop7 */
  readonly path: string;
  readonly sizeBytes: number;
  readonly readOnly: boolean;
  /** The attachment has ended: every request fails. */
  readonly failed: boolean;
}

/**
 * Block devices for attachments. They outlive the node plugin: while no writer serves, I/O waits; when one serves
 * again, unanswered requests are sent again (R11) and I/O goes on. Two drivers stand behind it: the device process
 * (FUSE file + loop), and the kernel's nbd.
 */
export interface BlockDevices {
  /** Makes the device, or finds the one made before for the same volume and export (repeats succeed). */
  create(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice>;
  /** Online. Smaller than now: nothing happens. */
  grow(volume: VolumeId, sizeBytes: number): Promise<void>;
  /** The attachment has ended: all I/O, waiting and future, fails. The device stays until removed. */
  fail(volume: VolumeId): Promise<void>;
  /** Detaches and removes. Missing: nothing happens. Still mounted or open: `failed-precondition`. */
  remove(volume: VolumeId): Promise<void>;
  list(): Promise<BlockDevice[]>;
}
