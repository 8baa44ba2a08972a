import { HoldfastError } from '../base/errors.js';
import type { VolumeOrder } from '../control/create-volume.js';
import type { Segments } from '../control/placement.js';
import type { CapacityRange } from '../control/sizes.js';
import type { ControllerExpandVolumeRequest__Output } from '../generated/csi/v1/ControllerExpandVolumeRequest.js';
import type { CreateVolumeRequest__Output } from '../generated/csi/v1/CreateVolumeRequest.js';
import type { GetCapacityRequest__Output } from '../generated/csi/v1/GetCapacityRequest.js';
import type { Topology__Output } from '../generated/csi/v1/Topology.js';
import type { ValidateVolumeCapabilitiesRequest__Output } from '../generated/csi/v1/ValidateVolumeCapabilitiesRequest.js';
import type { VolumeCapability__Output } from '../generated/csi/v1/VolumeCapability.js';
import type { VolumeId } from '../model/ids.js';
import type { FilesystemType, VolumeParameters, VolumeRecord } from '../model/records.js';
import {
  DEFAULT_FILESYSTEM,
  judgeCapability,
  missing,
  parseCapability,
  parseVolumeId,
  type Capability,
} from './capability.js';
import { parseCapacityRange } from './capacity.js';
import { parseParameters } from './parameters.js';

/** Requests of the Controller service as typed values, or refusals. Pure. */

const MAX_NAME_BYTES = 128;

/** What the CSI specification bans from names: control characters, but for tab, line feed and carriage return. */
const BANNED_IN_NAMES = /[^\P{Cc}\t\n\r]/u;

export function parseCreate(request: CreateVolumeRequest__Output): VolumeOrder {
  const name = parseName(request.name);
  if (request.volume_capabilities.length === 0) throw missing('volume_capabilities', 'at least one capability');
  const capabilities = request.volume_capabilities.map((value, index) =>
    parseCapability(value, `volume_capabilities[${index}]`),
  );
  const { parameters, filesystem } = parseParameters(request.parameters);
  const [changeable] = Object.keys(request.mutable_parameters);
  if (changeable !== undefined) {
    throw new HoldfastError(
      'invalid-argument',
      `mutable parameter ${JSON.stringify(changeable)} is unknown; none are offered`,
    );
  }
  if (request.volume_content_source !== null) {
    throw new HoldfastError(
      'invalid-argument',
      'volume_content_source is not offered; leave it out for an empty volume',
    );
  }
  const topology = request.accessibility_requirements;
  return {
    name,
    range: parseCapacityRange(request.capacity_range),
    content: contentFor(capabilities, filesystem),
    parameters,
    preferred: segmentsOf(topology?.preferred),
    requisite: segmentsOf(topology?.requisite),
  };
}

function parseName(name: string): string {
  if (name === '') throw missing('name', 'a name for the volume');
  const bytes = Buffer.byteLength(name);
  if (bytes > MAX_NAME_BYTES) {
    throw new HoldfastError('invalid-argument', `name has ${bytes} bytes; it must have at most ${MAX_NAME_BYTES}`);
  }
  if (BANNED_IN_NAMES.test(name)) {
    throw new HoldfastError(
      'invalid-argument',
      `name ${JSON.stringify(name)} has control characters; it must have none`,
    );
  }
  return name;
}

/** What the volume holds: one kind for all capabilities, and one filesystem wherever it is said. */
function contentFor(capabilities: readonly Capability[], parameter: FilesystemType | null): VolumeRecord['content'] {
  const kinds = new Set(capabilities.map(({ access }) => access.kind));
  if (kinds.size > 1) {
    throw new HoldfastError(
      'invalid-argument',
      'volume_capabilities ask for block and mount; a volume is one of the two',
    );
  }
  if (kinds.has('block')) return { kind: 'block' };
  const said = capabilities.map(({ access }) => (access.kind === 'mount' ? access.filesystem : null));
  const types = [...new Set([...said, parameter])].filter((type) => type !== null);
  if (types.length > 1) {
    throw new HoldfastError(
      'invalid-argument',
      `several filesystems are asked for (${types.join(', ')}); a volume has one`,
    );
  }
  return { kind: 'filesystem', type: types[0] ?? DEFAULT_FILESYSTEM };
}

function segmentsOf(topologies: readonly Topology__Output[] = []): Segments[] {
  return topologies.map((topology) => topology.segments);
}

export interface ExpandOrder {
  readonly id: VolumeId;
  readonly range: CapacityRange;
}

export function parseExpand(request: ControllerExpandVolumeRequest__Output): ExpandOrder {
  if (request.volume_id === '') throw missing('volume_id', 'the id of a volume');
  if (request.capacity_range === null) throw missing('capacity_range', 'the size wanted');
  return { id: parseVolumeId(request.volume_id), range: parseCapacityRange(request.capacity_range) };
}

export interface ValidateOrder {
  readonly id: VolumeId;
  /** Why the request can't be confirmed whatever the volume is; `undefined`: it may be. */
  readonly refusal: string | undefined;
  readonly capabilities: readonly Capability[];
  /** null: not to be checked. */
  readonly parameters: VolumeParameters | null;
}

/** Malformed: `invalid-argument`. Sound but not offered: a refusal, which is an answer and no error. */
export function parseValidate(request: ValidateVolumeCapabilitiesRequest__Output): ValidateOrder {
  if (request.volume_id === '') throw missing('volume_id', 'the id of a volume');
  if (request.volume_capabilities.length === 0) throw missing('volume_capabilities', 'at least one capability');
  const judged = request.volume_capabilities.map((value, index) =>
    judgeCapability(value, `volume_capabilities[${index}]`),
  );
  const id = parseVolumeId(request.volume_id);
  const refusals = judged.flatMap((each) => ('refusal' in each ? [each.refusal] : []));
  const [context] = Object.keys(request.volume_context);
  if (context !== undefined)
    refusals.push(`volume_context has ${JSON.stringify(context)}; Holdfast's volumes have no context`);
  const [changeable] = Object.keys(request.mutable_parameters);
  if (changeable !== undefined)
    refusals.push(`mutable parameter ${JSON.stringify(changeable)} is unknown; none are offered`);
  const given = Object.keys(request.parameters).length > 0;
  return {
    id,
    refusal: refusals.length > 0 ? refusals.join('; ') : undefined,
    capabilities: judged.flatMap((each) => ('offered' in each ? [each.offered] : [])),
    parameters: given ? parseParameters(request.parameters).parameters : null,
  };
}

export interface CapacityOrder {
  readonly parameters: VolumeParameters;
  /** null: not said. */
  readonly content: VolumeRecord['content'] | null;
  /** Capabilities were asked for that no volume has. */
  readonly unusable: boolean;
  /** null: anywhere. */
  readonly topology: Segments | null;
}

export function parseGetCapacity(request: GetCapacityRequest__Output): CapacityOrder {
  const { parameters, filesystem } = parseParameters(request.parameters);
  const judged = request.volume_capabilities.map((value: VolumeCapability__Output, index) =>
    judgeCapability(value, `volume_capabilities[${index}]`),
  );
  const capabilities = judged.flatMap((each) => ('offered' in each ? [each.offered] : []));
  const said = capabilities.length > 0 || filesystem !== null;
  return {
    parameters,
    content: said ? contentFor(capabilities, filesystem) : null,
    unusable: capabilities.length < judged.length,
    topology: request.accessible_topology?.segments ?? null,
  };
}
