import { isAbsolute, resolve } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import type { NodeExpandVolumeRequest__Output } from '../generated/csi/v1/NodeExpandVolumeRequest.js';
import type { NodeGetVolumeHealthRequest__Output } from '../generated/csi/v1/NodeGetVolumeHealthRequest.js';
import type { NodeGetVolumeStatsRequest__Output } from '../generated/csi/v1/NodeGetVolumeStatsRequest.js';
import type { NodePublishVolumeRequest__Output } from '../generated/csi/v1/NodePublishVolumeRequest.js';
import type { NodeStageVolumeRequest__Output } from '../generated/csi/v1/NodeStageVolumeRequest.js';
import type { NodeUnpublishVolumeRequest__Output } from '../generated/csi/v1/NodeUnpublishVolumeRequest.js';
import type { NodeUnstageVolumeRequest__Output } from '../generated/csi/v1/NodeUnstageVolumeRequest.js';
import type { VolumeCapability__Output } from '../generated/csi/v1/VolumeCapability.js';
import type { VolumeId } from '../model/ids.js';
import { missing, parseCapability, parseVolumeId, type Capability } from './capability.js';

/*
 * Requests of the CSI Node service as typed values. What is malformed is refused with `invalid-argument`, naming the
 * field, the value and what would be right; an id that can't be one of ours is `not-found`, but not before the other
 * fields were looked at. Secrets, volume context and publish context are never looked at: everything that matters
 * stands in the volume's record.
 */

export interface StageRequest {
  readonly volume: VolumeId;
  readonly stagingPath: string;
  readonly capability: Capability;
}

export interface PublishRequest extends StageRequest {
  readonly targetPath: string;
  readonly readOnly: boolean;
}

/** Of a volume that may be unknown: then nothing here is its own, and the call succeeds. */
export interface UnstageRequest {
  readonly volume: string;
  readonly stagingPath: string;
}

export interface UnpublishRequest {
  readonly volume: string;
  readonly targetPath: string;
}

export interface StatsRequest {
  readonly volume: VolumeId;
  /** A path where the volume may be published or staged; may be anything. */
  readonly path: string;
}

export interface HealthRequest {
  readonly volume: VolumeId;
}

export interface ExpandRequest {
  readonly volume: VolumeId;
  readonly path: string;
  /** 0: not said. */
  readonly requiredBytes: number;
  /** 0: not said. */
  readonly limitBytes: number;
  /** null: not said. */
  readonly access: 'block' | 'mount' | null;
}

/** PATH_MAX of Linux, without its terminating zero (limits.h). */
const MAX_PATH_BYTES = 4095;

/** The total size of mount flags that CSI allows. */
const MAX_FLAGS_BYTES = 4096;

/** Options that would make mount(8) do something else than mount this device here. */
const FORBIDDEN_FLAGS: readonly string[] = [
  'bind',
  'rbind',
  'move',
  'remount',
  'loop',
  'offset',
  'sizelimit',
  'private',
  'rprivate',
  'shared',
  'rshared',
  'slave',
  'rslave',
  'unbindable',
  'runbindable',
];

export function parseStage(request: NodeStageVolumeRequest__Output): StageRequest {
  requireVolumeId(request.volume_id);
  const stagingPath = parsePath(request.staging_target_path, 'staging_target_path');
  const capability = parseNodeCapability(request.volume_capability);
  return { volume: parseVolumeId(request.volume_id), stagingPath, capability };
}

export function parsePublish(request: NodePublishVolumeRequest__Output): PublishRequest {
  requireVolumeId(request.volume_id);
  const targetPath = parsePath(request.target_path, 'target_path');
  const capability = parseNodeCapability(request.volume_capability);
  const stagingPath = parsePath(request.staging_target_path, 'staging_target_path');
  if (targetPath === stagingPath) {
    throw new HoldfastError(
      'invalid-argument',
      `target_path ${targetPath} is the staging_target_path; it must be another`,
    );
  }
  const stagedReadOnly = capability.access.kind === 'mount' && capability.access.mountFlags.includes('ro');
  const readOnly = request.readonly || capability.mode === 'SINGLE_NODE_READER_ONLY' || stagedReadOnly;
  return { volume: parseVolumeId(request.volume_id), stagingPath, targetPath, capability, readOnly };
}

