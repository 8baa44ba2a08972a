import type { DiskRecord } from '../model/records.js';
import type { LeaseState } from '../store/lease-standing.js';

/**
 * How a replica that a record names stands, as far as the controller can know. It says nothing of the in-sync set, which
 * is the writer's business: a replica that is present may be far behind, and one that is lost may be in sync by record.
 */
export type Standing =
  | { readonly kind: 'present' }
  /** The lease of its node was not seen of late: nothing is decided on it. */
  | { readonly kind: 'unsure'; readonly reason: string }
  /** Its node does not renew its lease, for less than the grace period: it is waited for. */
  | { readonly kind: 'away'; readonly reason: string; readonly forMs: number }
  /** Not waited for any more. `mayReturn`: its node may come back with it; otherwise it is gone for good. */
  | { readonly kind: 'lost'; readonly reason: string; readonly mayReturn: boolean };

/** What is known of the node and the disk that a record names for a replica. */
export interface ReplicaFacts {
  readonly node: string;
  readonly disk: string;
  /** The node has a record. */
  readonly registered: boolean;
  readonly lease: LeaseState;
  /** How long its lease has been seen expired by this process. */
  readonly expiredMs: number;
  /** The record of the disk, wherever the disk is. */
  readonly diskRecord: Pick<DiskRecord, 'node' | 'state' | 'reason'> | undefined;
  /** How long this process has seen the disk failed, or gone from its node, while the node was live. */
  readonly diskWrongMs: number;
  /** R12: its node, asked more than once, does not find it on its disks. */
  readonly notFound: boolean;
}

export interface Patience {
  /** A node whose lease has been expired for so long is not waited for. */
  readonly graceMs: number;
  /** A disk that has been failed, or gone from its live node, for so long is not waited for. */
  readonly diskGraceMs: number;
}

export function standingOf(facts: ReplicaFacts, patience: Patience): Standing {
  const { node, disk } = facts;
  if (!facts.registered) return lost(`node ${node} is no longer in the cluster`, false);
  if (facts.lease === 'expired') {
    const reason = `node ${node} does not renew its lease`;
    if (facts.expiredMs >= patience.graceMs) return lost(reason, true);
    return { kind: 'away', reason, forMs: facts.expiredMs };
  }
  if (facts.lease === 'unknown') return { kind: 'unsure', reason: `the lease of node ${node} was not seen of late` };
  const wrong = whatIsWrong(facts.diskRecord, node);
  if (wrong !== undefined && facts.diskWrongMs >= patience.diskGraceMs) {
    return lost(`disk ${disk} of node ${node} ${wrong}`, false);
  }
  // A node can't find what lies on a disk that it has not open: only for one that is ready that means anything (R12).
  if (wrong !== undefined) return { kind: 'unsure', reason: `disk ${disk} of node ${node} ${wrong}` };
  if (facts.notFound) return lost(`node ${node} does not find the replica on its disk ${disk}`, false);
  return { kind: 'present' };
}

/** Why the disk can't hold a replica of this node; undefined: nothing is known against it. */
export function whatIsWrong(disk: ReplicaFacts['diskRecord'], node: string): string | undefined {
  if (disk === undefined) return 'is gone';
  if (disk.node !== node) return `is with node ${disk.node} now`;
  if (disk.state === 'ready') return undefined;
  return `has failed${disk.reason === '' ? '' : ` (${disk.reason})`}`;
}

function lost(reason: string, mayReturn: boolean): Standing {
  return { kind: 'lost', reason, mayReturn };
}
