import { assert } from '../base/assert.js';
import { crc32c } from '../base/crc32c.js';

/*
 * What the load of a drill writes: each block says which one it is, which write of it this was, and carries a checksum
 * over the whole; so a block that is old, torn, misplaced or another drill's is told from the right one.
 *
 *   | "HFDRILL1" | u32 drill | u32 block | u32 generation | u32 crc | 4072 bytes that follow from these |
 */
export const BLOCK_BYTES = 4096;

const MAGIC = [0x52444648, 0x314c4c49] as const;
const WORDS = BLOCK_BYTES / 4;
const CRC_WORD = 5;

export interface Stamp {
  /** Random, of one drill. */
  readonly drill: number;
  readonly block: number;
  /** From 1 on; the number of the write to this block. */
  readonly generation: number;
}

/** What a block holds: zeros, as where nothing was written; a stamp that checks; or anything else. */
export type BlockContent =
  { readonly kind: 'blank' } | { readonly kind: 'stamp'; readonly stamp: Stamp } | { readonly kind: 'damaged' };

/** Fills one block. */
export function writeStamp(into: Uint8Array, { drill, block, generation }: Stamp): void {
  const words = wordsOf(into);
  words.set([MAGIC[0], MAGIC[1], drill, block, generation, 0]);
  let value = (Math.imul(drill ^ block, 0x9e3779b1) ^ Math.imul(generation, 0x85ebca6b)) >>> 0 || 1;
  for (let at = CRC_WORD + 1; at < WORDS; at++) {
    value ^= value << 13;
    value ^= value >>> 17;
    value ^= value << 5;
    words[at] = value;
  }
  words[CRC_WORD] = crc32c(into);
}

export function readStamp(bytes: Uint8Array): BlockContent {
  const words = wordsOf(bytes);
  if (words.every((word) => word === 0)) return { kind: 'blank' };
  const [first, second, drill = 0, block = 0, generation = 0, crc = 0] = words;
  if (first !== MAGIC[0] || second !== MAGIC[1]) return { kind: 'damaged' };
  words[CRC_WORD] = 0;
  const right = crc32c(bytes) === crc;
  words[CRC_WORD] = crc;
  return right ? { kind: 'stamp', stamp: { drill, block, generation } } : { kind: 'damaged' };
}

function wordsOf(bytes: Uint8Array): Uint32Array {
  assert(bytes.length === BLOCK_BYTES && bytes.byteOffset % 4 === 0, 'a block is 4096 bytes of aligned memory');
  return new Uint32Array(bytes.buffer, bytes.byteOffset, WORDS);
}
