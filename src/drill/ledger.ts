import { assert } from '../base/assert.js';
import { readStamp, type Stamp } from './stamp.js';

/**
 * What one load knows of its area, a row of blocks: for each block the latest generation that was acknowledged, and the
 * latest that was begun. A block must hold one of these, or one between them; a block is written by one write at a time.
 */
export class Ledger {
  readonly acknowledged: Uint32Array;
  readonly begun: Uint32Array;

  constructor(
    /** The area's first block. */
    readonly first: number,
    readonly blocks: number,
  ) {
    this.acknowledged = new Uint32Array(blocks);
    this.begun = new Uint32Array(blocks);
  }

  /** The next generation of a block, counted as begun. */
  begin(block: number): number {
    const generation = this.#at(this.begun, block) + 1;
    this.begun[block - this.first] = generation;
    return generation;
  }

  acknowledge(block: number, generation: number): void {
    assert(generation <= this.#at(this.begun, block), 'a write is begun before it is acknowledged');
    this.acknowledged[block - this.first] = generation;
  }

  /** Acknowledged writes, those of earlier generations counted too. */
  get writes(): number {
    return this.acknowledged.reduce((sum, generation) => sum + generation, 0);
  }

  /** Blocks that have to hold an acknowledged write. */
  get blocksWritten(): number {
    return this.acknowledged.reduce((count, generation) => count + Number(generation > 0), 0);
  }

  /** What the block holds, judged: right, or why not. */
  judge(drill: number, block: number, content: Uint8Array): Fault | undefined {
    const acknowledged = this.#at(this.acknowledged, block);
    const begun = this.#at(this.begun, block);
    const found = readStamp(content);
    if (found.kind === 'damaged') return { block, kind: 'damaged', told: 'holds what nobody wrote' };
    const generation = found.kind === 'blank' ? 0 : found.stamp.generation;
    if (found.kind === 'stamp' && !isOf(found.stamp, drill, block)) {
      return { block, kind: 'damaged', told: `holds block ${found.stamp.block} of drill ${found.stamp.drill}` };
    }
    if (generation > begun) return { block, kind: 'damaged', told: `holds write ${generation}, begun were ${begun}` };
    if (generation >= acknowledged) return undefined;
    return { block, kind: 'lost', told: `holds write ${generation}, acknowledged was ${acknowledged}` };
  }

  #at(row: Uint32Array, block: number): number {
    const value = row[block - this.first];
    assert(value !== undefined, 'a block lies in the area');
    return value;
  }
}

export interface Fault {
  readonly block: number;
  /** lost: an acknowledged write is not there. damaged: there is something that was never written there. */
  readonly kind: 'lost' | 'damaged';
  readonly told: string;
}

/** A ledger as text, for another process. */
export function encodeLedger({ first, blocks, acknowledged, begun }: Ledger): string {
  const text = (row: Uint32Array): string => Buffer.from(row.buffer, row.byteOffset, row.byteLength).toString('base64');
  return JSON.stringify({ first, blocks, acknowledged: text(acknowledged), begun: text(begun) });
}

export function decodeLedger(text: string): Ledger {
  const told = JSON.parse(text) as { first: number; blocks: number; acknowledged: string; begun: string };
  const ledger = new Ledger(told.first, told.blocks);
  for (const row of ['acknowledged', 'begun'] as const) {
    const bytes = new Uint8Array(Buffer.from(told[row], 'base64'));
    ledger[row].set(new Uint32Array(bytes.buffer, 0, told.blocks));
  }
  return ledger;
}

function isOf(stamp: Stamp, drill: number, block: number): boolean {
  return stamp.drill === drill && stamp.block === block;
}
