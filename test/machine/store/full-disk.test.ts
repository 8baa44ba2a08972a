import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { codeOf } from '../../../src/base/errors.js';
import { LevelStore } from '../../../src/store/level-store.js';
import { diskRecord } from '../../contract/record-store.js';

const run = promisify(execFile);

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-full-'));
  await run('mount', ['-t', 'tmpfs', '-o', 'size=8M', 'tmpfs', directory]);
});
afterEach(async () => {
  await run('umount', ['-l', directory]);
  await rm(directory, { recursive: true, force: true });
});

it('a store on a full disk loses nothing that it answered, and works again when there is room', async () => {
  const ballast = join(directory, 'ballast');
  await writeFile(ballast, Buffer.alloc(5 * 1024 * 1024));
  const store = await LevelStore.open(join(directory, 'store'));
  const reason = 'x'.repeat(100_000);
  const answered: string[] = [];
  let refusal: unknown;
  for (let i = 0; i < 200 && refusal === undefined; i++) {
    try {
      await store.create('disk', `d${i}`, { ...diskRecord(i), reason });
      answered.push(`d${i}`);
    } catch (error) {
      refusal = error;
    }
  }
  expect(codeOf(refusal)).toBe('unavailable');
  expect(answered.length).toBeGreaterThan(1);
  await rm(ballast);
  const { items } = await store.list('disk');
  expect(items.map((item) => item.key)).toEqual(expect.arrayContaining(answered));
  await store.create('disk', 'after', diskRecord(1));
  await store.close();
  const again = await LevelStore.open(join(directory, 'store'));
  expect((await again.list('disk')).items.map((item) => item.key)).toEqual(
    expect.arrayContaining([...answered, 'after']),
  );
  await again.close();
});
