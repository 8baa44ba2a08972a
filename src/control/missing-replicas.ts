import { isLost, isSolid, type ReplicaSight, type VolumeSight } from './volume-sight.js';

/**
 * How many replicas are to be placed. Pure. One whose node is away for a while counts as there; a lost one does not,
 * though it stays in the record until enough others are in sync. Without an in-sync replica within reach there would be
 * nothing to copy from.
 */
export function missingReplicas({ record, replicas }: Pick<VolumeSight, 'record' | 'replicas'>): number {
  if (record.phase !== 'ready' || !replicas.some(isSolid)) return 0;
  return Math.max(0, record.parameters.replicas - replicas.filter((replica) => !isLost(replica)).length);
}

/** Why a replica is missing, for the decision that places another. */
export function whyMissing({ record, replicas }: Pick<VolumeSight, 'record' | 'replicas'>): string {
  const reasons = replicas.filter(isLost).map(reasonOf);
  return reasons.length > 0 ? reasons.join('; ') : `${record.parameters.replicas} replicas are wanted`;
}

function reasonOf({ standing }: ReplicaSight): string {
  return standing.kind === 'lost' ? standing.reason : '';
}
