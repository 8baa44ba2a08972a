import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeLedger, encodeLedger, Ledger } from '../../../src/drill/ledger.js';
import { BLOCK_BYTES, readStamp, writeStamp } from '../../../src/drill/stamp.js';

const DRILL = 77;

function stamped(block: number, generation: number, drill = DRILL): Uint8Array {
  const bytes = new Uint8Array(BLOCK_BYTES);
  writeStamp(bytes, { drill, block, generation });
  return bytes;
}

const word = fc.integer({ min: 1, max: 2 ** 32 - 1 });

describe('a stamp', () => {
  it('tells which block and which write it is', () => {
    fc.assert(
      fc.property(word, word, word, (drill, block, generation) => {
        expect(readStamp(stamped(block, generation, drill))).toEqual({
          kind: 'stamp',
          stamp: { drill, block, generation },
        });
      }),
    );
  });

  it('is damaged by the change of any byte', () => {
    fc.assert(
      fc.property(fc.nat(BLOCK_BYTES - 1), fc.integer({ min: 1, max: 255 }), (at, change) => {
        const bytes = stamped(3, 4);
        bytes[at] = (bytes[at] ?? 0) ^ change;
        expect(readStamp(bytes).kind).toBe('damaged');
      }),
    );
  });

  it('is damaged where half of it is that of another write', () => {
    const torn = stamped(3, 5);
    torn.set(stamped(3, 4).subarray(2048), 2048);
    expect(readStamp(torn).kind).toBe('damaged');
  });

  it('is told from a block that nobody wrote', () => {
    expect(readStamp(new Uint8Array(BLOCK_BYTES))).toEqual({ kind: 'blank' });
    expect(readStamp(new Uint8Array(BLOCK_BYTES).fill(1)).kind).toBe('damaged');
  });
});

describe('a ledger', () => {
  /** Block 10 was written three times, the third write was never answered; block 11 never. */
  function ledger(): Ledger {
    const made = new Ledger(10, 2);
    for (let write = 1; write <= 2; write++) made.acknowledge(10, made.begin(10));
    made.begin(10);
    return made;
  }

  it('takes the last acknowledged write and any begun after it', () => {
    for (const generation of [2, 3]) expect(ledger().judge(DRILL, 10, stamped(10, generation))).toBeUndefined();
    expect(ledger().judge(DRILL, 11, new Uint8Array(BLOCK_BYTES))).toBeUndefined();
  });

  it('finds an acknowledged write lost where an older one, or nothing, is there', () => {
    expect(ledger().judge(DRILL, 10, stamped(10, 1))).toMatchObject({ kind: 'lost', block: 10 });
    expect(ledger().judge(DRILL, 10, new Uint8Array(BLOCK_BYTES))).toMatchObject({ kind: 'lost' });
  });

  it('finds damage where something is there that was never written there', () => {
    expect(ledger().judge(DRILL, 10, stamped(10, 4))).toMatchObject({ kind: 'damaged' });
    expect(ledger().judge(DRILL, 10, stamped(11, 2))).toMatchObject({ kind: 'damaged' });
    expect(ledger().judge(DRILL, 10, stamped(10, 2, DRILL + 1))).toMatchObject({ kind: 'damaged' });
    expect(ledger().judge(DRILL, 11, stamped(11, 1))).toMatchObject({ kind: 'damaged' });
    expect(ledger().judge(DRILL, 10, new Uint8Array(BLOCK_BYTES).fill(9))).toMatchObject({ kind: 'damaged' });
  });

  it('counts acknowledged writes and the blocks they lie in', () => {
    expect([ledger().writes, ledger().blocksWritten]).toEqual([2, 1]);
  });

  it('survives the way to another process', () => {
    expect(decodeLedger(encodeLedger(ledger()))).toEqual(ledger());
  });

  it('takes no acknowledgement of a write that was not begun', () => {
    expect(() => ledger().acknowledge(11, 1)).toThrow();
    expect(() => ledger().begin(12)).toThrow();
  });
});
