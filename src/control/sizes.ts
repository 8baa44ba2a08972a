import { HoldfastError } from '../base/errors.js';
import { CAPACITY_STEP_BYTES } from '../model/layout.js';
import type { VolumeRecord } from '../model/records.js';

const MIB = 1024 ** 2;

export const DEFAULT_CAPACITY_BYTES = 1024 ** 3;

/** Below these, mkfs refuses (xfs) or makes a filesystem of little use (ext4); the node holds to the same. */
const MINIMUM_BYTES = { block: CAPACITY_STEP_BYTES, ext4: 16 * MIB, xfs: 300 * MIB };

/** Sizes a caller takes. */
export interface CapacityRange {
  /** 0: not said. */
  readonly requiredBytes: number;
  /** Infinity: no limit. */
  readonly limitBytes: number;
}

/** The smallest volume for this content. */
export function minimumCapacity(content: VolumeRecord['content']): number {
  return MINIMUM_BYTES[content.kind === 'block' ? 'block' : content.type];
}

/**
 * The size a new volume gets: what is required, rounded up to 1 MiB; 1 GiB where nothing is required, or the limit
 * rounded down where that is smaller. `out-of-range` where the limit leaves no such size.
 */
export function newCapacity(range: CapacityRange, content: VolumeRecord['content']): number {
  const minimum = minimumCapacity(content);
  const right = `at least ${minimum} for ${content.kind === 'block' ? 'a block volume' : content.type}`;
  if (range.requiredBytes !== 0) {
    const rounded = roundedWithin(range);
    if (rounded < minimum) throw outOfRange('required_bytes', range.requiredBytes, right);
    return rounded;
  }
  const wanted = Math.min(DEFAULT_CAPACITY_BYTES, roundDown(range.limitBytes));
  if (wanted < minimum) throw outOfRange('limit_bytes', range.limitBytes, right);
  return wanted;
}

/** required_bytes rounded up to 1 MiB; `out-of-range` where that exceeds the limit. */
export function roundedWithin(range: CapacityRange): number {
  const rounded = Math.ceil(range.requiredBytes / CAPACITY_STEP_BYTES) * CAPACITY_STEP_BYTES;
  if (rounded > range.limitBytes) {
    throw outOfRange('limit_bytes', range.limitBytes, `at least ${rounded}, as sizes are multiples of 1 MiB`);
  }
  return rounded;
}

export function roundDown(bytes: number): number {
  return bytes === Infinity ? bytes : Math.floor(bytes / CAPACITY_STEP_BYTES) * CAPACITY_STEP_BYTES;
}

export function outOfRange(field: string, value: number, right: string): HoldfastError {
  return new HoldfastError('out-of-range', `capacity_range.${field} is ${value}; it must be ${right}`);
}
