import { describe, expect, test } from 'vitest';
import { ERRNO, actionOf, type FuseFile } from '../../../src/device/fuse-file.js';
import { directoryBody, replyHeader } from '../../../src/device/fuse-reply.js';
import type { FuseOperation } from '../../../src/device/fuse-request.js';

const MEBIBYTE = 1024 * 1024;
const file: FuseFile = {
  name: 'device',
  sizeBytes: MEBIBYTE,
  readOnly: false,
  limits: { maxTransferBytes: 256 * 1024, maxBackground: 512 },
};
const PUNCH_HOLE = 0x02;
const ZERO_RANGE = 0x10;
const KEEP_SIZE = 0x01;

function act(operation: FuseOperation, node = 2, on: FuseFile = file): ReturnType<typeof actionOf> {
  return actionOf({ unique: 1n, node, operation }, on);
}

function refusal(errno: number): object {
  return { kind: 'reply', errno };
}

describe('the one file of a device', () => {
  test('is found by its name in the root alone', () => {
    expect(act({ kind: 'lookup', name: 'device' }, 1)).toMatchObject({ errno: 0 });
    expect(act({ kind: 'lookup', name: 'other' }, 1)).toMatchObject(refusal(ERRNO.ENOENT));
    expect(act({ kind: 'lookup', name: 'device' }, 2)).toMatchObject(refusal(ERRNO.ENOENT));
  });

  test('tells its size, for the kernel to remember', () => {
    const action = act({ kind: 'getattr' });
    const body = Buffer.from(action.kind === 'reply' ? action.body : []);
    expect(body.length).toBe(104);
    expect(body.readBigUInt64LE(0)).toBe(86_400n);
    expect(body.readBigUInt64LE(16 + 8)).toBe(BigInt(MEBIBYTE));
  });

  test('is opened for direct I/O', () => {
    const action = act({ kind: 'open', flags: 2 });
    expect(action.kind === 'reply' && Buffer.from(action.body).readUInt32LE(8) & 1).toBe(1);
  });

  test('reads end at its end', () => {
    expect(act({ kind: 'read', offset: MEBIBYTE - 4096, length: 8192 })).toEqual({
      kind: 'read',
      offset: MEBIBYTE - 4096,
      length: 4096,
    });
    expect(act({ kind: 'read', offset: MEBIBYTE, length: 4096 })).toMatchObject({ kind: 'reply', errno: 0 });
    expect(act({ kind: 'read', offset: 0, length: MEBIBYTE })).toMatchObject(refusal(ERRNO.EINVAL));
  });

  test('takes whole pages within its size only', () => {
    const data = new Uint8Array(4096);
    expect(act({ kind: 'write', offset: 4096, data })).toMatchObject({ kind: 'write', offset: 4096 });
    expect(act({ kind: 'write', offset: 512, data })).toMatchObject(refusal(ERRNO.EINVAL));
    expect(act({ kind: 'write', offset: 0, data: data.subarray(1) })).toMatchObject(refusal(ERRNO.EINVAL));
    expect(act({ kind: 'write', offset: MEBIBYTE, data })).toMatchObject(refusal(ERRNO.ENOSPC));
    expect(act({ kind: 'read', offset: 1, length: 4096 })).toMatchObject(refusal(ERRNO.EINVAL));
  });

  test('a punched hole is a trim, a zeroed range a zero, anything else is refused', () => {
    const range = { kind: 'fallocate', offset: 0, length: 8192 } as const;
    expect(act({ ...range, mode: PUNCH_HOLE | KEEP_SIZE })).toEqual({ kind: 'trim', offset: 0, length: 8192 });
    expect(act({ ...range, mode: ZERO_RANGE })).toEqual({ kind: 'zero', offset: 0, length: 8192 });
    expect(act({ ...range, mode: 0 })).toMatchObject(refusal(ERRNO.EOPNOTSUPP));
    expect(act({ ...range, mode: 0x40 })).toMatchObject(refusal(ERRNO.EOPNOTSUPP));
    expect(act({ ...range, length: 0, mode: PUNCH_HOLE })).toMatchObject(refusal(ERRNO.EINVAL));
    expect(act({ ...range, length: 2 * MEBIBYTE, mode: PUNCH_HOLE })).toMatchObject(refusal(ERRNO.EINVAL));
  });

  test('nothing changes one that is read-only', () => {
    const readOnly = { ...file, readOnly: true };
    const erofs = refusal(ERRNO.EROFS);
    expect(act({ kind: 'open', flags: 2 }, 2, readOnly)).toMatchObject(erofs);
    expect(act({ kind: 'open', flags: 0 }, 2, readOnly)).toMatchObject({ errno: 0 });
    expect(act({ kind: 'write', offset: 0, data: new Uint8Array(4096) }, 2, readOnly)).toMatchObject(erofs);
    expect(act({ kind: 'fallocate', offset: 0, length: 4096, mode: PUNCH_HOLE }, 2, readOnly)).toMatchObject(erofs);
  });

  test('fsync flushes; a close waits for nothing', () => {
    expect(act({ kind: 'fsync' })).toEqual({ kind: 'flush' });
    expect(act({ kind: 'flush' })).toMatchObject(refusal(ERRNO.ENOSYS));
  });

  test('forgetting is not answered, the unknown is refused', () => {
    expect(act({ kind: 'forget' })).toEqual({ kind: 'silent' });
    expect(act({ kind: 'unknown', opcode: 99 })).toMatchObject(refusal(ERRNO.ENOSYS));
    expect(act({ kind: 'malformed', opcode: 15 })).toMatchObject(refusal(ERRNO.EINVAL));
  });
});

