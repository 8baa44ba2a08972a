import { CORRUPT, SECTORS } from './contents.js';
import type { Operation, Violation } from './history.js';
import { Register } from './register.js';
import type { Timeline } from './timeline.js';

/**
 * Checks all operations on one block. Where every read found the same value in all sectors, all its registers have the
 * same history, and one check will do; else one for each sector that differs from the one before.
 */
export function checkBlock(timeline: Timeline, block: number, operations: readonly Operation[]): Violation | undefined {
  const torn = operations.map((operation) => valuesOf(operation, block)).filter((values) => typeof values === 'object');
  if (torn.length === 0) return new Register(timeline, block, undefined, operations).check();
  for (let sector = 0; sector < SECTORS; sector++) {
    if (sector > 0 && torn.every((values) => values[sector] === values[sector - 1])) continue;
    const violation = new Register(timeline, block, sector, operations).check();
    if (violation !== undefined) return violation;
  }
  return undefined;
}

/** What a read returned of one sector of a block. */
export function valueOf(read: Operation, block: number, sector: number): number {
  const values = valuesOf(read, block);
  return typeof values === 'number' ? values : (values[sector] ?? CORRUPT);
}

function valuesOf(operation: Operation, block: number): number | readonly number[] {
  return operation.values[block - operation.firstBlock] ?? CORRUPT;
}
