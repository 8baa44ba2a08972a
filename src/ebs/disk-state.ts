import type { DiskId } from '../model/ids.js';
import type { EbsVolume, Tags } from './ec2.js';

/*
 * What the record of a disk on EBS says of its life. disk-steps.ts tells what is done in which state.
 *
 *     wanted → creating → made → available → attaching → attached → in-pool
 *
 *     from creating, where the call was refused, and from made and available, where the volume vanished: wanted again,
 *     with the next generation
 *     from attaching, attached and in-pool: detaching → available
 *     from available: deleting → gone
 */

/** The part of a disk's record that these steps move. */
export interface EbsDisk {
  readonly diskId: DiskId;
  /** Grows by one with each creation that certainly left no volume. Starts at 1. */
  readonly generation: number;
  /** How many volumes vanished in a row, between their creation and their first use. */
  readonly vanished: number;
  /** never → asked → done: the node may make a filesystem in the first two, if the device reads blank. */
  readonly format: 'never' | 'asked' | 'done';
  readonly state: DiskState;
}

export type DiskState =
  /** No call was made with this generation's token. `refusal`: why the last generation came to nothing; '' for none. */
  | { readonly kind: 'wanted'; readonly refusal: string }
  /** `calls` creations were, or are about to be, asked for with this generation's token; `refusal`: what the last said. */
  | { readonly kind: 'creating'; readonly calls: number; readonly refusal: string }
  /** EC2 has named a volume, which may still vanish: keys are checked only after the answer. */
  | { readonly kind: 'made'; readonly volumeId: string }
  /** Attached nowhere. */
  | { readonly kind: 'available'; readonly volumeId: string }
  /** Attached or about to be, at one place only. */
  | {
      readonly kind: 'attaching' | 'attached' | 'in-pool' | 'detaching';
      readonly volumeId: string;
      readonly place: Place;
    }
  | { readonly kind: 'deleting'; readonly volumeId: string }
  | { readonly kind: 'gone' }
  /** Waits for a person; see tryAgain. */
  | {
      readonly kind: 'failed';
      readonly reason: string;
      readonly from: Exclude<DiskState, { readonly kind: 'failed' }>;
    };

export interface Place {
  readonly instanceId: string;
  /** The name asked for; nothing is found by it. */
  readonly device: string;
}

export const CLUSTER_TAG = 'holdfast.dev/cluster';
export const DISK_TAG = 'holdfast.dev/disk';
export const GENERATION_TAG = 'holdfast.dev/generation';

/** A disk that has no volume yet. */
export function newDisk(diskId: DiskId): EbsDisk {
  return { diskId, generation: 1, vanished: 0, format: 'never', state: { kind: 'wanted', refusal: '' } };
}

/** Idempotency token of the disk's present generation; the same after a restart. */
export function tokenOf({ diskId, generation }: EbsDisk): string {
  return `${diskId}-${generation}`;
}

/** The tags by which a volume is known as this disk's. */
export function ownTags({ diskId, generation }: EbsDisk, clusterId: string): Tags {
  return { [CLUSTER_TAG]: clusterId, [DISK_TAG]: diskId, [GENERATION_TAG]: String(generation) };
}

/** The volume that the record names. */
export function volumeOf(state: DiskState): string | undefined {
  if (state.kind === 'failed') return volumeOf(state.from);
  return 'volumeId' in state ? state.volumeId : undefined;
}

/** What a creation came to. `refused`: that call was not carried out and will not be. */
export type Created =
  | { readonly kind: 'made'; readonly volumeId: string }
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'unknown' };

/** The record after a creation that was asked for with the record `asked`; `disk` itself where nothing is to be written. */
export function afterCreate(disk: EbsDisk, asked: EbsDisk, created: Created): EbsDisk {
  const { state } = disk;
  if (state.kind !== 'creating' || disk.generation !== asked.generation || created.kind === 'unknown') return disk;
  if (created.kind === 'made') return to(disk, { kind: 'made', volumeId: created.volumeId });
  // An earlier call with this token may still have been carried out.
  if (state.calls > 1) return to(disk, { ...state, refusal: created.reason });
  return nextGeneration(disk, created.reason);
}

/** The record when a person has put right what the disk failed of. */
export function tryAgain(disk: EbsDisk): EbsDisk {
  return disk.state.kind === 'failed' ? { ...disk, vanished: 0, state: disk.state.from } : disk;
}

/**
 * Does the volume carry our cluster's and the disk's tags, and is it one that we can have made? Whoever restores one of
 * ours from a snapshot may copy its tags, and wants to keep it.
 */
export function isOurs({ diskId }: EbsDisk, { tags, snapshotId }: EbsVolume, clusterId: string): boolean {
  return snapshotId === undefined && tags[CLUSTER_TAG] === clusterId && tags[DISK_TAG] === diskId;
}

/** Deleted, or as good as. */
export function isEnding({ state }: EbsVolume): boolean {
  return state === 'deleting' || state === 'deleted';
}

/** The generation that the volume was made for; 0 where the tag is missing or none of ours. */
export function generationOf({ tags }: EbsVolume): number {
  const text = tags[GENERATION_TAG] ?? '';
  return /^[1-9][0-9]{0,8}$/.test(text) ? Number(text) : 0;
}

/** The next generation: it is certain that this one left no volume. */
export function nextGeneration(disk: EbsDisk, refusal: string): EbsDisk {
  return { ...disk, generation: disk.generation + 1, state: { kind: 'wanted', refusal } };
}

/** The same disk in another state. */
export function to(disk: EbsDisk, state: DiskState): EbsDisk {
  return { ...disk, state };
}
