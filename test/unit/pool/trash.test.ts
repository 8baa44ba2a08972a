import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { Trash } from '../../../src/pool/trash.js';

describe('Trash', () => {
  let directory: string;
  let now = 0;

  function trash(): Trash {
    return new Trash(directory, 1000, silentLog(), () => now);
  }

  async function left(): Promise<string[]> {
    return (await readdir(directory)).filter((name) => !name.startsWith('.')).sort();
  }

  beforeEach(async () => {
    directory = join(await mkdtemp(join(tmpdir(), 'holdfast-trash-')), 'trash');
    await mkdir(join(directory, 'a', 'data'), { recursive: true });
    await writeFile(join(directory, 'a', 'data', '0'), 'x');
    now = 5_000_000;
  });
  afterEach(() => rm(join(directory, '..'), { recursive: true, force: true }));

  it('keeps what is there until it was seen for the grace period', async () => {
    const swept = trash();
    expect(await swept.sweep()).toEqual([]);
    now += 999;
    expect(await swept.sweep()).toEqual([]);
    now += 1;
    await mkdir(join(directory, 'b'));
    expect(await swept.sweep()).toEqual(['a']);
    expect(await left()).toEqual(['b']);
    now += 1000;
    expect(await swept.sweep()).toEqual(['b']);
  });

  it('remembers ages over a restart, and does not count the time away', async () => {
    const first = trash();
    await first.sweep();
    now += 600;
    await first.sweep();
    now = 3;
    const second = trash();
    expect(await second.sweep()).toEqual([]);
    now += 399;
    expect(await second.sweep()).toEqual([]);
    now += 1;
    expect(await second.sweep()).toEqual(['a']);
  });

  it('counts anew when the note of ages is lost or spoilt', async () => {
    const before = trash();
    await before.sweep();
    now += 999;
    await before.sweep();
    await writeFile(join(directory, '.ages.json'), '{"a":');
    const swept = trash();
    now += 1;
    expect(await swept.sweep()).toEqual([]);
    now += 1000;
    expect(await swept.sweep()).toEqual(['a']);
  });

  it('empties itself also where the note can not be written, as on a full disk', async () => {
    await mkdir(join(directory, '.ages.json.new'));
    const swept = trash();
    await swept.sweep();
    now += 1000;
    expect(await swept.sweep()).toEqual(['a']);
  });

  it('keeps what was asked to be deleted no longer than to the next sweep', async () => {
    await mkdir(join(directory, 'deleted-b'));
    expect(await trash().sweep()).toEqual(['deleted-b']);
    expect(await left()).toEqual(['a']);
  });

  it('does not take a name that comes back for the old one', async () => {
    const swept = trash();
    await swept.sweep();
    now += 1000;
    await swept.sweep();
    await mkdir(join(directory, 'a'));
    now += 500;
    expect(await swept.sweep()).toEqual([]);
    expect(await left()).toEqual(['a']);
  });

  it('has nothing to do where there is no trash, or when it is told to stop', async () => {
    const swept = trash();
    await swept.sweep();
    now += 1000;
    expect(await swept.sweep(AbortSignal.abort())).toEqual([]);
    expect(await left()).toEqual(['a']);
    await rm(directory, { recursive: true });
    expect(await swept.sweep()).toEqual([]);
  });
});
