import type { HoldfastError } from '../base/errors.js';
import type { Stage } from '../nbd/stage.js';
import type { Range } from '../model/layout.js';
import type { Run } from './region-table.js';
import type { PieceDigest } from './replica.js';

/** What a replica tells at the start of a session, after it has been fenced. */
export interface ReplicaState {
  readonly capacityBytes: number;
  readonly regionBytes: number;
  /** The highest epoch it had seen before this session's. */
  readonly epochBefore: number;
  /** R10: it may have lost acknowledged writes that were not flushed. */
  readonly crashMark: boolean;
  /** The session that was fenced off by this one, as far as this process knows. */
  readonly sessionBefore: string;
  /** That session had told (`serving`) that it serves, so writers before it were silent. */
  readonly servedBefore: boolean;
}

/**
 * A writer's session with one replica: all the writer can ask of it, here or on a peer. Opening it is the fence (R5):
 * older sessions are ended and drained before it opens.
 *
 * Every verb fails with `fenced` once a newer session was admitted, and with `unavailable` when the connection is lost.
 */
export interface ReplicaSession extends Stage {
  readonly state: ReplicaState;
  /** Resolves, with the reason, when the session has ended, whoever ended it. */
  readonly lost: Promise<HoldfastError>;
  /** Ends it at once. Requests under way may still be carried out by the replica. */
  end(): void;
  /** The region table as runs, from region 0 to the last. */
  table(): Promise<Run[]>;
  /** R2: sets regions closed with `stamp`. The writer has drained and flushed them. */
  closeRegions(regions: readonly number[], stamp: number): Promise<void>;
  /** R7: a copied, flushed region takes the source's entry. */
  takeEntries(entries: readonly { region: number; stamp: number }[]): Promise<void>;
  /** Takes the crash mark away that this session was told of. */
  clearMark(): Promise<void>;
  /** Digests of the range, one for each `blockBytes`, and what the replica's checksums say of each. */
  digests(offset: number, length: number, blockBytes: number): Promise<PieceDigest[]>;
  /** Ranges known to be bad, the first of many. A write of them mends them. */
  damage(): Promise<Range[]>;
  /** Takes on a larger capacity; a smaller one does nothing. */
  grow(capacityBytes: number): Promise<void>;
  /**
   * The replica is the target of a resync until the session serves or ends. False: as many as its data path takes at
   * once are under way there.
   */
  beginResync(): Promise<boolean>;
  /** The writer serves reads from now on (R9). */
  serving(): Promise<void>;
}

/** A session asks for admission with what stands in the volume's record. */
export interface Admission {
  readonly epoch: number;
  readonly session: string;
  /** The replica's disk. A node may have an older replica of the volume on another one, which must not be taken for it. */
  readonly disk: string;
}

/** The name of a replica's export for a session. The plain volume id opens it for reading only. */
export function sessionExportName(volume: string, { epoch, session, disk }: Admission): string {
  return `${volume}/${epoch}/${session}/${disk}`;
}

/** The reverse of sessionExportName; `admission` is undefined for a plain volume id. Undefined: neither. */
export function parseExportName(name: string): { volume: string; admission: Admission | undefined } | undefined {
  const match = /^(vol-[0-9a-f]{32})(?:\/([1-9][0-9]{0,14})\/([0-9a-f]{32})\/([A-Za-z0-9-]{1,64}))?$/.exec(name);
  if (!match) return undefined;
  const [, volume = '', epoch, session, disk] = match;
  const isPlain = epoch === undefined || session === undefined || disk === undefined;
  return { volume, admission: isPlain ? undefined : { epoch: Number(epoch), session, disk } };
}
