import { describe, expect, it } from 'vitest';
import { BLOCK_BYTES, CORRUPT, decodeBlock, fillBlocks, SECTORS } from '../../history/history.js';

function filled(value: number, firstBlock: number, count = 1): Uint8Array {
  const bytes = new Uint8Array(count * BLOCK_BYTES);
  fillBlocks(bytes, value, firstBlock);
  return bytes;
}

describe('what a block holds', () => {
  it('tells which write made it, at its own place only', () => {
    const value = 2 ** 40 + 5;
    const bytes = filled(value, 1000, 2);
    expect(decodeBlock(bytes.subarray(0, BLOCK_BYTES), 1000)).toBe(value);
    expect(decodeBlock(bytes.subarray(BLOCK_BYTES), 1001)).toBe(value);
    expect(decodeBlock(bytes.subarray(BLOCK_BYTES), 1000)).toBe(CORRUPT);
  });

  it('tells each sector of a torn block', () => {
    const bytes = filled(1, 7);
    bytes.set(filled(2, 7).subarray(0, 1024));
    bytes.fill(0, 3584);
    expect(decodeBlock(bytes, 7)).toEqual([2, 2, 1, 1, 1, 1, 1, 0]);
  });

  it('is corrupt where a sector lies in the place of another', () => {
    const bytes = filled(1, 7);
    bytes.copyWithin(512, 0, 512);
    expect(decodeBlock(bytes, 7)).toEqual([1, CORRUPT, 1, 1, 1, 1, 1, 1]);
  });

  it('is zero only where all bytes are', () => {
    const bytes = new Uint8Array(BLOCK_BYTES);
    expect(decodeBlock(bytes, 3)).toBe(0);
    bytes[BLOCK_BYTES - 1] = 1;
    expect(decodeBlock(bytes, 3)).toEqual([...Array.from({ length: SECTORS - 1 }, () => 0), CORRUPT]);
  });

  it('is corrupt after any change of one byte', () => {
    const whole = filled(99, 5);
    for (let at = 0; at < 512; at++) {
      const bytes = whole.slice();
      bytes[at] = (bytes[at] ?? 0) ^ 0x10;
      expect(decodeBlock(bytes, 5)).toEqual([CORRUPT, 99, 99, 99, 99, 99, 99, 99]);
    }
  });

  it('may lie at any address in memory', () => {
    const whole = new Uint8Array(BLOCK_BYTES + 1);
    fillBlocks(whole.subarray(1), 12, 8);
    expect(whole.subarray(1)).toEqual(filled(12, 8));
    expect(decodeBlock(whole.subarray(1), 8)).toBe(12);
  });
});
