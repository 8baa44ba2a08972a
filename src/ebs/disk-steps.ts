import { attachments, isSteady, look, STEADY_MS, STUCK_MS, type DiskFacts, type NodeSight } from './disk-sight.js';
import {
  generationOf,
  isEnding,
  isOurs,
  nextGeneration,
  ownTags,
  to,
  tokenOf,
  volumeOf,
  type DiskState,
  type EbsDisk,
  type Place,
} from './disk-state.js';
import type { Tags, VolumeAttachment } from './ec2.js';

/**
 * The life of one disk on EBS, step by step; its states stand in disk-state.ts, what is seen of it in disk-sight.ts.
 *
 * `nextStep` is given the disk's record, what is wished, and what EC2 and the nodes show, and tells one step: a record to
 * write (by compare-and-swap), then an act. The record is written before the act, so whoever finds it after a crash knows
 * what may have been done, and asks for the same step again: every act may be repeated. The rules:
 *
 * - A token stands for one generation. The next generation begins only when it is certain that the last one left no
 *   volume, and only for a disk that was never in a pool.
 * - An attach call names the instance in the record. The record names another one only after the release from the first
 *   is certain.
 * - What EC2 shows may be out of date. That a disk is attached is believed only from the node that sees the device; that
 *   something is not there, only when it was shown so for STEADY_MS.
 * - Only a volume that carries our cluster's and the disk's tags is attached, detached or deleted.
 * - Nothing is deleted that may hold the last in-sync replica of a volume.
 */

/** What is to be done now. */
export type Act =
  /** Look again later: at what EC2 shows, and at what the node sees. */
  | { readonly kind: 'wait' }
  /** The wish is met. */
  | { readonly kind: 'rest' }
  | { readonly kind: 'create'; readonly token: string; readonly tags: Tags }
  | { readonly kind: 'attach'; readonly volumeId: string; readonly instanceId: string; readonly device: string }
  | { readonly kind: 'detach'; readonly volumeId: string; readonly instanceId: string }
  | { readonly kind: 'delete'; readonly volumeId: string }
  /** The node shall take the disk into its pool; it may make a filesystem only if told so and the device reads blank. */
  | { readonly kind: 'join'; readonly volumeId: string; readonly instanceId: string; readonly mayFormat: boolean }
  /** The node shall unmount the disk. */
  | { readonly kind: 'leave'; readonly volumeId: string; readonly instanceId: string };

/** One step of a disk's life. */
export interface Step {
  /**
   * To be written first; the act is left out where that fails. Absent: the record stays. With `wait`, the record is all
   * there is to do, and the next step may be asked for at once.
   */
  readonly record?: EbsDisk;
  readonly act: Act;
  /** For people; no full stop. */
  readonly why: string;
}

/** EBS user guide, "How Amazon EBS encryption works", permissions for IAM users. */
const KEY_PERMISSIONS = 'kms:CreateGrant, kms:Decrypt, kms:DescribeKey and kms:GenerateDataKeyWithoutPlaintext';

/** After so many a person is asked. */
export const MAX_VANISHED = 3;

/** The one next step. Leftovers of earlier generations are cleared where the disk itself has nothing to do. */
export function nextStep(disk: EbsDisk, facts: DiskFacts): Step {
  const step = stepOf(disk, disk.state, facts);
  const isIdle = step.record === undefined && (step.act.kind === 'wait' || step.act.kind === 'rest');
  return isIdle ? (clearLeftover(disk, facts) ?? step) : step;
}

