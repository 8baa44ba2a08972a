import type { Decision, VolumeRecord } from './records.js';

/** So many decisions are kept in a volume's record. */
export const KEPT_DECISIONS = 16;

/** Longest text of a decision: the reasons in it come from elsewhere, and the record must stay small. */
const MAX_WHAT_LENGTH = 400;

/** The `by` of decisions that no node took. */
export const CONTROLLER = 'controller';

/**
 * The changed record with the decision that changed it. What the same one decides again in a row is one entry with a
 * count, so that a fault that comes back all the time does not push the others out.
 */
export function decided(record: VolumeRecord, decision: Omit<Decision, 'epoch' | 'times'>): VolumeRecord {
  const what = shorten(decision.what);
  const before = record.decisions ?? [];
  const last = before.at(-1);
  const entry = { ...decision, what, epoch: record.epoch };
  if (last?.what === what && last.by === entry.by) {
    return { ...record, decisions: [...before.slice(0, -1), { ...entry, times: (last.times ?? 1) + 1 }] };
  }
  return { ...record, decisions: [...before, entry].slice(-KEPT_DECISIONS) };
}

function shorten(text: string): string {
  return text.length > MAX_WHAT_LENGTH ? `${text.slice(0, MAX_WHAT_LENGTH - 1)}…` : text;
}
