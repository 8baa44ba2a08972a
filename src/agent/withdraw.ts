import type { Log } from '../base/log.js';
import type { BlockDevices } from '../device/device.js';
import type { NodeName, VolumeId } from '../model/ids.js';
import type { RecordStore } from '../store/store.js';

/**
 * Given a volume record that names this node as the writer while no block device of the volume is here, because the
 * machine went down with it and is back before its lease expired, then this node leaves the record, and others need not
 * wait for it. To be called before anything can be staged.
 */
export async function withdrawFromGone(parts: {
  readonly store: RecordStore;
  readonly devices: Pick<BlockDevices, 'list'>;
  readonly nodeName: NodeName;
  readonly end: (volume: VolumeId) => Promise<void>;
  readonly log: Log;
}): Promise<void> {
  const present = new Set((await parts.devices.list()).map(({ volume }) => volume));
  for (const { record } of (await parts.store.list('volume')).items) {
    if (record.writer?.node !== parts.nodeName || present.has(record.id)) continue;
    parts.log.info({ volume: record.id }, 'the attachment went down with this node; leaving the record');
    await parts.end(record.id);
  }
}
