import { existsSync, mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';
import { systemError } from '../../../src/io/node-errors.js';

// What all implementations do is tested by test/contract/files.ts.

const io = createNodeIo();
const { files } = io;
let directory: string;

beforeEach(() => {
  directory = mkdtempSync('/tmp/holdfast-files-');
});

afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

describe("Node's files", () => {
  const options = { write: true, create: false, direct: false };

  it('are opened buffered where the filesystem refuses direct I/O', async () => {
    const file = await files.open('/proc/version', { write: false, create: false, direct: true });
    const into = new Uint8Array(10);
    expect(await file.read(into, 3)).toBe(10);
    expect(Buffer.from(into).equals(readFileSync('/proc/version').subarray(3, 13))).toBe(true);
    await file.close();
  });

  it('say that the disk is full when it is', async () => {
    await expect(
      (async () => {
        const file = await files.open('/dev/full', options);
        await file.close();
      })(),
    ).rejects.toMatchObject({ code: 'invalid-argument' });
    for (const code of ['ENOSPC', 'EDQUOT']) {
      expect(systemError(Object.assign(new Error(code), { code }), 'write')).toMatchObject({ code: 'no-space' });
    }
    expect(systemError(Object.assign(new Error('EIO'), { code: 'EIO' }), 'write')).toMatchObject({ code: 'io-error' });
  });

  it('leave no descriptor open', async () => {
    // Of this directory only: the test runner opens and closes its own meanwhile.
    const opened = (): string[] =>
      readdirSync('/proc/self/fd').filter((fd) => {
        const link = `/proc/self/fd/${fd}`;
        // The one that lists the directory is closed by now.
        return existsSync(link) && readlinkSync(link).startsWith(directory);
      });
    for (let round = 0; round < 20; round++) {
      const file = await files.open(`${directory}/f`, { write: true, create: true, direct: true });
      await expect(files.open(directory, { ...options, write: false })).rejects.toThrow();
      await files.syncDirectory(directory);
      expect(opened()).toHaveLength(1);
      await file.close();
    }
    expect(opened()).toEqual([]);
  });
});

describe('digest', () => {
  it('is SHA-256', () => {
    expect(io.digest(new TextEncoder().encode('abc'))).toBe(
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    );
  });
});
