import type { NodeName } from '../model/ids.js';
import { isBehind, isLost, isSolid, type ReplicaSight, type VolumeSight } from './volume-sight.js';

/** Why a volume that nobody uses needs a writer, and where it may run. */
export interface MaintenanceNeed {
  /** Nodes with an in-sync replica, the best first. */
  readonly candidates: readonly NodeName[];
  /** Nodes whose replicas will be copied to. */
  readonly targets: readonly NodeName[];
  readonly why: string;
}

/**
 * Does a volume without attachment need a writer for a while? Pure. `drop`: an in-sync replica that has to leave, which
 * only a writer can do.
 *
 * A writer that takes the volume over drops whatever it can't reach, so none is begun for nothing; nor while no replica
 * in reach is known to have come through without a crash and an in-sync one is only away that may have (R10).
 */
export function maintenanceNeed(sight: VolumeSight, drop: NodeName | undefined): MaintenanceNeed | undefined {
  if (!mayBeTaken(sight)) return undefined;
  const solid = sight.replicas.filter(isSolid);
  const reasons = [
    ...about(sight.replicas.filter(isBehind), (nodes) => `the replica on ${nodes} is not in sync`),
    ...about(solid.filter(isMarked), (nodes) => `the replica on ${nodes} may have lost writes in a crash`),
    ...about(solid.filter(isOpen), (nodes) => `the replica on ${nodes} has open regions`),
    ...about(solid.filter(isDamaged), (nodes) => `the replica on ${nodes} has damaged blocks`),
    ...(drop === undefined ? [] : [`the replica on ${drop} is to leave the in-sync set`]),
  ];
  if (solid.length === 0 || reasons.length === 0) return undefined;
  const sound = solid.some(({ told }) => told?.crashMark === false);
  if (!sound && sight.replicas.some((replica) => replica.inSync && isAwaited(replica))) return undefined;
  return {
    candidates: solid.toSorted((a, b) => Number(isMarked(a)) - Number(isMarked(b))).map(({ node }) => node),
    targets: sight.replicas.filter(isBehind).map(({ node }) => node),
    why: reasons.join('; '),
  };
}

/**
 * Nobody is the writer; or it is a maintenance writer whose node has died; or an attachment whose node is not waited for
 * any more, and that no replica hears of. With `failover: manual` only a person gives such an attachment up.
 */
export function mayBeTaken({ record, writer }: Pick<VolumeSight, 'record' | 'writer'>): boolean {
  if (writer.kind === 'none') return true;
  if (writer.heard) return false;
  if (writer.kind === 'maintenance') return writer.standing.kind === 'away' || isLost(writer);
  return isLost(writer) && record.parameters.failover === 'auto';
}

function isMarked({ told }: ReplicaSight): boolean {
  return told?.fresh === true && told.crashMark;
}

function isOpen({ told }: ReplicaSight): boolean {
  return told?.fresh === true && told.openRegions > 0;
}

function isDamaged({ told }: ReplicaSight): boolean {
  return told?.fresh === true && told.damagedBlocks > 0;
}

/** Its node may come back, or tell of it, any moment. */
function isAwaited({ standing, told }: ReplicaSight): boolean {
  return standing.kind === 'away' || standing.kind === 'unsure' || (standing.kind === 'present' && told === undefined);
}

function about(replicas: readonly ReplicaSight[], say: (nodes: string) => string): string[] {
  return replicas.length === 0 ? [] : [say(replicas.map(({ node }) => node).join(', '))];
}
