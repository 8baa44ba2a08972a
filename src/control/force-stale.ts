import { HoldfastError } from '../base/errors.js';
import { CONTROLLER, decided } from '../model/decisions.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { readNodes } from './cluster-view.js';
import { indexOf } from './node-watch.js';
import { changeVolume, type ControlParts } from './parts.js';
import { isDead, type ReplicaSight, type VolumeSight } from './volume-sight.js';

/**
 * R12: with no in-sync replica left that could ever come back, a person chooses a stale one, which is in sync from then
 * on. Resolves to what may be lost, in sentences. `failed-precondition`: an in-sync one may come back, or the loss is not
 * accepted. `not-found`: no such replica.
 */
export async function forceStale(
  parts: ControlParts,
  id: VolumeId,
  { node, acceptLoss }: { readonly node: NodeName; readonly acceptLoss: boolean },
): Promise<string[]> {
  let loss: string[] = [];
  const changed = await changeVolume(parts, volumeKey(id), async (record) => {
    if (record.id !== id) return undefined;
    const sight = parts.healing.sightOf(record, indexOf(await readNodes(parts.store)));
    refuseUnlessLost(sight, node);
    loss = lossOf(record, node);
    if (!acceptLoss) {
      throw new HoldfastError('failed-precondition', `${loss.join('; ')}; to go on all the same, add --accept-loss`);
    }
    return chosen(record, node);
  });
  if (changed?.record.id !== id) throw new HoldfastError('not-found', `there is no volume ${id}`);
  parts.log.warn({ volume: id, replica: node }, 'a person chose a stale replica; writes may be lost');
  return loss;
}

/** Refuses unless the choice is the only way. Pure. */
export function refuseUnlessLost({ record, replicas, writer }: VolumeSight, node: NodeName): void {
  const { id, phase } = record;
  const refuse = (reason: string): HoldfastError => new HoldfastError('failed-precondition', reason);
  if (phase !== 'ready') throw refuse(`volume ${id} is ${phase}; it must be ready`);
  const chosen = replicas.find((replica) => replica.node === node);
  if (chosen === undefined) {
    const there = replicas.map((replica) => replica.node).join(', ');
    throw new HoldfastError('not-found', `volume ${id} has no replica on node ${node}; there are replicas on ${there}`);
  }
  if (chosen.inSync) throw refuse(`the replica on node ${node} is in sync; nothing has to be forced`);
  if (chosen.standing.kind !== 'present') {
    throw refuse(`the replica on node ${node} can not be used: ${reasonOf(chosen)}`);
  }
  if (writer.kind !== 'none' && writer.standing.kind !== 'away' && writer.standing.kind !== 'lost') {
    throw refuse(`node ${writer.node} is the writer of volume ${id}, and is alive; release it first`);
  }
  const hopeful = replicas.filter((replica) => replica.inSync && !isDead(replica));
  if (hopeful.length === 0) return;
  const [first] = hopeful;
  const remedy =
    first === undefined || first.standing.kind === 'present'
      ? 'attach the volume instead'
      : `wait for it, or, if the node is gone for good, run: holdfast node remove ${first.node}`;
  throw refuse(`the replica on node ${first?.node ?? ''} is in sync and may come back; ${remedy}`);
}

/** The others are behind from now on: what they have and the chosen one has not is gone. */
function chosen(record: VolumeRecord, node: NodeName): VolumeRecord {
  const replicas = record.replicas.map((replica) => ({ ...replica, inSync: replica.node === node }));
  const what = `a person chose the stale replica on ${node}: acknowledged writes that it had not received are lost`;
  const next = { ...record, epoch: record.epoch + 1, writer: null, quiet: false, replicas };
  return decided(next, { at: new Date().toISOString(), by: CONTROLLER, what });
}

function lossOf({ replicas, decisions = [] }: VolumeRecord, node: NodeName): string[] {
  const gone = replicas.filter((replica) => replica.inSync).map((replica) => replica.node);
  const left = decisions.toReversed().find(({ what }) => what.includes(`the replica on ${node} was `));
  return [
    `the replica on node ${node} lacks every write that was acknowledged after it left the in-sync set`,
    left === undefined ? 'the record does not tell any more when that was' : `it left at ${left.at}: ${left.what}`,
    gone.length === 0 ? 'no replica is in sync' : `those that had these writes are gone: ${gone.join(', ')}`,
    'a filesystem on it may need repair',
  ];
}

function reasonOf({ standing }: ReplicaSight): string {
  return standing.kind === 'present' ? '' : standing.reason;
}
