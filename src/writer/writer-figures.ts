import type { Tell } from '../base/meters.js';
import type { VolumeId } from '../model/ids.js';
import type { AttachmentStatus } from './attachments.js';
import type { Member } from './member.js';
import type { Membership } from './membership.js';

const STATES: readonly AttachmentStatus['state'][] = ['taking-over', 'serving', 'releasing', 'fenced', 'failed'];

/** The state of an attachment, told as one gauge for each state. */
export function tellState(tell: Tell, volume: VolumeId, now: AttachmentStatus['state']): void {
  for (const state of STATES) tell('holdfast_writer_state', Number(state === now), { volume, state });
}

/** What a writer tells of itself when it is asked for its figures. */
export interface WriterFigures {
  readonly status: AttachmentStatus;
  readonly membership: Membership;
  readonly members: readonly Member[];
  readonly confirmationsMissing: number;
}

export function tellWriter(tell: Tell, { status, membership, members, confirmationsMissing }: WriterFigures): void {
  const { id: volume, name, replicas } = membership.record;
  tell('holdfast_writer_info', 1, { volume, name });
  tellState(tell, volume, status.state);
  tell('holdfast_writer_epoch', status.epoch, { volume });
  for (const { node: replica } of replicas) {
    tell('holdfast_writer_replica_in_sync', Number(membership.inSync.has(replica)), { volume, replica });
  }
  for (const { node: replica, oldestMs } of members) {
    tell('holdfast_writer_replica_oldest_request_seconds', oldestMs / 1_000, { volume, replica });
  }
  tell('holdfast_writer_waits', status.waitsFor.length, { volume });
  tell('holdfast_writer_confirmations_missing', confirmationsMissing, { volume });
  tell('holdfast_writer_open_regions', status.regionsOpen, { volume });
  tell('holdfast_writer_reconcile_regions', status.regionsToReconcile, { volume });
  if (status.resync === null) return;
  const { node: replica, regionsTotal, regionsDone } = status.resync;
  tell('holdfast_resync_regions', regionsTotal, { volume, replica });
  tell('holdfast_resync_regions_done', regionsDone, { volume, replica });
}
