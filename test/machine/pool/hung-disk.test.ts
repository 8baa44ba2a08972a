import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import type { File } from '../../../src/io/io.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { openPool, type Pool } from '../../../src/pool/pool.js';

const run = promisify(execFile);
const DISK_BYTES = 320 * 1024 * 1024;
const PAGE = 4096;
/** More than threads in the pool of this process. */
const MANY = 40;

let directory: string;
let pool: Pool;
/** Where the two disks of the pool are mounted. A frozen filesystem answers no write, as a disk that hangs. */
let hung: string;
let healthy: string;
const opened: File[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-hung-'));
  const disks = [join(directory, 'a.img'), join(directory, 'b.img')];
  for (const path of disks) {
    await writeFile(path, '');
    await truncate(path, DISK_BYTES);
  }
  pool = await openPool({
    disks,
    poolDirectory: join(directory, 'pool'),
    stateDirectory: join(directory, 'state'),
    clusterId: '5f0c1f3e-0000-4000-8000-000000000001',
    log: silentLog(),
  });
  [hung = '', healthy = ''] = pool.disks.map((disk) => disk.directory);
});

afterEach(async () => {
  await thaw();
  for (const file of opened.splice(0)) await file.close();
  await pool.close({ unmount: true });
  await rm(directory, { recursive: true, force: true });
});

const freeze = (): Promise<unknown> => run('fsfreeze', ['-f', hung]);
const thaw = (): Promise<unknown> => run('fsfreeze', ['-u', hung]).catch(() => undefined);

describe('a disk that hangs', () => {
  it('holds up neither I/O on the others nor what else the process reads', async () => {
    const io = createNodeIo({ fileCalls: 3 });
    for (const disk of [hung, healthy]) io.files.addDisk(disk);
    const options = { write: true, create: true, direct: true };
    const bad = await io.files.open(`${hung}/f`, options);
    opened.push(bad);
    const good = await io.files.open(`${healthy}/f`, options);
    opened.push(good);
    const { bytes } = await io.slab(PAGE).take(PAGE);
    for (const file of [bad, good]) await file.write(bytes.fill(1), 0);
    await io.files.makeDirectory(`${hung}/d`);
    for (let name = 0; name < MANY; name++) await (await io.files.open(`${hung}/d/${name}`, options)).close();

    await freeze();
    const waiting = Array.from({ length: MANY }, (_, page) => [
      bad.write(bytes, page * PAGE),
      bad.punch((MANY + page) * PAGE, PAGE),
      io.files.makeDirectory(`${hung}/d-${page}`),
    ]).flat();
    waiting.push(io.files.remove(`${hung}/d`));
    const through = Promise.all(waiting);
    let ended = false;
    void through.then(() => (ended = true));
    try {
      await answered(good.write(bytes, PAGE));
      await answered(good.punch(0, PAGE));
      await answered(good.sync());
      expect(await answered(good.size())).toBe(2 * PAGE);
      expect(await answered(readFile('/proc/version', 'utf8'))).toContain('Linux');
      expect(ended).toBe(false);
    } finally {
      await thaw();
    }
    await through;
    expect(await bad.size()).toBe(MANY * PAGE);
    expect((await readdir(hung)).filter((name) => name.startsWith('d'))).toHaveLength(MANY);
  });

  it('does not keep the trash of the others from being emptied', async () => {
    const throwAway = (disk: string, name: string): Promise<unknown> =>
      mkdir(join(disk, 'trash', `deleted-${name}`), { recursive: true });
    const left = async (disk: string): Promise<string[]> =>
      (await readdir(join(disk, 'trash'))).filter((name) => !name.startsWith('.'));
    for (const disk of [hung, healthy]) await throwAway(disk, 'a');
    await freeze();
    try {
      await answered(pool.emptyTrash());
      expect(await left(healthy)).toEqual([]);
      expect(await left(hung)).toEqual(['deleted-a']);
      await throwAway(healthy, 'b');
      await answered(pool.emptyTrash());
      expect(await left(healthy)).toEqual([]);
    } finally {
      await thaw();
    }
    await pool.emptyTrash();
    expect(await left(hung)).toEqual([]);
  });
});

/** Fails while the hung disk can still be thawed. */
async function answered<T>(call: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('no answer')), 20_000);
  });
  return Promise.race([call, late]).finally(() => clearTimeout(timer));
}
