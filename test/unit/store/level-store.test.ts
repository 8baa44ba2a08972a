import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Level } from 'level';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LevelStore } from '../../../src/store/level-store.js';
import { diskRecord, expectCode, keyOf, take } from '../../contract/record-store.js';

describe('LevelStore', () => {
  let directory: string;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'holdfast-level-'));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('refuses a directory that another process has open, and leaves that one alone', async () => {
    const script = `
      const { Level } = await import('level');
      const level = new Level(process.argv[1]);
      await level.open();
      process.stdout.write('open');
      process.stdin.resume();
      process.stdin.on('end', () => level.close());`;
    const args = ['--input-type=module', '-e', script, directory];
    const other = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    await once(other.stdout, 'data');
    await expectCode('already-exists', LevelStore.open(directory), /open in another process/);
    other.stdin.end();
    await once(other, 'exit');
    await (await LevelStore.open(directory)).close();
  });

  it('refuses a store of a newer format', async () => {
    const level = new Level(directory);
    await level.put('m/format', '2');
    await level.close();
    await expectCode('failed-precondition', LevelStore.open(directory), /format 2/);
  });

  it('refuses every call after it was closed, and may be closed twice', async () => {
    const store = await LevelStore.open(directory);
    const { revision } = await store.list('disk');
    const watch = take(store.watch('disk', revision, new AbortController().signal), 1);
    const change = store.create('disk', 'd', diskRecord(1));
    await store.close();
    await store.close();
    expect((await change).key).toBe('d');
    await watch;
    await expectCode('unavailable', store.get('disk', 'd'));
    await expectCode('unavailable', store.create('disk', 'e', diskRecord(1)));
    const again = await LevelStore.open(directory);
    expect((await again.list('disk')).items).toHaveLength(1);
    await again.close();
  });

  it('ends its watches when it is closed', async () => {
    const store = await LevelStore.open(directory);
    const { revision } = await store.list('disk');
    const watch = take(store.watch('disk', revision, new AbortController().signal), 1);
    const ended = expectCode('unavailable', watch, /closed/);
    await new Promise((resolve) => setImmediate(resolve));
    await store.close();
    await ended;
  });

  it('keeps a bounded log on disk, and stays bounded over restarts', async () => {
    const bounds = { maxEntries: 5, maxCharacters: 1_000_000 };
    for (let round = 0; round < 3; round++) {
      const store = await LevelStore.open(directory, bounds);
      for (let i = 0; i < 10; i++) await store.create('disk', `d${round}-${i}`, diskRecord(i));
      await store.close();
    }
    const level = new Level(directory);
    const logged = await level.keys({ gte: 'l/', lt: 'l0' }).all();
    await level.close();
    expect(logged.length).toBeLessThanOrEqual(6);
    const store = await LevelStore.open(directory, bounds);
    expect((await store.list('disk')).items).toHaveLength(30);
    await store.close();
  });

  it('tells a client of a lost store that its revisions mean nothing in the new one', async () => {
    const first = await LevelStore.open(join(directory, 'first'));
    const made = await first.create('disk', 'd', diskRecord(1));
    const { revision } = await first.list('disk');
    await first.close();
    const second = await LevelStore.open(join(directory, 'second'));
    await second.create('disk', 'd', diskRecord(2));
    await second.create('disk', 'e', diskRecord(3));
    await expectCode('conflict', second.update('disk', 'd', diskRecord(4), made.version));
    await expectCode('out-of-range', take(second.watch('disk', revision, new AbortController().signal), 1));
    await second.close();
  });

  it('writes many changes of many callers, each seen in order', async () => {
    const store = await LevelStore.open(directory);
    const { revision } = await store.list('disk');
    await Promise.all(Array.from({ length: 200 }, (_, i) => store.create('disk', `d${i}`, diskRecord(i))));
    const seen = await take(store.watch('disk', revision, new AbortController().signal), 200);
    expect(new Set(seen.map(keyOf)).size).toBe(200);
    await store.close();
  });
});
