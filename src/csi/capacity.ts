import { outOfRange, type CapacityRange } from '../control/sizes.js';
import type { CapacityRange__Output } from '../generated/csi/v1/CapacityRange.js';
import { MAX_CAPACITY_BYTES } from '../model/layout.js';

/** Negative, beyond what a volume can be, or limit below required: `out-of-range`. 0 on the wire is "not said". */
export function parseCapacityRange(value: CapacityRange__Output | null): CapacityRange {
  const requiredBytes = value?.required_bytes ?? 0;
  const limitBytes = value?.limit_bytes ?? 0;
  if (requiredBytes < 0) throw outOfRange('required_bytes', requiredBytes, 'not negative');
  if (limitBytes < 0) throw outOfRange('limit_bytes', limitBytes, 'not negative');
  if (requiredBytes > MAX_CAPACITY_BYTES) {
    throw outOfRange('required_bytes', requiredBytes, `at most ${MAX_CAPACITY_BYTES} (16 TiB)`);
  }
  if (limitBytes !== 0 && limitBytes < requiredBytes) {
    throw outOfRange('limit_bytes', limitBytes, `at least required_bytes, which is ${requiredBytes}`);
  }
  return { requiredBytes, limitBytes: limitBytes === 0 ? Infinity : limitBytes };
}
