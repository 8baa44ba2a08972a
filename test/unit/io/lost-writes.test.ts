import { constants, mkdtempSync, rmSync, type NoParamCallback } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';

// Real files, but of a filesystem that refuses direct I/O, on a disk that fails when it is told to.
const disk = vi.hoisted(() => ({ failNext: false }));

vi.mock('node:fs', async (importOriginal) => {
  const fs = await importOriginal<typeof import('node:fs')>();
  const refused = (code: string): NodeJS.ErrnoException => Object.assign(new Error(code), { code });
  return {
    ...fs,
    open: (path: string, flags: number, mode: number, answer: (error: Error | null, fd: number) => void): void => {
      if ((flags & constants.O_DIRECT) !== 0) setImmediate(() => answer(refused('EINVAL'), -1));
      else fs.open(path, flags, mode, answer);
    },
    /** As the kernel, which tells a failure once. */
    fdatasync: (fd: number, answer: NoParamCallback): void => {
      if (disk.failNext) setImmediate(() => answer(refused('EIO')));
      else fs.fdatasync(fd, answer);
      disk.failNext = false;
    },
  };
});

let directory: string;

beforeEach(() => {
  directory = mkdtempSync('/tmp/holdfast-lost-');
});

afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

describe('a file opened buffered where direct I/O was asked for', () => {
  it('fails every sync after a write that could not be made durable, so that the loss is known', async () => {
    const { files } = createNodeIo();
    const file = await files.open(`${directory}/f`, { write: true, create: true, direct: true });
    const bytes = new Uint8Array(1024 * 1024);
    disk.failNext = true;
    let failures = 0;
    // More than may stay in the page cache.
    for (let piece = 0; piece < 20; piece++) {
      await file.write(bytes, piece * bytes.length).catch((error: unknown) => {
        expect(error).toMatchObject({ code: 'io-error' });
        failures++;
      });
    }
    expect(failures).toBeGreaterThan(0);
    expect(disk.failNext).toBe(false);
    for (let time = 0; time < 2; time++) await expect(file.sync()).rejects.toMatchObject({ code: 'io-error' });
    await file.close();
  });
});
