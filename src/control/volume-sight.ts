import type { NodeName } from '../model/ids.js';
import type { ReplicaRecord, VolumeRecord } from '../model/records.js';
import type { Standing } from './replica-standing.js';

/** A volume as the rebuilder sees it: its record, and what is known of each replica and of the writer's node. */
export interface VolumeSight {
  readonly record: VolumeRecord;
  readonly replicas: readonly ReplicaSight[];
  readonly writer: WriterSight;
}

export interface ReplicaSight extends Readonly<ReplicaRecord> {
  readonly standing: Standing;
  /** What its node told of it the last time; undefined: nothing yet. */
  readonly told: ReplicaTold | undefined;
}

export interface ReplicaTold {
  /** Told since a writer was last seen on the volume: it holds still. */
  readonly fresh: boolean;
  readonly crashMark: boolean;
  readonly openRegions: number;
  readonly damagedBlocks: number;
}

/**
 * none: nobody stands in the record. attached: a node with an attachment; whether it lives is `standing`. maintenance: a
 * writer without a device. `heard`: a replica's node has had questions of the writer of late, so it works, whatever its
 * lease says.
 */
export type WriterSight =
  | { readonly kind: 'none' }
  | {
      readonly kind: 'attached' | 'maintenance';
      readonly node: NodeName;
      readonly standing: Standing;
      readonly heard: boolean;
    };

/** In sync, on a node that lives and a disk that works. */
export function isSolid({ inSync, standing }: Pick<ReplicaSight, 'inSync' | 'standing'>): boolean {
  return inSync && standing.kind === 'present';
}

export function isLost({ standing }: Pick<ReplicaSight, 'standing'>): boolean {
  return standing.kind === 'lost';
}

/** Lost, and nothing can bring it back. */
export function isDead({ standing }: Pick<ReplicaSight, 'standing'>): boolean {
  return standing.kind === 'lost' && !standing.mayReturn;
}

/** On a live node, and behind: a writer can bring it back. */
export function isBehind({ inSync, standing }: Pick<ReplicaSight, 'inSync' | 'standing'>): boolean {
  return !inSync && standing.kind === 'present';
}

/** A writer on a live node works on the volume now. */
export function isTended({ writer }: Pick<VolumeSight, 'writer'>): boolean {
  return writer.kind !== 'none' && writer.standing.kind === 'present';
}
