import { messageOf } from '../base/errors.js';
import type { NodeName, VolumeId } from '../model/ids.js';
import type { RebuildRound } from './rebuild-round.js';
import { surplusOf, type Surplus } from './surplus.js';
import type { VolumeSight } from './volume-sight.js';

/**
 * Given a volume with a replica that is of no use, or one more than wanted while as many as wanted are in sync, then
 * that replica leaves: an in-sync one by the hand of the writer, another one by its entry in the record; then it is
 * removed on its node. True: the record was changed.
 */
export async function removeSurplus(round: RebuildRound, sight: VolumeSight): Promise<boolean> {
  const surplus = surplusIn(round, sight);
  if (surplus === undefined) return false;
  const left = surplus.kind === 'forget' ? await forget(round, sight.record.id) : await drop(round, sight, surplus);
  if (left === undefined) return false;
  round.parts.log.info({ volume: sight.record.id, node: left, why: surplus.why }, 'replica leaves its volume');
  await removeAt(round, left, sight.record.id);
  return true;
}

export function surplusIn(round: RebuildRound, sight: VolumeSight): Surplus | undefined {
  return surplusOf(sight, (replica) => round.meritOf(replica));
}

/** Decided anew on the record as it is then; resolves to the node whose entry was taken out. */
async function forget(round: RebuildRound, id: VolumeId): Promise<NodeName | undefined> {
  let left: NodeName | undefined;
  const changed = await round.change(id, (sight) => {
    const surplus = surplusIn(round, sight);
    left = surplus?.kind === 'forget' ? surplus.node : undefined;
    if (surplus === undefined || left === undefined) return undefined;
    const why = `the replica on ${left}, which was not in sync, left the volume: ${surplus.why}`;
    return { replicas: sight.record.replicas.filter(({ node }) => node !== left), why };
  });
  return changed && left;
}

/** Without a writer it waits for a maintenance writer, which is told of it when it is begun. */
async function drop(
  round: RebuildRound,
  { record, writer }: VolumeSight,
  { node, why }: Surplus,
): Promise<NodeName | undefined> {
  if (writer.kind === 'none' || writer.standing.kind !== 'present') return undefined;
  try {
    await round.ask(writer.node, (agent) => agent.dropReplica(record.id, node, why));
    return node;
  } catch (error) {
    round.problems.set(record.id, `the replica on ${node} can not leave yet: ${messageOf(error)}`);
    return undefined;
  }
}

/** A node that is away is told when it is back; if that is forgotten, it finds by itself that no record names it. */
async function removeAt(round: RebuildRound, node: NodeName, id: VolumeId): Promise<void> {
  const { strays, log } = round.parts;
  try {
    await round.ask(node, (agent) => agent.removeReplica(id));
  } catch (error) {
    strays.add(node, id);
    log.info({ volume: id, node, reason: messageOf(error) }, 'replica is not removed yet');
  }
}
