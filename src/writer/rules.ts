import type { NodeName, SessionId } from '../model/ids.js';
import type { ReplicaRecord, VolumeParameters, VolumeRecord } from '../model/records.js';
import type { PieceDigest } from '../replica/replica.js';

/**
 * The replication rules as decisions: values in, a verdict out. Nothing here waits, sends or keeps time.
 */

/**
 * R3: has every replica answered that must? `required` are the members of every in-sync set that the record may hold,
 * and the target of a running resync.
 */
export function hasEveryAnswer(answered: ReadonlySet<NodeName>, required: ReadonlySet<NodeName>): boolean {
  for (const node of required) if (!answered.has(node)) return false;
  return true;
}

/** R3: may what has every answer be acknowledged to the client? */
export function mayAcknowledge(inSync: ReadonlySet<NodeName>, minInSync: number): boolean {
  return inSync.size >= minInSync;
}

/** R4: the set without the failed ones. The last in-sync replica is never dropped; undefined: nothing changes. */
export function afterDrop(
  inSync: ReadonlySet<NodeName>,
  failing: ReadonlySet<NodeName>,
): ReadonlySet<NodeName> | undefined {
  const left = new Set([...inSync].filter((node) => !failing.has(node)));
  return left.size === 0 || left.size === inSync.size ? undefined : left;
}

/**
 * R4: may the set shrink to `left` now? Not while none of them is connected: one that is away may come back with a crash
 * mark, and then a replica that only refused a write is the one that has lost nothing. It costs no time, for every
 * acknowledgement waits for them anyway.
 */
export function mayShrinkTo(left: ReadonlySet<NodeName>, connected: (node: NodeName) => boolean): boolean {
  return [...left].some(connected);
}

/**
 * May a replica that is not wanted any more leave the set? Never the last one, nor one without which writes would wait.
 * Those on their way out, or away, don't count.
 */
export function mayRetire(
  node: NodeName,
  inSync: ReadonlySet<NodeName>,
  absent: ReadonlySet<NodeName>,
  least: number,
): boolean {
  if (!inSync.has(node)) return true;
  const left = [...inSync].filter((other) => other !== node && !absent.has(other));
  return left.length >= least;
}

/** How many others must be in sync and present for a replica to leave; one that is away holds nothing that helps now. */
export function mustStay(parameters: Pick<VolumeParameters, 'replicas' | 'minInSync'>, isAbsent: boolean): number {
  return Math.max(1, parameters.minInSync, isAbsent ? 1 : parameters.replicas);
}

/** R4: what the record shows of a CAS that was not plainly answered. */
export type CasVerdict =
  /** The epoch moved and is ours: one of our attempts came through. */
  | 'moved'
  /** The epoch stands: nothing came through yet; from another version, earlier attempts never will. */
  | 'unmoved'
  /** Another session, no session, or no record: this writer is fenced. */
  | 'fenced';

export function judgeRecord(seen: VolumeRecord | undefined, session: SessionId, epochBefore: number): CasVerdict {
  if (seen?.writer?.session !== session) return 'fenced';
  return seen.epoch === epochBefore ? 'unmoved' : 'moved';
}

/** R5: may `node` take the volume over now? */
export type TakeOverVerdict =
  | { readonly allowed: true }
  /** Another node is the writer: wait for its release, or, by `lease`, until its lease has expired. */
  | { readonly allowed: false; readonly holder: NodeName; readonly lease: boolean };

/**
 * `expired`: sessions of writers whose lease has expired. With `failover: manual` an attachment is not ended by that
 * alone: a person has to take it out of the record. A writer without a device is nobody's attachment.
 */
export function judgeTakeOver(record: VolumeRecord, node: NodeName, expired: ReadonlySet<string>): TakeOverVerdict {
  const { writer, parameters } = record;
  if (writer === null || writer.node === node) return { allowed: true };
  const lease = parameters.failover !== 'manual' || writer.maintenance === true;
  if (lease && expired.has(writer.session)) return { allowed: true };
  return { allowed: false, holder: writer.node, lease };
}

/** R10: which of the fenced replicas a take-over goes on with. */
export type UsableVerdict =
  | { readonly kind: 'usable'; readonly nodes: ReadonlySet<NodeName> }
  /** All that were reached have crashed: look longer for one without mark, then go on with these and tell of the loss. */
  | { readonly kind: 'all-crashed'; readonly nodes: ReadonlySet<NodeName> }
  | { readonly kind: 'none' };

export function judgeUsable(fenced: ReadonlyMap<NodeName, { readonly crashMark: boolean }>): UsableVerdict {
  if (fenced.size === 0) return { kind: 'none' };
  const clean = new Set([...fenced].filter(([, state]) => !state.crashMark).map(([node]) => node));
  return clean.size > 0 ? { kind: 'usable', nodes: clean } : { kind: 'all-crashed', nodes: new Set(fenced.keys()) };
}

/**
 * R9: must a new writer wait out the reads of older ones? Not where no writer was left that could serve any; nor where
 * the one before had itself served (so those before it were silent) and has stopped for certain.
 */
export function mustOutwait(facts: {
  readonly quiet: boolean;
  readonly formerHadServed: boolean;
  readonly formerHasStopped: boolean;
}): boolean {
  return !facts.quiet && !(facts.formerHadServed && facts.formerHasStopped);
}

/**
 * R6: from which replica a piece is copied, and to which, by their digests of it. What its checksums vouch for comes
 * before what nothing speaks against; what is bad is copied over. Undefined: it is good on none.
 */
export function judgePiece(
  digests: readonly PieceDigest[],
): { readonly source: number; readonly targets: readonly number[] } | undefined {
  const verified = digests.findIndex(({ state }) => state === 'verified');
  const source = verified >= 0 ? verified : digests.findIndex(({ state }) => state !== 'corrupt');
  if (source < 0) return undefined;
  const differs = (one: PieceDigest): boolean => one.state === 'corrupt' || one.digest !== digests[source]?.digest;
  return { source, targets: [...digests.keys()].filter((index) => differs(digests[index] ?? BAD)) };
}

const BAD: PieceDigest = { digest: '', state: 'corrupt' };

/** R7: must a region be copied to the target of a resync? `-1` is open, else the stamp of the last close. */
export function mustCopy(source: number, target: number): boolean {
  return source < 0 || target < 0 || source !== target;
}

/**
 * R7: does the record name the replica that was resynced? An entry that was taken out and put in again names another one,
 * which may be empty, though on the same node and disk.
 */
export function isSameReplica(named: ReplicaRecord, resynced: ReplicaRecord): boolean {
  return named.node === resynced.node && named.disk === resynced.disk && named.placement === resynced.placement;
}

/** R7: may a copied, flushed region take the source's entry before the target is in the set? */
export function mayTakeEntry(source: number, epoch: number, openedSince: boolean): boolean {
  return source >= 0 && source < epoch && !openedSince;
}
