import type { VolumeCapability__Output } from '../generated/csi/v1/VolumeCapability.js';
import { HoldfastError } from '../base/errors.js';
import { isVolumeId, type VolumeId } from '../model/ids.js';
import type { FilesystemType } from '../model/records.js';

/**
 * What both CSI services parse: volume ids, and how a caller means to use a volume. The parsers are pure; what is
 * malformed is refused with `invalid-argument`, naming the field, the value and what would be right. Secrets are never
 * looked at: Holdfast needs none.
 */

/** The access modes Holdfast offers: a volume has one writer, so all of them are single-node ones. */
export const ACCESS_MODES = [
  'SINGLE_NODE_WRITER',
  'SINGLE_NODE_READER_ONLY',
  'SINGLE_NODE_SINGLE_WRITER',
  'SINGLE_NODE_MULTI_WRITER',
] as const;

export type AccessMode = (typeof ACCESS_MODES)[number];

export const FILESYSTEMS: readonly FilesystemType[] = ['ext4', 'xfs'];

/** What a volume is formatted with where nobody says. It is written in the record, so a later default changes nothing. */
export const DEFAULT_FILESYSTEM: FilesystemType = 'ext4';

export type Access =
  | { readonly kind: 'block' }
  | {
      readonly kind: 'mount';
      /** null: not said; whatever the record tells. */
      readonly filesystem: FilesystemType | null;
      readonly mountFlags: readonly string[];
    };

/** How a caller means to use a volume. */
export interface Capability {
  readonly access: Access;
  readonly mode: AccessMode;
}

/** A capability that is well formed, and why Holdfast can't offer it if it can't. */
export type Judged<T> = { readonly offered: T } | { readonly refusal: string };

/** The capability, or `invalid-argument` where it is malformed or not offered. */
export function parseCapability(value: VolumeCapability__Output | null, field = 'volume_capability'): Capability {
  const judged = judgeCapability(value, field);
  if ('refusal' in judged) throw new HoldfastError('invalid-argument', judged.refusal);
  return judged.offered;
}

/** Tells a malformed capability (`invalid-argument`) from one that is sound but not offered (a refusal). */
export function judgeCapability(value: VolumeCapability__Output | null, field: string): Judged<Capability> {
  if (value === null) throw missing(field, 'a volume capability');
  const mode: string = value.access_mode?.mode ?? 'UNKNOWN';
  if (mode === 'UNKNOWN') throw missing(`${field}.access_mode`, `one of ${ACCESS_MODES.join(', ')}`);
  if (!value.mount && !value.block) throw missing(`${field}.access_type`, 'block or mount');
  const offered = ACCESS_MODES.find((known) => known === mode);
  if (offered === undefined) {
    return {
      refusal: `${field}.access_mode ${mode} is not offered; a volume is used on one node: ${ACCESS_MODES.join(', ')}`,
    };
  }
  if (!value.mount) return { offered: { access: { kind: 'block' }, mode: offered } };
  if (value.mount.volume_mount_group !== '') {
    return {
      refusal: `${field}.mount.volume_mount_group is not offered; leave it out and let the orchestrator set the group`,
    };
  }
  const filesystem = judgeFilesystem(value.mount.fs_type, `${field}.mount.fs_type`);
  if ('refusal' in filesystem) return filesystem;
  const access = { kind: 'mount' as const, filesystem: filesystem.offered, mountFlags: value.mount.mount_flags };
  return { offered: { access, mode: offered } };
}

/** '' is null: not said. */
export function judgeFilesystem(text: string, field: string): Judged<FilesystemType | null> {
  if (text === '') return { offered: null };
  const known = FILESYSTEMS.find((type) => type === text);
  return known === undefined
    ? { refusal: `${field} ${JSON.stringify(text)} is not offered; known are ${FILESYSTEMS.join(', ')}` }
    : { offered: known };
}

/** Nothing: `invalid-argument`. Text that can't be an id of ours names no volume: `not-found`. */
export function parseVolumeId(text: string, field = 'volume_id'): VolumeId {
  if (text === '') throw missing(field, 'the id of a volume');
  if (!isVolumeId(text)) throw noSuchVolume(text);
  return text;
}

/** The same refusal whoever finds out that there is no such volume. */
export function noSuchVolume(id: string): HoldfastError {
  return new HoldfastError('not-found', `there is no volume ${JSON.stringify(id.slice(0, 128))}`);
}

/** The refusal of a request that lacks a required field. */
export function missing(field: string, wanted: string): HoldfastError {
  return new HoldfastError('invalid-argument', `${field} is missing; it must be ${wanted}`);
}