describe('the greeting', () => {
  const kernel = { kind: 'init', major: 7, minor: 45, flags: 0x73fffffb } as const;

  test('asks only for what the kernel knows', () => {
    const known = act(kernel, 0);
    const unknown = act({ ...kernel, flags: 0 }, 0);
    const flags = (action: typeof known): number =>
      action.kind === 'reply' ? Buffer.from(action.body).readUInt32LE(12) : -1;
    expect(flags(known) & (1 << 15)).not.toBe(0);
    expect(flags(unknown)).toBe(0);
  });

  test('bounds a transfer', () => {
    const action = act(kernel, 0);
    const body = Buffer.from(action.kind === 'reply' ? action.body : []);
    expect(body.readUInt32LE(20)).toBe(256 * 1024);
    expect(body.readUInt16LE(28)).toBe(64);
  });

  test('tells its version to a kernel of another one', () => {
    const newer = act({ ...kernel, major: 8 }, 0);
    expect(newer.kind === 'reply' && Buffer.from(newer.body).readUInt32LE(0)).toBe(7);
    expect(act({ ...kernel, major: 6 }, 0)).toMatchObject(refusal(ERRNO.EPROTO));
  });
});

describe('replies', () => {
  test('carry the length, the negative errno and the number of the request', () => {
    const header = Buffer.from(replyHeader({ unique: 2n ** 60n + 1n, node: 1 }, 5, 8));
    expect([header.readUInt32LE(0), header.readInt32LE(4), header.readBigUInt64LE(8)]).toEqual([
      24,
      -5,
      2n ** 60n + 1n,
    ]);
  });

  test('a directory is told in pieces that fit, and goes on where it was left', () => {
    const entries = [
      { node: 1, name: '.', kind: 'directory' as const },
      { node: 2, name: 'device', kind: 'file' as const },
    ];
    expect(directoryBody(entries, 0, 32).length).toBe(32);
    const rest = Buffer.from(directoryBody(entries, 1, 4096));
    expect(rest.readBigUInt64LE(0)).toBe(2n);
    expect(rest.subarray(24, 30).toString()).toBe('device');
    expect(directoryBody(entries, 2, 4096).length).toBe(0);
  });
});