function stepOf(disk: EbsDisk, state: DiskState, facts: DiskFacts): Step {
  switch (state.kind) {
    case 'wanted':
      return fromWanted(disk, facts);
    case 'creating':
      return fromCreating(disk, state, facts);
    case 'made':
      return fromMade(disk, state.volumeId, facts);
    case 'available':
      return fromAvailable(disk, state.volumeId, facts);
    case 'attaching':
      return fromAttaching(disk, state, facts);
    case 'attached':
    case 'in-pool':
      return fromAttached(disk, state, facts);
    case 'detaching':
      return fromDetaching(disk, state, facts);
    case 'deleting':
      return fromDeleting(disk, state.volumeId, facts);
    case 'gone':
      return { act: { kind: 'rest' }, why: 'the disk is deleted' };
    case 'failed':
      if (facts.wish.kind !== 'deleted') return wait(state.reason);
      return move(disk, state.from, 'the failed disk is to be deleted');
  }
}

type Placed = Extract<DiskState, { readonly place: Place }>;

function fromWanted(disk: EbsDisk, { wish, clusterId }: DiskFacts): Step {
  if (wish.kind === 'deleted') return move(disk, { kind: 'gone' }, 'no volume was made');
  return create(disk, 1, clusterId);
}

function fromCreating(disk: EbsDisk, state: Extract<DiskState, { kind: 'creating' }>, facts: DiskFacts): Step {
  const { ec2, wish, clusterId } = facts;
  const found = ec2?.volumes
    .filter((volume) => isOurs(disk, volume, clusterId) && generationOf(volume) === disk.generation)
    .map(({ id }) => id)
    .sort()[0];
  if (found !== undefined) {
    return move(disk, { kind: 'made', volumeId: found }, `volume ${found} was made, though the answer was lost`);
  }
  const isNone = isSteady(facts, STEADY_MS);
  if (wish.kind === 'deleted' && isNone) return move(disk, { kind: 'gone' }, 'no volume was made');
  if (state.refusal === '') return create(disk, state.calls + 1, clusterId);
  if (isNone) return { record: nextGeneration(disk, state.refusal), act: { kind: 'wait' }, why: state.refusal };
  return wait(`${state.refusal}; an earlier call may have made a volume, which EC2 would show`);
}

function fromMade(disk: EbsDisk, volumeId: string, facts: DiskFacts): Step {
  const sight = look(disk, volumeId, facts);
  if (sight.kind === 'missing') return ifSteady(facts, () => vanish(disk, volumeId, facts), missing(volumeId));
  if (sight.kind !== 'ours') return wait(sight.why);
  if (sight.volume.state === 'error') return remove(volumeId, facts, 'EC2 could not make it');
  if (sight.volume.state === 'creating') return wait(`EC2 is making volume ${volumeId}`);
  return move(disk, { kind: 'available', volumeId }, `volume ${volumeId} is made`);
}

function fromAvailable(disk: EbsDisk, volumeId: string, facts: DiskFacts): Step {
  const { wish, freeDevice } = facts;
  const sight = look(disk, volumeId, facts);
  if (sight.kind === 'missing') return ifSteady(facts, () => vanish(disk, volumeId, facts), missing(volumeId));
  if (sight.kind !== 'ours') return wait(sight.why);
  const [strange] = attachments(sight.volume);
  if (strange !== undefined) return undo(disk, volumeId, strange, facts);
  switch (wish.kind) {
    case 'kept':
      return { act: { kind: 'rest' }, why: `volume ${volumeId} is kept, attached nowhere` };
    case 'deleted':
      if (facts.mayHoldLastReplica) return wait(holdsLast(volumeId));
      return { record: to(disk, { kind: 'deleting', volumeId }), ...remove(volumeId, facts, 'it is to be deleted') };
    case 'in-pool':
      if (sight.volume.state !== 'available') return wait(`EC2 shows volume ${volumeId} as ${sight.volume.state}`);
      if (facts.isGone(wish.instanceId)) return wait(`instance ${wish.instanceId} is gone`);
      if (freeDevice === undefined) return wait(`instance ${wish.instanceId} has no room for volume ${volumeId}`);
      return attach(disk, volumeId, { instanceId: wish.instanceId, device: freeDevice });
  }
}

