import { describe, expect, it } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';
import { BLOCK_BYTES, BlockChecksums, UNKNOWN } from '../../../src/replica/block-checksums.js';

const io = createNodeIo();

describe('the checksum of a block', () => {
  it('is the CRC-32 of zlib', () => {
    expect(io.checksum(new TextEncoder().encode('123456789'))).toBe(0xcbf43926);
  });

  it('is never the one that stands for unknown', () => {
    const none = new BlockChecksums(() => 0);
    expect(none.of(new Uint8Array(BLOCK_BYTES))).not.toBe(UNKNOWN);
  });
});
