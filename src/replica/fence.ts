import type { Admission } from './session.js';

/**
 * R5: may a session be admitted to a replica that has durably seen `known`? Each epoch belongs to one session, so an
 * equal epoch with another session is as wrong as an older one. (A replica that has seen none has epoch 0, session ''.)
 */
export function judgeAdmission(
  known: Pick<Admission, 'epoch' | 'session'>,
  asked: Pick<Admission, 'epoch' | 'session'>,
): { admitted: true } | { admitted: false; reason: string } {
  if (asked.epoch < known.epoch) {
    return {
      admitted: false,
      reason: `epoch ${asked.epoch} is older than ${known.epoch}, which this replica has seen`,
    };
  }
  if (asked.epoch === known.epoch && known.session !== '' && asked.session !== known.session) {
    return { admitted: false, reason: `epoch ${asked.epoch} belongs to another session` };
  }
  return { admitted: true };
}