function fromAttaching(disk: EbsDisk, state: Placed, facts: DiskFacts): Step {
  const { volumeId, place } = state;
  if (!isWishedAt(place, facts)) return letGo(disk, state);
  const seen = facts.node(place.instanceId, volumeId);
  if (seen.kind === 'present' || seen.kind === 'in-pool') {
    return move(disk, { ...state, kind: 'attached' }, `the node sees volume ${volumeId}`);
  }
  const sight = look(disk, volumeId, facts);
  if (sight.kind === 'missing') return ifSteady(facts, () => vanish(disk, volumeId, facts), missing(volumeId));
  if (sight.kind !== 'ours') return wait(sight.why);
  const shown = attachments(sight.volume);
  const elsewhere = shown.find(({ instanceId }) => instanceId !== place.instanceId);
  if (elsewhere !== undefined) {
    return ifSteady(facts, () => detachFrom(volumeId, elsewhere.instanceId, facts), shownAt(volumeId, elsewhere));
  }
  const here = shown[0];
  if (here === undefined) return attachAgain(disk, state, facts);
  const isStuck = seen.kind === 'absent' && isSteady(facts, STUCK_MS);
  return isStuck ? letGo(disk, state) : wait(`${shownAt(volumeId, here)}, which the node does not see yet`);
}

/** The same place; another name only where EC2 has refused this one. */
function attachAgain(disk: EbsDisk, { volumeId, place }: Placed, facts: DiskFacts): Step {
  const { deviceRefused, freeDevice } = facts;
  if (facts.isGone(place.instanceId)) return wait(`instance ${place.instanceId} is gone`);
  const device = deviceRefused ? freeDevice : place.device;
  if (device === undefined) return wait(`instance ${place.instanceId} has no device name for volume ${volumeId}`);
  const step = attach(disk, volumeId, { ...place, device });
  return device === place.device ? { act: step.act, why: step.why } : step;
}

/** Attached and in the pool: what the node sees decides, EC2 is asked only where it doesn't see the device. */
function fromAttached(disk: EbsDisk, state: Placed, facts: DiskFacts): Step {
  const { volumeId, place } = state;
  if (!isWishedAt(place, facts)) {
    const isKept = facts.wish.kind === 'deleted' && facts.mayHoldLastReplica;
    return isKept ? wait(holdsLast(volumeId)) : letGo(disk, state);
  }
  const seen = facts.node(place.instanceId, volumeId);
  switch (seen.kind) {
    case 'unknown':
      return wait(`the node of volume ${volumeId} does not answer`);
    case 'absent':
      return whereUnseen(disk, state, facts);
    case 'present':
      return join(disk, state, seen);
    case 'in-pool':
      if (state.kind === 'in-pool') return { act: { kind: 'rest' }, why: `volume ${volumeId} is in the pool` };
      return move(
        { ...disk, vanished: 0, format: 'done' },
        { ...state, kind: 'in-pool' },
        'the node has it in its pool',
      );
  }
}

/** A device that was seen and is no more: lost, or taken away by someone. */
function whereUnseen(disk: EbsDisk, state: Placed, facts: DiskFacts): Step {
  const { volumeId, place } = state;
  if (facts.isGone(place.instanceId)) return wait(`instance ${place.instanceId} is gone`);
  const sight = look(disk, volumeId, facts);
  if (sight.kind === 'missing') return ifSteady(facts, () => vanish(disk, volumeId, facts), missing(volumeId));
  if (sight.kind !== 'ours') return wait(sight.why);
  const why = `the node does not see volume ${volumeId} any more`;
  return ifSteady(facts, () => move(disk, { ...state, kind: 'attaching' }, why), why);
}

