import type { SessionId, VolumeId } from '../model/ids.js';
import type { Writer as RecordedWriter } from '../model/records.js';
import { noteOf, type WriterNode } from './writer-node.js';

/**
 * Which writer of this node is to leave the record: whichever it is; that of one session; or one without a device, which
 * no attachment can be waiting to go on with.
 */
export type Leaver =
  | { readonly kind: 'any' }
  | { readonly kind: 'session'; readonly session: SessionId; readonly quiet: boolean }
  | { readonly kind: 'no-device' };

/**
 * Makes sure that the record does not name a writer of this node that no longer runs. Older readers may be left, so it
 * is not `quiet`, unless the caller knows better. Rejects where the store does not answer, or the record was changed.
 */
export async function leaveRecord(node: WriterNode, volume: VolumeId, leaver: Leaver): Promise<void> {
  const known = await node.records.get(volume);
  const writer = known?.record.writer ?? null;
  if (known === undefined || writer?.node !== node.name || !isMeant(writer, leaver)) return;
  const { record, version } = known;
  const quiet = leaver.kind === 'session' && leaver.quiet;
  const left = { ...record, epoch: record.epoch + 1, writer: null, quiet };
  await node.records.update(noteOf(node)(left, 'left the volume: no writer runs here any more'), version);
}

function isMeant(writer: RecordedWriter, leaver: Leaver): boolean {
  switch (leaver.kind) {
    case 'any':
      return true;
    case 'session':
      return writer.session === leaver.session;
    case 'no-device':
      return writer.maintenance === true;
  }
}