export function parseUnstage(request: NodeUnstageVolumeRequest__Output): UnstageRequest {
  requireVolumeId(request.volume_id);
  return { volume: request.volume_id, stagingPath: parsePath(request.staging_target_path, 'staging_target_path') };
}

export function parseUnpublish(request: NodeUnpublishVolumeRequest__Output): UnpublishRequest {
  requireVolumeId(request.volume_id);
  return { volume: request.volume_id, targetPath: parsePath(request.target_path, 'target_path') };
}

export function parseStats(request: NodeGetVolumeStatsRequest__Output): StatsRequest {
  requireVolumeId(request.volume_id);
  const path = parseAnyPath(request.volume_path, 'volume_path');
  return { volume: parseVolumeId(request.volume_id), path };
}

export function parseHealth(request: NodeGetVolumeHealthRequest__Output): HealthRequest {
  return { volume: parseVolumeId(request.volume_id) };
}

export function parseExpand(request: NodeExpandVolumeRequest__Output): ExpandRequest {
  requireVolumeId(request.volume_id);
  const path = parseAnyPath(request.volume_path, 'volume_path');
  const requiredBytes = parseBytes(request.capacity_range?.required_bytes ?? 0, 'capacity_range.required_bytes');
  const limitBytes = parseBytes(request.capacity_range?.limit_bytes ?? 0, 'capacity_range.limit_bytes');
  if (limitBytes !== 0 && limitBytes < requiredBytes) {
    throw new HoldfastError(
      'out-of-range',
      `capacity_range.limit_bytes ${limitBytes} is below required_bytes ${requiredBytes}; it must be at least that`,
    );
  }
  const access = request.volume_capability === null ? null : parseNodeCapability(request.volume_capability).access.kind;
  return { volume: parseVolumeId(request.volume_id), path, requiredBytes, limitBytes, access };
}

function parseNodeCapability(value: VolumeCapability__Output | null): Capability {
  const capability = parseCapability(value);
  if (capability.access.kind === 'mount') refuseFlags(capability.access.mountFlags);
  return capability;
}

/** Flags may be sensitive (CSI), so a refusal names the option only, never its value. */
function refuseFlags(flags: readonly string[]): void {
  const field = 'volume_capability.mount.mount_flags';
  if (flags.reduce((sum, flag) => sum + Buffer.byteLength(flag), 0) > MAX_FLAGS_BYTES) {
    throw new HoldfastError('invalid-argument', `${field} is longer than ${MAX_FLAGS_BYTES} bytes`);
  }
  for (const flag of flags) {
    const name = flag.split('=')[0] ?? '';
    if (flag === '' || flag.includes('\0') || flag.includes('\n')) {
      throw new HoldfastError('invalid-argument', `${field} holds an empty or unprintable flag; leave it out`);
    }
    const forbidden = unquotedParts(flag).find((part) => FORBIDDEN_FLAGS.includes(part.split('=')[0] ?? ''));
    if (forbidden !== undefined) {
      throw new HoldfastError(
        'invalid-argument',
        `${field} holds ${name}, which is no option of a filesystem; leave it out`,
      );
    }
  }
}

/** The options in one flag: commas separate them, but for those in quotes (an SELinux context has some). */
function unquotedParts(flag: string): string[] {
  return flag.replace(/"[^"]*"/g, '').split(',');
}

function requireVolumeId(text: string): void {
  if (text === '') throw missing('volume_id', 'the id of a volume');
}

/** An absolute path, without a `..` that could lead out of what the caller means. */
function parsePath(text: string, field: string): string {
  const path = parseAnyPath(text, field);
  if (!isAbsolute(path) || path.split('/').includes('..') || resolve(path) === '/') {
    throw new HoldfastError(
      'invalid-argument',
      `${field} is ${JSON.stringify(text)}; it must be an absolute path without ".."`,
    );
  }
  return resolve(path);
}

function parseAnyPath(text: string, field: string): string {
  if (text === '') throw missing(field, 'an absolute path');
  if (text.includes('\0') || Buffer.byteLength(text) > MAX_PATH_BYTES) {
    throw new HoldfastError(
      'invalid-argument',
      `${field} is no path: it must be at most ${MAX_PATH_BYTES} bytes, none of them zero`,
    );
  }
  return text;
}

function parseBytes(value: number, field: string): number {
  if (value < 0) throw new HoldfastError('invalid-argument', `${field} is ${value}; it must not be negative`);
  return value;
}