function join(disk: EbsDisk, state: Placed, seen: Extract<NodeSight, { kind: 'present' }>): Step {
  const { volumeId, place } = state;
  const mayFormat = seen.content === 'blank' && disk.format !== 'done';
  if (seen.content !== 'ours' && !mayFormat) {
    const found = seen.content === 'blank' ? 'reads blank, though it was in use' : `holds ${seen.holds}`;
    return fail(disk, `volume ${volumeId} on ${place.instanceId} should hold disk ${disk.diskId}, but ${found}`);
  }
  const act: Act = { kind: 'join', volumeId, instanceId: place.instanceId, mayFormat };
  const why = `the node is asked to take volume ${volumeId} into its pool`;
  return disk.format === 'never' ? { record: { ...disk, format: 'asked' }, act, why } : { act, why };
}

function fromDetaching(disk: EbsDisk, { volumeId, place }: Placed, facts: DiskFacts): Step {
  const { instanceId } = place;
  const sight = look(disk, volumeId, facts);
  if (sight.kind !== 'ours' && sight.kind !== 'missing') return wait(sight.why);
  const shown = sight.kind === 'ours' ? attachments(sight.volume) : [];
  const isShownHere = shown.some((each) => each.instanceId === instanceId);
  const seen = facts.node(instanceId, volumeId);
  const isUnseen = seen.kind === 'absent' || facts.isGone(instanceId);
  if (isUnseen && !isShownHere) {
    const released = (): Step => move(disk, { kind: 'available', volumeId }, `volume ${volumeId} is let go`);
    return ifSteady(facts, released, `EC2 shows volume ${volumeId} as let go, maybe out of date`);
  }
  if (sight.kind === 'missing') return wait(`EC2 does not show volume ${volumeId}`);
  return detachFrom(volumeId, instanceId, facts);
}

function fromDeleting(disk: EbsDisk, volumeId: string, facts: DiskFacts): Step {
  const sight = look(disk, volumeId, facts);
  if (sight.kind === 'missing') {
    return ifSteady(facts, () => move(disk, { kind: 'gone' }, `volume ${volumeId} is deleted`), missing(volumeId));
  }
  if (sight.kind !== 'ours') return wait(sight.why);
  const [strange] = attachments(sight.volume);
  if (strange !== undefined) return undo(disk, volumeId, strange, facts);
  return remove(volumeId, facts, 'it is to be deleted');
}

/**
 * A volume of an earlier generation, or of a lost creation, that EC2 shows after all. It never was the record's volume
 * while anything was written, for a disk that was in use has no further generation.
 */
function clearLeftover(disk: EbsDisk, facts: DiskFacts): Step | undefined {
  const own = volumeOf(disk.state);
  const adopts = disk.state.kind === 'creating';
  const left = facts.ec2?.volumes.find((volume) => {
    const generation = generationOf(volume);
    const isOlder = (generation > 0 && generation < disk.generation) || (generation === disk.generation && !adopts);
    return volume.id !== own && isOlder && isOurs(disk, volume, facts.clusterId) && !isEnding(volume);
  });
  if (left === undefined || !isSteady(facts, STEADY_MS)) return undefined;
  const [attached] = attachments(left);
  if (attached !== undefined) return detachFrom(left.id, attached.instanceId, facts);
  if (left.state === 'creating') return undefined;
  return remove(left.id, facts, `disk ${disk.diskId} has another volume or none`);
}

function isWishedAt({ instanceId }: Place, { wish }: DiskFacts): boolean {
  return wish.kind === 'in-pool' && wish.instanceId === instanceId;
}

/** The volume is no more. A disk that was never in use begins again, a few times; one that was is lost. */
function vanish(disk: EbsDisk, volumeId: string, { wish, kmsKey }: DiskFacts): Step {
  if (wish.kind === 'deleted') return move(disk, { kind: 'gone' }, `volume ${volumeId} is no more`);
  if (disk.format !== 'never') return fail(disk, `volume ${volumeId} is no more; someone has deleted it`);
  const vanished = disk.vanished + 1;
  const times = vanished === 1 ? '' : `, as did ${vanished - 1} before it`;
  const reason = `volume ${volumeId} vanished after EC2 had named it${times}; ${whatToCheck(kmsKey)}`;
  const next = { ...nextGeneration(disk, reason), vanished };
  return vanished < MAX_VANISHED ? { record: next, act: { kind: 'wait' }, why: reason } : fail(next, reason);
}

