import { codeOf, HoldfastError } from '../base/errors.js';
import { makeFilesystem, probe } from '../device/filesystem.js';
import { volumeKey, type VolumeId } from '../model/ids.js';
import type { FilesystemType, VolumeRecord } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import { noSuchVolume } from './capability.js';
import { toolTimeoutMs, volumeRecord, type Remaining } from './node-parts.js';

/*
 * Whether a volume may be formatted stands in its record alone, never in what a device seems to hold: "could not be
 * read" and "is blank" must not be one answer.
 *
 *     blank ──(device reads blank)──▶ formatting ──(mkfs has ended well)──▶ formatted
 *
 * Each arrow is a compare-and-swap. mkfs runs in `formatting` alone, so one that was cut off is simply run again:
 * nothing has been mounted before `formatted`. Only the volume's writer gets here, so there is one at a time.
 */

/** Formats the volume if, and only if, its record says that it never was. */
export async function ensureFormatted(
  store: RecordStore,
  volume: VolumeId,
  device: string,
  type: FilesystemType,
  remaining: Remaining,
): Promise<void> {
  let record = await volumeRecord(store, volume);
  if (record.format === 'blank') {
    await refuseUnlessBlank(volume, device, remaining);
    record = await moveFormat(store, volume, 'blank', 'formatting');
  }
  if (record.format === 'formatting') {
    await makeFilesystem(device, type, record.parameters.mkfsOptions, toolTimeoutMs(remaining));
    await moveFormat(store, volume, 'formatting', 'formatted');
  }
}

async function refuseUnlessBlank(volume: VolumeId, device: string, remaining: Remaining): Promise<void> {
  const found = await probe(device, toolTimeoutMs(remaining));
  if (found.kind !== 'blank') {
    const what = found.kind === 'filesystem' ? found.type : found.what;
    throw new HoldfastError(
      'failed-precondition',
      `volume ${volume} was never formatted, but its device ${device} is not blank (${what}); it is left as it is`,
    );
  }
}

/** The compare-and-swap, repeated where another field was changed meanwhile (the writer changes the epoch). */
async function moveFormat(
  store: RecordStore,
  volume: VolumeId,
  from: VolumeRecord['format'],
  to: VolumeRecord['format'],
): Promise<VolumeRecord> {
  for (;;) {
    const found = await store.get('volume', volumeKey(volume));
    if (found?.record.id !== volume) throw noSuchVolume(volume);
    if (found.record.format === to) return found.record;
    if (found.record.format !== from) {
      throw new HoldfastError(
        'aborted',
        `volume ${volume} became ${found.record.format} in the middle of a format; try again`,
      );
    }
    try {
      return (await store.update('volume', found.key, { ...found.record, format: to }, found.version)).record;
    } catch (error) {
      if (codeOf(error) !== 'conflict') throw error;
    }
  }
}
