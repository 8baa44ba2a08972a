/*
 * What a block holds, so that a reader can tell which write made it:
 *
 *   block of 4096 bytes = 8 sectors of 512, each of 128 words:
 *   | mark | value (2 words) | block (2 words) | sector | 122 words that follow from these |
 *
 * Bytes that lie in another place than they were written to, are cut or have changed, decode to CORRUPT.
 */

export const BLOCK_BYTES = 4096;
export const SECTOR_BYTES = 512;
export const SECTORS = BLOCK_BYTES / SECTOR_BYTES;
/** What a sector decodes to whose bytes no write can have made. */
export const CORRUPT = -1;

const SECTOR_WORDS = SECTOR_BYTES / 4;
const HEAD_WORDS = 6;
const MARK = 0x484f4c44;
const TWO_32 = 0x1_0000_0000;
/** Odd, so that no two words of a sector are equal. */
const STEP = 0x9e3779b1;

/** Fills whole blocks, from block `firstBlock` on, with the content of the write of `value` (a whole number > 0). */
export function fillBlocks(into: Uint8Array, value: number, firstBlock: number): void {
  if (into.length % BLOCK_BYTES !== 0) throw new RangeError(`${into.length} bytes are no whole blocks`);
  if (!Number.isSafeInteger(value) || value <= 0) throw new RangeError(`${value} is no value of a write`);
  const words = wordsOf(into);
  for (let at = 0; at < words.length; at += SECTOR_WORDS) {
    const sector = (at / SECTOR_WORDS) % SECTORS;
    fillSector(words, at, value, firstBlock + Math.floor(at / SECTOR_WORDS / SECTORS), sector);
  }
  if (words.buffer !== into.buffer) into.set(new Uint8Array(words.buffer));
}

/**
 * The value that a block's 4096 bytes hold, or the values of its 8 sectors where they differ. 0: all zeros;
 * CORRUPT: no write to this block can have made the bytes.
 */
export function decodeBlock(bytes: Uint8Array, block: number): number | readonly number[] {
  if (bytes.length !== BLOCK_BYTES) throw new RangeError(`a block has ${BLOCK_BYTES} bytes, not ${bytes.length}`);
  const words = wordsOf(bytes);
  const first = decodeSector(words, 0, block);
  let values: number[] | undefined;
  for (let sector = 1; sector < SECTORS; sector++) {
    const value = decodeSector(words, sector, block);
    if (values === undefined && value !== first) values = Array.from({ length: sector }, () => first);
    values?.push(value);
  }
  return values ?? first;
}

function fillSector(words: Uint32Array, at: number, value: number, block: number, sector: number): void {
  words[at] = MARK;
  words[at + 1] = value % TWO_32;
  words[at + 2] = value / TWO_32;
  words[at + 3] = block % TWO_32;
  words[at + 4] = block / TWO_32;
  words[at + 5] = sector;
  let word = seedOf(value, block, sector);
  for (let i = HEAD_WORDS; i < SECTOR_WORDS; i++) {
    words[at + i] = word;
    word = (word + STEP) | 0;
  }
}

function decodeSector(words: Uint32Array, sector: number, block: number): number {
  const at = sector * SECTOR_WORDS;
  if (words[at] === 0) return isZero(words, at) ? 0 : CORRUPT;
  const value = wide(words, at + 1);
  const placed = wide(words, at + 3) === block && words[at + 5] === sector;
  if (words[at] !== MARK || !placed || value === 0) return CORRUPT;
  let word = seedOf(value, block, sector);
  for (let i = HEAD_WORDS; i < SECTOR_WORDS; i++) {
    if (words[at + i] !== word >>> 0) return CORRUPT;
    word = (word + STEP) | 0;
  }
  return value;
}

function isZero(words: Uint32Array, at: number): boolean {
  for (let i = at; i < at + SECTOR_WORDS; i++) if (words[i] !== 0) return false;
  return true;
}

/** All bits of value, block and sector count. */
function seedOf(value: number, block: number, sector: number): number {
  let seed = sector + 1;
  for (const part of [value, value / TWO_32, block, block / TWO_32]) seed = Math.imul(seed ^ part, 0x85ebca6b) + STEP;
  return seed ^ (seed >>> 15);
}

function wide(words: Uint32Array, at: number): number {
  return (words[at] ?? 0) + (words[at + 1] ?? 0) * TWO_32;
}

/** The bytes as words: the same memory where it is aligned, else a copy. */
function wordsOf(bytes: Uint8Array): Uint32Array {
  if (bytes.byteOffset % 4 === 0) return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  return new Uint32Array(bytes.slice().buffer);
}
