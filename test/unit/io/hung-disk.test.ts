import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';
import { threadPoolSize } from '../../../src/io/thread-pool.js';

let directory: string;
/** To open it waits for a writer, as a file on a disk that hangs waits for the disk. */
let fifo: string;

beforeEach(() => {
  directory = mkdtempSync('/tmp/holdfast-hung-');
  mkdirSync(`${directory}/hung`);
  mkdirSync(`${directory}/healthy`);
  fifo = `${directory}/hung/fifo`;
  execFileSync('mkfifo', [fifo]);
});

afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

describe('a disk that hangs', () => {
  it("leaves threads to other disks and to the process's own calls", async () => {
    const { files } = createNodeIo({ fileCalls: threadPoolSize() - 1 });
    files.addDisk(`${directory}/hung`);
    files.addDisk(`${directory}/healthy`);
    const options = { write: true, create: true, direct: false };
    const hanging = Array.from({ length: 2 * threadPoolSize() }, () => files.open(fifo, { ...options, write: false }));
    const outcomes = Promise.allSettled(hanging);
    try {
      const file = await answered(files.open(`${directory}/healthy/f`, options));
      await answered(file.write(new Uint8Array(100).fill(7), 0));
      await answered(file.sync());
      expect(await answered(file.extents(0, 100))).toHaveLength(1);
      await answered(file.close());
      expect(await answered(files.list(`${directory}/healthy`))).toEqual(['f']);
      await answered(files.remove(`${directory}/healthy/f`));
      expect(await answered(readFile('/proc/version', 'utf8'))).toContain('Linux');
    } finally {
      const writer = openSync(fifo, 'r+');
      await outcomes;
      closeSync(writer);
    }
    // All that waited was asked in its turn, and refused since it is no regular file.
    for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: { code: 'invalid-argument' } });
  });
});

/** Fails early enough for the hung calls to be ended. */
async function answered<T>(call: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('no answer')), 10_000);
  });
  return Promise.race([call, late]).finally(() => clearTimeout(timer));
}
