import { inWords } from '../base/duration.js';
import type { Decision } from '../model/records.js';
import type { AttachmentAnswer, Health } from './health.js';
import { maintenanceNeed, mayBeTaken } from './maintenance-need.js';
import { missingReplicas, whyMissing } from './missing-replicas.js';
import type { Surplus } from './surplus.js';
import { isBehind, isLost, isSolid, isTended, type ReplicaSight, type VolumeSight } from './volume-sight.js';

/** A volume explained to a person, in plain sentences. */
export interface Explanation {
  readonly health: Health['word'];
  /** How it stands. */
  readonly state: readonly string[];
  /** What was decided on it, newest first. */
  readonly happened: readonly Decision[];
  readonly waitsFor: readonly string[];
  readonly next: readonly string[];
}

export interface ExplainedVolume {
  readonly sight: VolumeSight;
  readonly health: Health;
  readonly attachment: AttachmentAnswer;
  readonly surplus: Surplus | undefined;
  /** What stood in its way in the last round of the rebuilder. */
  readonly problem: string | undefined;
  readonly graceMs: number;
}

/** Why a volume is as it is. It uses the very decisions by which volumes heal, so that what it foretells comes true. Pure. */
export function explain(volume: ExplainedVolume): Explanation {
  const { sight, health } = volume;
  return {
    health: health.word,
    state: stateOf(volume),
    happened: (sight.record.decisions ?? []).toReversed(),
    waitsFor: waitsOf(volume),
    next: sight.record.phase === 'ready' ? nextOf(volume) : [],
  };
}

function stateOf({ sight, health }: ExplainedVolume): string[] {
  const { record, replicas, writer } = sight;
  const { replicas: wanted } = record.parameters;
  const inSync = replicas.filter((replica) => replica.inSync).length;
  return [
    `${inSync} of ${wanted} replicas are in sync`,
    ...replicas.map(replicaSentence),
    writer.kind === 'none' || writer.standing.kind === 'present'
      ? writerSentence(sight)
      : `${writerSentence(sight)}; ${standingSentence(writer)}`,
    ...health.conditions.filter(({ severity }) => severity !== 'degraded').map(({ message }) => message),
  ];
}

function replicaSentence(replica: ReplicaSight): string {
  const { node, disk, inSync, standing } = replica;
  const head = `the replica on node ${node}, disk ${disk}, is ${inSync ? 'in sync' : 'not in sync'}`;
  return standing.kind === 'present' ? head : `${head}; ${standingSentence(replica)}`;
}

function standingSentence({ standing }: Pick<ReplicaSight, 'standing'>): string {
  switch (standing.kind) {
    case 'present':
      return '';
    case 'unsure':
      return standing.reason;
    case 'away':
      return `${standing.reason}, for ${inWords(standing.forMs)} now`;
    case 'lost':
      return `${standing.reason}; it is not waited for any more`;
  }
}

function writerSentence({ writer }: VolumeSight): string {
  switch (writer.kind) {
    case 'none':
      return 'no node has it attached';
    case 'attached':
      return `node ${writer.node} has it attached`;
    case 'maintenance':
      return `node ${writer.node} brings its replicas into line, without a device; it gives way to whoever attaches it`;
  }
}

function waitsOf({ attachment, problem }: ExplainedVolume): string[] {
  const waits: string[] = [];
  if (attachment === 'unanswered') waits.push('the node that has it attached to answer');
  else if (attachment !== null) {
    const { resync, regions_to_reconcile: toReconcile } = attachment;
    if (toReconcile > 0) waits.push(`the comparison of ${toReconcile} regions after a take-over`);
    if (resync !== null) {
      waits.push(`the resync of ${resync.node}: ${resync.regions_done} of ${resync.regions_total} regions`);
    }
    waits.push(...attachment.waits_for);
  }
  if (problem !== undefined) waits.push(problem);
  return waits;
}

/** What comes next if nothing else happens, in the order in which it will. */
function nextOf({ sight, surplus, problem, graceMs }: ExplainedVolume): string[] {
  const { record, replicas } = sight;
  const solid = replicas.filter(isSolid);
  if (solid.length === 0) return [withoutSource(sight)];
  const next: string[] = [];
  if (surplus !== undefined) {
    const how = surplus.kind === 'drop' && !isTended(sight) ? ', by a writer without a device' : '';
    next.push(`the replica on ${surplus.node} leaves the volume${how}: ${surplus.why}`);
  }
  const missing = missingReplicas(sight);
  if (missing > 0) {
    const again = problem === undefined ? '' : ', as soon as that is possible';
    next.push(`${countOf(missing)} made on other nodes${again}: ${whyMissing(sight)}`);
  }
  next.push(...replicas.flatMap((replica) => awaited(replica, record.parameters.replicas, replicas, graceMs)));
  next.push(...behind(sight, surplus));
  next.push(...abandoned(sight));
  return next;
}

function countOf(missing: number): string {
  return missing === 1 ? 'a new replica is' : `${missing} new replicas are`;
}

function awaited(replica: ReplicaSight, wanted: number, all: readonly ReplicaSight[], graceMs: number): string[] {
  const { standing, node } = replica;
  if (standing.kind !== 'away') return [];
  const needed = all.filter((other) => !isLost(other)).length <= wanted;
  const after = needed ? `; after ${inWords(graceMs)} a new replica is made elsewhere` : '';
  return [`node ${node} is away for ${inWords(standing.forMs)}${after}`];
}

function behind(sight: VolumeSight, surplus: Surplus | undefined): string[] {
  const nodes = sight.replicas.filter((replica) => isBehind(replica) && replica.node !== surplus?.node);
  if (nodes.length === 0) return [];
  const names = nodes.map(({ node }) => node).join(', ');
  if (isTended(sight)) return [`the writer brings the replica on ${names} up to date`];
  const need = maintenanceNeed(sight, undefined);
  return need === undefined
    ? [`the replica on ${names} is brought up to date by the next node that attaches the volume`]
    : [`a writer without a device brings the replica on ${names} up to date, as soon as nodes have time for it`];
}

/** The writer's node is dead, and nobody takes over. */
function abandoned(sight: VolumeSight): string[] {
  const { record, writer } = sight;
  if (writer.kind === 'none' || (writer.standing.kind !== 'away' && !isLost(writer))) return [];
  if (writer.kind === 'attached' && record.parameters.failover === 'manual') {
    return [
      `its failover is manual: when node ${writer.node} is dead for certain, run: holdfast volume release ${record.id} --force`,
    ];
  }
  if (writer.heard) return [`node ${writer.node} still works on the volume, so it is left alone`];
  const alone = mayBeTaken(sight) ? ', or a writer without a device' : '';
  return [`the next node that attaches the volume takes over${alone}`];
}

/** R12: nothing can be copied from anywhere. */
function withoutSource({ record, replicas }: VolumeSight): string {
  const inSync = replicas.filter((replica) => replica.inSync).map(({ node }) => node);
  const stale = replicas.filter(isBehind).map(({ node }) => node);
  const head =
    inSync.length > 0
      ? `nothing can be done before an in-sync replica is back: ${inSync.join(', ')}`
      : 'no replica is left that holds every acknowledged write';
  if (stale.length === 0) return head;
  const node = stale[0] ?? '';
  return `${head}; if none ever comes back, a stale one can be chosen, with loss: holdfast volume force-stale ${record.id} --replica ${node}`;
}
