import { isEnding, isOurs, type EbsDisk } from './disk-state.js';
import type { EbsVolume, VolumeAttachment } from './ec2.js';

/*
 * What is wished and seen of a disk: all that disk-steps.ts decides by, besides the disk's record.
 */

/** What shall become of the disk. `deleted` is not taken back: a new disk gets a new record. */
export type Wish =
  | { readonly kind: 'in-pool'; readonly instanceId: string }
  /** Kept, attached nowhere: until a replacement of its node takes it. */
  | { readonly kind: 'kept' }
  | { readonly kind: 'deleted' };

/** What a node says of the device with the volume's serial; it has opened the device and read it. */
export type NodeSight =
  | { readonly kind: 'unknown' }
  | { readonly kind: 'absent' }
  /** There, but not in the node's pool. `other`: holds something else, which `holds` names. */
  | { readonly kind: 'present'; readonly content: 'blank' | 'ours' | 'other'; readonly holds: string }
  | { readonly kind: 'in-pool' };

/** What EC2 shows of one disk. */
export interface Ec2Sight {
  /** All volumes that carry the disk's tag, and the one that the record names. */
  readonly volumes: readonly EbsVolume[];
  /**
   * For how long every answer has shown just this, in milliseconds: from the first of the unbroken row of such answers
   * to the last, counted anew from the end of every call for the disk (create, attach, detach, delete), answered or not,
   * and from the start of the process.
   */
  readonly steadyMs: number;
}

/** What one step is decided by. */
export interface DiskFacts {
  readonly clusterId: string;
  readonly wish: Wish;
  /** undefined: EC2 gave no answer. */
  readonly ec2: Ec2Sight | undefined;
  /** What the instance's node says of the volume. */
  readonly node: (instanceId: string, volumeId: string) => NodeSight;
  /** Terminated, or stopped for good: it uses no disk any more. */
  readonly isGone: (instanceId: string) => boolean;
  /** A device name for the wished instance; undefined: none, or no room (device-names.ts, attach-room.ts). */
  readonly freeDevice: string | undefined;
  /** The name in the record was refused by EC2. */
  readonly deviceRefused: boolean;
  /** True also while that isn't known. */
  readonly mayHoldLastReplica: boolean;
  /** The key that the disk is encrypted with, for people, e.g. `alias/data` or `the account's default key`; '': none. */
  readonly kmsKey: string;
}

/** Longer than EC2's answers are out of date and a call whose answer was lost can still take effect, both together. */
export const STEADY_MS = 60_000;
/** An attachment that no node sees for so long is undone and asked for anew. */
export const STUCK_MS = 300_000;

/** What EC2 shows of the record's volume. */
export type Look =
  | { readonly kind: 'ours'; readonly volume: EbsVolume }
  | { readonly kind: 'missing' }
  | { readonly kind: 'untouchable'; readonly why: string };

/** The record's volume; one that does not carry our tags is left alone, whatever the record says. */
export function look(disk: EbsDisk, volumeId: string, { ec2, clusterId }: DiskFacts): Look {
  if (ec2 === undefined) return { kind: 'untouchable', why: 'EC2 gives no answer' };
  const volume = ec2.volumes.find(({ id }) => id === volumeId);
  if (volume === undefined || isEnding(volume)) return { kind: 'missing' };
  if (isOurs(disk, volume, clusterId)) return { kind: 'ours', volume };
  const why = `volume ${volumeId} does not carry the tags of cluster ${clusterId} and disk ${disk.diskId}; it is left alone`;
  return { kind: 'untouchable', why };
}

/** Those that hold the volume, or may. */
export function attachments({ attachments: shown }: EbsVolume): VolumeAttachment[] {
  return shown.filter(({ state }) => state !== 'detached');
}

/** Has every answer shown the same for so long? Not where there is none. */
export function isSteady({ ec2 }: DiskFacts, milliseconds: number): boolean {
  return ec2 !== undefined && ec2.steadyMs >= milliseconds;
}
