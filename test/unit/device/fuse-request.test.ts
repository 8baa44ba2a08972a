import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { IN_HEADER_BYTES, OPCODE, parseFuseRequest } from '../../../src/device/fuse-request.js';
import { message, u32, u64 } from './fuse-message.js';

describe('parsing what the kernel asks', () => {
  test('INIT as a current kernel sends it', () => {
    const bytes = Buffer.from(
      `680000001a0000000200000000000000${'00'.repeat(24)}070000002d00000000000200fbffff73fd050000${'00'.repeat(44)}`,
      'hex',
    );
    expect(parseFuseRequest(bytes)).toEqual({
      unique: 2n,
      node: 0,
      operation: { kind: 'init', major: 7, minor: 45, flags: 0x73fffffb },
    });
  });

  test('a WRITE carries its data', () => {
    const data = Buffer.from('sixteen bytes...');
    const body = [u64(0), u64(8192), u32(data.length), u32(0), u64(0), u32(0), u32(0), data];
    const parsed = parseFuseRequest(message(OPCODE.write, 2, ...body));
    expect(parsed?.operation).toEqual({ kind: 'write', offset: 8192, data });
  });

  test('a WRITE whose length is not that of its data is malformed', () => {
    const body = [u64(0), u64(0), u32(17), u32(0), u64(0), u32(0), u32(0), Buffer.alloc(16)];
    expect(parseFuseRequest(message(OPCODE.write, 2, ...body))?.operation.kind).toBe('malformed');
  });

  test('offsets beyond what a number holds exactly are malformed', () => {
    const body = [u64(0), u64(2n ** 63n), u32(4096), u32(0), u64(0), u32(0), u32(0)];
    expect(parseFuseRequest(message(OPCODE.read, 2, ...body))?.operation.kind).toBe('malformed');
  });

  test('a name without an end is malformed', () => {
    expect(parseFuseRequest(message(OPCODE.lookup, 1, Buffer.from('device')))?.operation.kind).toBe('malformed');
    expect(parseFuseRequest(message(OPCODE.lookup, 1, Buffer.from('device\0')))?.operation).toEqual({
      kind: 'lookup',
      name: 'device',
    });
  });

  test('arguments that are cut off are malformed, for every operation', () => {
    for (const opcode of [OPCODE.init, OPCODE.open, OPCODE.read, OPCODE.readdir, OPCODE.write, OPCODE.fallocate]) {
      expect(parseFuseRequest(message(opcode, 2, Buffer.alloc(3)))?.operation).toEqual({ kind: 'malformed', opcode });
    }
  });

  test('no bytes crash the parser', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const parsed = parseFuseRequest(bytes);
        if (bytes.length < IN_HEADER_BYTES) expect(parsed).toBeUndefined();
      }),
    );
  });

  test('no arguments of a well-framed message crash the parser', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 60 }), fc.uint8Array({ maxLength: 120 }), (opcode, body) => {
        const parsed = parseFuseRequest(message(opcode, 2, Buffer.from(body)));
        expect(parsed?.unique).toBe(7n);
        const { operation } = parsed ?? { operation: { kind: 'unknown' } };
        if (operation.kind === 'write') expect(body.length).toBeGreaterThanOrEqual(40);
      }),
      { numRuns: 2_000 },
    );
  });
});
