import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { File, Io } from '../../src/io/io.js';

const PAGE = 4096;

/** Files under test. */
export interface FilesUnderTest {
  readonly io: Io;
  /** An empty directory. */
  readonly directory: string;
  /** The space that a file takes. */
  readonly allocatedBytes: (path: string) => number;
  /** Lets `body` go on until it is through. */
  readonly run: (body: () => Promise<void>) => Promise<void>;
  readonly end: () => void;
}

/** What the files of every I/O implementation do. */
export function filesContract(name: string, start: () => FilesUnderTest): void {
  describe(`files: ${name}`, () => {
    let tested: FilesUnderTest;
    let io: Io;
    let directory: string;

    beforeEach(() => {
      tested = start();
      ({ io, directory } = tested);
    });
    afterEach(() => tested.end());

    const test = (claim: string, body: () => Promise<void>): void => it(claim, () => tested.run(body));

    const make = async (path: string, text = 'x'): Promise<void> => {
      const file = await io.files.open(path, { write: true, create: true, direct: false });
      await file.write(new TextEncoder().encode(text), 0);
      await file.close();
    };

    describe.each([{ direct: true }, { direct: false }])('a file ($direct direct)', ({ direct }) => {
      const open = (): Promise<File> => io.files.open(`${directory}/f`, { write: true, create: true, direct });

      test('reads what was written, and stops at its end', async () => {
        const file = await open();
        const lease = await io.slab(16 * PAGE).take(4 * PAGE);
        lease.bytes.fill(3);
        await file.write(lease.bytes, 2 * PAGE);
        await file.sync();
        expect(await file.size()).toBe(6 * PAGE);
        lease.bytes.fill(9);
        expect(await file.read(lease.bytes, 4 * PAGE)).toBe(2 * PAGE);
        expect(lease.bytes[2 * PAGE - 1]).toBe(3);
        expect(await file.read(lease.bytes, 100 * PAGE)).toBe(0);
        // An end within a page.
        await file.truncate(5 * PAGE + 10);
        expect(await file.read(lease.bytes, 4 * PAGE)).toBe(PAGE + 10);
        // What was cut off does not come back.
        await file.truncate(6 * PAGE);
        expect(await file.read(lease.bytes, 4 * PAGE)).toBe(2 * PAGE);
        expect(lease.bytes.subarray(0, 2 * PAGE).lastIndexOf(3)).toBe(PAGE + 9);
        await file.close();
      });

      test('gives space back where it is punched, keeps its size, and tells its extents', async () => {
        const file = await open();
        await file.truncate(64 * PAGE);
        const lease = await io.slab(16 * PAGE).take(16 * PAGE);
        lease.bytes.fill(1);
        await file.write(lease.bytes, 16 * PAGE);
        await file.sync();
        const before = tested.allocatedBytes(`${directory}/f`);
        await file.punch(16 * PAGE, 8 * PAGE);
        expect(await file.size()).toBe(64 * PAGE);
        expect(tested.allocatedBytes(`${directory}/f`)).toBeLessThan(before);
        expect(await file.extents(0, 64 * PAGE)).toEqual([
          { length: 24 * PAGE, hole: true },
          { length: 8 * PAGE, hole: false },
          { length: 32 * PAGE, hole: true },
        ]);
        expect(await file.extents(20 * PAGE, 6 * PAGE)).toEqual([
          { length: 4 * PAGE, hole: true },
          { length: 2 * PAGE, hole: false },
        ]);
        // Beyond the end there is nothing, which reads as zeros once it is there.
        expect(await file.extents(1000 * PAGE, PAGE)).toEqual([{ length: PAGE, hole: true }]);
        await file.read(lease.bytes, 16 * PAGE);
        expect(lease.bytes.findIndex((byte) => byte !== 0)).toBe(8 * PAGE);
        await file.close();
      });

      test('punches parts of pages', async () => {
        const file = await open();
        const lease = await io.slab(4 * PAGE).take(4 * PAGE);
        for (const [offset, length] of [
          [100, 200],
          [PAGE - 10, 20],
          [PAGE - 10, PAGE + 20],
          [0, PAGE + 1],
        ] as const) {
          lease.bytes.fill(1);
          await file.write(lease.bytes, 0);
          await file.punch(offset, length);
          await file.read(lease.bytes, 0);
          const zeros = lease.bytes.map((byte, at) =>
            byte === (at >= offset && at < offset + length ? 0 : 1) ? 0 : 1,
          );
          expect(zeros.indexOf(1)).toBe(-1);
        }
        await file.close();
      });

      test('waits at close for what is under way and refuses what comes after', async () => {
        const file = await open();
        const lease = await io.slab(256 * PAGE).take(256 * PAGE);
        lease.bytes.fill(4);
        const writes = [0, 1, 2].map((index) => file.write(lease.bytes, index * 256 * PAGE));
        await file.close();
        await Promise.all(writes);
        await expect(file.read(lease.bytes, 0)).rejects.toMatchObject({ code: 'io-error' });
        await expect(file.punch(0, PAGE)).rejects.toMatchObject({ code: 'io-error' });
        await expect(file.sync()).rejects.toMatchObject({ code: 'io-error' });
        await file.close();
        const again = await open();
        expect(await again.size()).toBe(3 * 256 * PAGE);
        await again.close();
      });

      test('carries out hundreds of punches and reads at once', async () => {
        const file = await open();
        await file.truncate(1024 * PAGE);
        await Promise.all(
          Array.from({ length: 400 }, async (_, index) => {
            await file.punch(index * PAGE, PAGE);
            expect(await file.extents(index * PAGE, PAGE)).toEqual([{ length: PAGE, hole: true }]);
          }),
        );
        await file.close();
      });
    });

    test('reads and writes at any offset where it is not direct', async () => {
      await make(`${directory}/f`, 'abcdef');
      const file = await io.files.open(`${directory}/f`, { write: true, create: false, direct: false });
      await file.write(new TextEncoder().encode('XY'), 2);
      await file.write(new TextEncoder().encode('end'), PAGE + 1);
      const into = new Uint8Array(PAGE + 100);
      expect(await file.read(into, 1)).toBe(PAGE + 3);
      const text = new TextDecoder().decode(into.subarray(0, PAGE + 3));
      expect(text).toBe(`bXYef${'\0'.repeat(PAGE - 5)}end`);
      await file.close();
    });

    test('are told apart from what is missing, taken, or no file', async () => {
      const { files } = io;
      const options = { write: true, create: false, direct: false };
      await expect(files.open(`${directory}/missing`, options)).rejects.toMatchObject({ code: 'not-found' });
      await expect(files.open(`${directory}/no/f`, { ...options, create: true })).rejects.toMatchObject({
        code: 'not-found',
      });
      await expect(files.open(directory, { ...options, write: false })).rejects.toMatchObject({
        code: 'invalid-argument',
      });
      await expect(files.list(`${directory}/missing`)).rejects.toMatchObject({ code: 'not-found' });
      await files.makeDirectory(`${directory}/full`);
      await make(`${directory}/full/x`);
      await files.makeDirectory(`${directory}/other`);
      await expect(files.makeDirectory(`${directory}/full/x`)).rejects.toMatchObject({ code: 'already-exists' });
      await expect(files.rename(`${directory}/missing`, `${directory}/y`)).rejects.toMatchObject({ code: 'not-found' });
      await expect(files.rename(`${directory}/other`, `${directory}/full`)).rejects.toMatchObject({
        code: 'already-exists',
      });
      await expect(files.rename(`${directory}/other`, `${directory}/other/in`)).rejects.toMatchObject({
        code: 'io-error',
      });
      const reader = await files.open(`${directory}/full/x`, { ...options, write: false });
      await expect(reader.write(new Uint8Array(1), 0)).rejects.toMatchObject({ code: 'io-error' });
      await reader.close();
    });

    test('lists, makes, renames, syncs and removes, and repeats succeed', async () => {
      const { files } = io;
      await files.makeDirectory(`${directory}/a/b`);
      await files.makeDirectory(`${directory}/a/b`);
      await make(`${directory}/a/b/f`);
      await make(`${directory}/a/g`, 'replaced');
      await files.syncDirectory(`${directory}/a/b`);
      await files.rename(`${directory}/a/b/f`, `${directory}/a/g`);
      expect((await files.list(`${directory}/a`)).sort()).toEqual(['b', 'g']);
      expect(await files.list(`${directory}/a/b`)).toEqual([]);
      await files.rename(`${directory}/a`, `${directory}/a`);
      await files.rename(`${directory}/a`, `${directory}/c`);
      const moved = await files.open(`${directory}/c/g`, { write: false, create: false, direct: false });
      expect(await moved.size()).toBe(1);
      await files.remove(`${directory}/c`);
      await files.remove(`${directory}/c`);
      expect(await files.list(directory)).toEqual([]);
      // Who has it open has it still.
      const into = new Uint8Array(1);
      expect(await moved.read(into, 0)).toBe(1);
      expect(String.fromCharCode(...into)).toBe('x');
      await moved.close();
    });
  });
}
