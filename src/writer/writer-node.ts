import { bounded } from '../base/bounded.js';
import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { type Meters, NO_METERS } from '../base/meters.js';
import type { Io } from '../io/io.js';
import { decided } from '../model/decisions.js';
import type { NodeName, SessionId, VolumeId } from '../model/ids.js';
import type { Layout } from '../model/layout.js';
import type { VolumeRecord } from '../model/records.js';
import type { Admission, ReplicaSession } from '../replica/session.js';
import type { NoteDecision, VolumeRecords } from './membership.js';
import type { ResyncBounds } from './resync-bounds.js';
import type { Timing } from './timing.js';

/** What a take-over and its writer ask of the node around them. */
export interface WriterNode {
  readonly io: Io;
  readonly log: Log;
  readonly timing: Timing;
  readonly layout: Layout;
  readonly name: NodeName;
  readonly records: VolumeRecords;
  readonly meters?: Meters;
  /** ISO 8601; for people who read the decisions in the record, and compared with nothing. */
  readonly wallClock: () => string;
  /** Shared by all writers of the data path. */
  readonly resyncBounds: ResyncBounds;
  /** Watches the node's lease for at most `timeoutMs`; true: it has expired. */
  leaseExpired(node: NodeName, timeoutMs: number): Promise<boolean>;
  /** Asks the node whose writer has no device to give the volume up; it is seen in the record whether it did. */
  askToYield(node: NodeName, volume: VolumeId): Promise<void>;
  /** Opens a session with the replica on `node` (R5 on the replica's side). Errors: `unavailable`, `fenced`, `not-found`. */
  connect(node: NodeName, volume: VolumeId, admission: Admission): Promise<ReplicaSession>;
}

/** What the node counts with. */
export function metersOf(node: WriterNode): Meters {
  return node.meters ?? NO_METERS;
}

/** Puts decisions of this node into records. */
export function noteOf({ name, wallClock }: Pick<WriterNode, 'name' | 'wallClock'>): NoteDecision {
  return (record, what) => decided(record, { at: wallClock(), by: name, what });
}

/** What a session of the record's writer asks for on `node`. `not-found`: the record names no replica there. */
export function admissionTo({ id, epoch, replicas }: VolumeRecord, node: NodeName, session: SessionId): Admission {
  const named = replicas.find((replica) => replica.node === node);
  if (!named) throw new HoldfastError('not-found', `the record of volume ${id} names no replica on node ${node}`);
  return { epoch, session, disk: named.disk };
}

/** A step of a session that no member watches: without an answer for `answerMs` the session ends (`unavailable`). */
export async function inTime<T>(
  node: WriterNode,
  name: NodeName,
  session: ReplicaSession,
  step: () => Promise<T>,
): Promise<T> {
  try {
    return await bounded(node.io.clock, node.timing.answerMs, name, step());
  } catch (error) {
    session.end();
    throw error;
  }
}
