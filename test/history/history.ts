import { checkBlock } from './check-block.js';
import { Timeline } from './timeline.js';

export { BLOCK_BYTES, CORRUPT, decodeBlock, fillBlocks, SECTORS } from './contents.js';

/*
 * What clients asked of a volume and what they were told, and whether a correct volume can have answered so.
 *
 * Nothing here knows how a volume is made. To a client it is a row of blocks, each of 8 sectors, and every sector is a
 * register of its own that holds zero at first:
 *   - a write that was acknowledged took effect at one moment between its start and its end, each sector at its own;
 *   - one that failed or was never answered may take effect at any time until the next attachment serves, or never;
 *   - a read returned what the sectors held at some moment between its start and its end;
 *   - where every in-sync replica had crashed, a sector may go back to what was not overwritten by a durable write.
 * check-block.ts says how that is decided.
 */

/** A client's operation on blocks of 4096 bytes. Times are any one increasing clock of the observer. */
export interface Operation {
  readonly kind: 'write' | 'trim' | 'read' | 'flush';
  /** Index into History.attachments. */
  readonly attachment: number;
  /** 0 for a flush. */
  readonly firstBlock: number;
  /** 0 for a flush. */
  readonly blockCount: number;
  /** Of a write: a number > 0 that no other write of the history has; every sector of every block of it holds it. */
  readonly value: number;
  readonly fua: boolean;
  readonly startedAt: number;
  /** Infinity: never answered. */
  endedAt: number;
  outcome: 'done' | 'failed' | 'pending';
  /**
   * Of a read that is done: for each block the value that all 8 sectors of 512 bytes hold, or the 8 values where they
   * differ. CORRUPT: bytes that no write can have made.
   */
  values: (number | readonly number[])[];
}

/** A volume served as a block device, in the order of time. */
export interface Attachment {
  /** When its first operation could be sent. */
  readonly servesFrom: number;
  /** Unflushed writes may have been lost just before it began: every in-sync replica that was reached had crashed. */
  readonly lossAllowed: boolean;
}

export interface History {
  readonly attachments: Attachment[];
  readonly operations: Operation[];
}

/**
 * What the history breaks.
 * I1: a flushed write is lost. I2: an acknowledged one. I3: a write of an older attachment took effect too late, or was
 * acknowledged too late. I4: a read returned what was overwritten, or flipped back. rot: bytes that no write made.
 */
export interface Violation {
  readonly rule: 'I1' | 'I2' | 'I3' | 'I4' | 'rot';
  readonly block: number;
  /** One line: which operation read what and when, and which operations contradict it. */
  readonly text: string;
}

/** All blocks whose history is not legal, with one violation for each; none: the history is legal. */
export function checkHistory(history: History): Violation[] {
  const timeline = new Timeline(history);
  const violations: Violation[] = [];
  for (const [block, operations] of byBlock(history.operations)) {
    const violation = checkBlock(timeline, block, operations);
    if (violation !== undefined) violations.push(violation);
  }
  return violations;
}

function byBlock(operations: readonly Operation[]): Map<number, Operation[]> {
  const blocks = new Map<number, Operation[]>();
  for (const operation of operations) {
    // What did not return anything says nothing.
    if (operation.kind === 'read' && operation.outcome !== 'done') continue;
    for (let i = 0; i < operation.blockCount; i++) {
      const block = operation.firstBlock + i;
      const found = blocks.get(block);
      if (found === undefined) blocks.set(block, [operation]);
      else found.push(operation);
    }
  }
  return blocks;
}