/** EC2 uses the key only after its answer, and where it may not, takes the volume back without a word. */
function whatToCheck(kmsKey: string): string {
  if (kmsKey === '') return 'EC2 gives no reason';
  return `check that KMS key ${kmsKey} is there and enabled, and that the role has ${KEY_PERMISSIONS} on it`;
}

function create(disk: EbsDisk, calls: number, clusterId: string): Step {
  const act: Act = { kind: 'create', token: tokenOf(disk), tags: ownTags(disk, clusterId) };
  return { record: to(disk, { kind: 'creating', calls, refusal: '' }), act, why: 'the disk has no volume' };
}

function attach(disk: EbsDisk, volumeId: string, place: Place): Step {
  const why = `volume ${volumeId} is wanted on instance ${place.instanceId}`;
  return { record: to(disk, { kind: 'attaching', volumeId, place }), act: { kind: 'attach', volumeId, ...place }, why };
}

function letGo(disk: EbsDisk, { volumeId, place }: Placed): Step {
  const why = `volume ${volumeId} is to leave instance ${place.instanceId}`;
  return move(disk, { kind: 'detaching', volumeId, place }, why);
}

/** Attached where no record says so: recorded as such, then detached like any other. */
function undo(disk: EbsDisk, volumeId: string, strange: VolumeAttachment, facts: DiskFacts): Step {
  const place = { instanceId: strange.instanceId, device: strange.device };
  // Wanted there: then its node shall say whether it sees it.
  const kind = isWishedAt(place, facts) ? 'attaching' : 'detaching';
  const why = shownAt(volumeId, strange);
  return ifSteady(facts, () => move(disk, { kind, volumeId, place }, why), why);
}

/** Never under a mounted disk: a node that may use it lets go first. */
function detachFrom(volumeId: string, instanceId: string, facts: DiskFacts): Step {
  const seen = facts.node(instanceId, volumeId);
  const why = `volume ${volumeId} is to leave instance ${instanceId}`;
  if (facts.isGone(instanceId) || seen.kind === 'absent' || seen.kind === 'present') {
    return { act: { kind: 'detach', volumeId, instanceId }, why };
  }
  if (seen.kind === 'in-pool') return { act: { kind: 'leave', volumeId, instanceId }, why };
  return wait(`${why}, whose node does not answer`);
}

function remove(volumeId: string, { mayHoldLastReplica }: DiskFacts, why: string): Step {
  if (mayHoldLastReplica) return wait(holdsLast(volumeId));
  return { act: { kind: 'delete', volumeId }, why: `volume ${volumeId} is deleted: ${why}` };
}

function move(disk: EbsDisk, state: DiskState, why: string): Step {
  return { record: to(disk, state), act: { kind: 'wait' }, why };
}

function fail(disk: EbsDisk, reason: string): Step {
  const from = disk.state.kind === 'failed' ? disk.state.from : disk.state;
  return move(disk, { kind: 'failed', reason, from }, reason);
}

function wait(why: string): Step {
  return { act: { kind: 'wait' }, why };
}

/** Believed only when it was shown for long enough. */
function ifSteady(facts: DiskFacts, step: () => Step, otherwise: string): Step {
  return isSteady(facts, STEADY_MS) ? step() : wait(otherwise);
}

function missing(volumeId: string): string {
  return `EC2 does not show volume ${volumeId}`;
}

function shownAt(volumeId: string, { instanceId, state }: VolumeAttachment): string {
  return `EC2 shows volume ${volumeId} as ${state} at instance ${instanceId}`;
}

function holdsLast(volumeId: string): string {
  return `volume ${volumeId} may hold the last in-sync replica of a volume`;
}
