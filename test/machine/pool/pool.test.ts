import { execFile } from 'node:child_process';
import {
  copyFile,
  mkdir,
  mkdtemp,
  open,
  readFile,
  readdir,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { readMountTable } from '../../../src/base/mount-table.js';
import { labelOf } from '../../../src/pool/identity.js';
import { attachLoop, detachLoop, loopOf } from '../../../src/pool/loop.js';
import { openPool, type Pool, type PoolOptions } from '../../../src/pool/pool.js';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const CLUSTER = '5f0c1f3e-0000-4000-8000-000000000001';

let directory: string;
let poolDirectory: string;

function options(disks: string[], clusterId = CLUSTER): PoolOptions {
  return { disks, poolDirectory, stateDirectory: join(directory, 'state'), clusterId, log: silentLog() };
}

async function sparse(name: string, bytes = 320 * MIB): Promise<string> {
  const path = join(directory, name);
  await writeFile(path, '');
  await truncate(path, bytes);
  return path;
}

async function filled(name: string, command: string, ...args: string[]): Promise<string> {
  const path = await sparse(name);
  await run(command, [...args, path]);
  return path;
}

async function writeAt(path: string, offset: number, text: string): Promise<void> {
  const file = await open(path, 'r+');
  await file.write(Buffer.from(text, 'latin1'), 0, text.length, offset);
  await file.close();
}

/** The only disk of a pool. */
function only(pool: Pool) {
  expect(pool.refused).toEqual([]);
  expect(pool.disks).toHaveLength(1);
  const [disk] = pool.disks;
  if (disk === undefined) throw new Error('no disk');
  return disk;
}

/** Opens a pool of one disk, which must be refused without a byte of it being changed. */
async function refusal(path: string, clusterId = CLUSTER): Promise<string> {
  const before = await lastWrite(path);
  const pool = await openPool(options([path], clusterId));
  expect(pool.disks).toEqual([]);
  await pool.close({ unmount: true });
  expect(await lastWrite(path)).toBe(before);
  expect(await loopOf(path)).toBeUndefined();
  return pool.refused.map(({ reason }) => reason).join('\n');
}

/** A write through a loop device moves the modification time of the file, as any other does. */
async function lastWrite(path: string): Promise<bigint> {
  return (await stat(path, { bigint: true })).mtimeNs;
}

/** Makes a disk of the pool, and ends the pool. */
async function madeDisk(name: string, clusterId = CLUSTER): Promise<string> {
  const path = await sparse(name);
  const pool = await openPool(options([path], clusterId));
  only(pool);
  await pool.close({ unmount: true });
  return path;
}

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-pool-'));
  poolDirectory = join(directory, 'pool');
});

afterEach(async () => {
  for (const entry of (await readMountTable()).reverse()) {
    if (entry.mountPoint.startsWith(`${directory}/`)) await run('umount', ['-l', entry.mountPoint]);
  }
  for (const name of await readdir(directory)) {
    if (!name.endsWith('.img')) continue;
    const loop = await loopOf(join(directory, name));
    if (loop !== undefined) await detachLoop(loop);
  }
  await rm(directory, { recursive: true, force: true });
});

describe('a pool', () => {
  it('makes a blank file a disk, mounts it, and says who it is', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const disk = only(pool);
    expect(disk.state).toBe('ready');
    expect(disk.directory).toBe(join(poolDirectory, disk.diskId));
    expect(disk.devicePath).toMatch(/^\/dev\/loop/);
    expect(disk.capacityBytes).toBeGreaterThan(200 * MIB);
    expect(await disk.usedBytes()).toBeLessThan(disk.capacityBytes);
    expect(JSON.parse(await readFile(join(disk.directory, 'holdfast.json'), 'utf8'))).toEqual({
      formatVersion: 1,
      diskId: disk.diskId,
      clusterId: CLUSTER,
    });
    const { stdout } = await run('losetup', ['--list', '--noheadings', '--output', 'DIO', disk.devicePath]);
    expect(stdout.trim()).toBe('1');
    expect((await run('xfs_info', [disk.directory])).stdout).toMatch(/reflink=1/);
    await pool.close({ unmount: true });
  });

  it('unmounts cleanly and detaches its loop devices when it is closed for good', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const disk = only(pool);
    await writeFile(join(disk.directory, 'data'), 'x');
    await pool.close({ unmount: true });
    expect(await loopOf(path)).toBeUndefined();
    expect((await readMountTable()).some((entry) => entry.mountPoint.startsWith(directory))).toBe(false);
    expect(await readdir(poolDirectory)).toEqual([]);
    expect(await readdir(join(directory, 'state', 'mounts'))).toEqual([]);
    // A dirty log would make xfs_repair refuse.
    const loop = await attachLoop(path, silentLog());
    await run('xfs_repair', ['-n', loop.path]);
    await detachLoop(loop.path);
  });

  it('finds its disks mounted after a restart of the plugin: same mount, same incarnation', async () => {
    const path = await sparse('a.img');
    const first = only(await openPool(options([path])));
    const kept = await open(join(first.directory, 'open-file'), 'w');
    await (await openPool(options([path]))).close({ unmount: false });
    const pool = await openPool(options([path]));
    const again = only(pool);
    expect(again).toMatchObject({ diskId: first.diskId, devicePath: first.devicePath, incarnation: first.incarnation });
    await kept.close();
    await pool.close({ unmount: true });
  });

  it('has another incarnation after an unmount and a mount by the plugin', async () => {
    const path = await madeDisk('a.img');
    const one = await openPool(options([path]));
    const first = only(one);
    await one.close({ unmount: true });
    const two = await openPool(options([path]));
    const second = only(two);
    expect(second.diskId).toBe(first.diskId);
    expect(second.incarnation).not.toBe(first.incarnation);
    await two.close({ unmount: true });
  });

  it('has another incarnation after somebody else unmounted and mounted it, even at the same mount id', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const first = only(pool);
    await run('umount', [first.directory]);
    await run('mount', [first.devicePath, first.directory]);
    await first.check();
    expect(first).toMatchObject({ state: 'failed', reason: expect.stringMatching(/mounted it again/) as string });
    await pool.close({ unmount: false });
    const next = await openPool(options([path]));
    const second = only(next);
    expect(second.state).toBe('ready');
    expect(second.incarnation).not.toBe(first.incarnation);
    await next.close({ unmount: true });
  });

  it('still knows its mounts after its state directory was lost', async () => {
    const path = await sparse('a.img');
    const first = only(await openPool(options([path])));
    await rm(join(directory, 'state'), { recursive: true });
    const pool = await openPool(options([path]));
    const second = only(pool);
    expect(second.incarnation).toBe(first.incarnation);
    await run('xfs_growfs', ['-n', second.directory]);
    await pool.close({ unmount: true });
  });

  it('finishes a disk whose making ended between mkfs and its identity', async () => {
    const path = await sparse('a.img');
    await run('mkfs.xfs', ['-q', '-L', labelOf(CLUSTER), path]);
    const pool = await openPool(options([path]));
    const disk = only(pool);
    expect(await readFile(join(disk.directory, 'holdfast.json'), 'utf8')).toContain(disk.diskId);
    await pool.close({ unmount: true });
  });

  it('finishes a disk whose identity was being written', async () => {
    const path = await madeDisk('a.img');
    const one = await openPool(options([path]));
    const disk = only(one);
    await rm(join(disk.directory, 'holdfast.json'));
    await rm(join(disk.directory, 'health'));
    await writeFile(join(disk.directory, 'holdfast.json.unfinished'), '{"form');
    await one.close({ unmount: true });
    const two = await openPool(options([path]));
    expect(only(two).diskId).toBe(disk.diskId);
    await two.close({ unmount: true });
  });

  it('makes a filesystem again when mkfs itself was interrupted', async () => {
    const path = await sparse('a.img');
    await run('mkfs.xfs', ['-q', '-L', labelOf(CLUSTER), path]);
    await writeAt(path, 126, '\x01');
    const pool = await openPool(options([path]));
    expect(only(pool).state).toBe('ready');
    await pool.close({ unmount: true });
  });

  it('refuses an empty-looking disk of ours that has lost its identity but not its data', async () => {
    const path = await madeDisk('a.img');
    const one = await openPool(options([path]));
    await mkdir(join(only(one).directory, 'replicas'));
    await rm(join(only(one).directory, 'holdfast.json'));
    await one.close({ unmount: true });
    const two = await openPool(options([path]));
    expect(two.refused[0]?.reason).toMatch(/no holdfast.json, but holds/);
    await two.close({ unmount: true });
  });

  it.each([
    ['ext4', 'mkfs.ext4', ['-q'], /ext4/],
    ['an xfs of somebody', 'mkfs.xfs', ['-q', '-L', 'photos'], /xfs labelled 'photos'/],
    ['a swap', 'mkswap', [], /swap/],
    ['an unlabelled xfs', 'mkfs.xfs', ['-q'], /xfs labelled ''/],
  ])('never formats %s', async (_what, command, args, words) => {
    expect(await refusal(await filled('a.img', command, ...args))).toMatch(words);
  });

  it('never formats a partition table', async () => {
    const path = await sparse('a.img');
    // The signature of an MBR, and one entry of type 83.
    await writeAt(path, 446, '\x00\x00\x02\x00\x83\x00\x00\x00\x00\x08\x00\x00\x00\x08\x00\x00');
    await writeAt(path, 510, '\x55\xaa');
    expect(await refusal(path)).toMatch(/partition table \(dos\)/);
  });

  it.each([
    ['its first MiB', 1000],
    ['its last bytes', 320 * MIB - 3],
    ['a place of backups', 64 * MIB + 5],
    ['its middle', 160 * MIB],
  ])('never formats a disk with unknown data in %s', async (_where, offset) => {
    const path = await sparse('a.img');
    await writeAt(path, offset, 'x');
    expect(await refusal(path)).toMatch(/data of an unknown kind/);
  });

  it("refuses another cluster's disk without mounting it", async () => {
    const path = await madeDisk('a.img', 'another-cluster');
    expect(await refusal(path)).toMatch(/another Holdfast cluster/);
  });

  it('refuses a disk of a newer format', async () => {
    const path = await madeDisk('a.img');
    const one = await openPool(options([path]));
    const identity = join(only(one).directory, 'holdfast.json');
    const { diskId } = only(one);
    await writeFile(identity, JSON.stringify({ formatVersion: 2, diskId, clusterId: CLUSTER }));
    await one.close({ unmount: true });
    const two = await openPool(options([path]));
    expect(two.refused[0]?.reason).toMatch(/format version 2/);
    expect((await readMountTable()).some((entry) => entry.mountPoint.startsWith(directory))).toBe(false);
    await two.close({ unmount: true });
  });

  it('refuses the copy of a disk that is in the pool, and one that got a new UUID', async () => {
    const path = await madeDisk('a.img');
    const copy = join(directory, 'copy.img');
    const disguised = join(directory, 'disguised.img');
    await copyFile(path, copy);
    await copyFile(path, disguised);
    await run('xfs_admin', ['-U', 'generate', disguised]);
    const pool = await openPool(options([path, copy, disguised]));
    expect(pool.disks).toHaveLength(1);
    expect(pool.refused.map(({ path: refused }) => refused)).toEqual([copy, disguised]);
    for (const { reason } of pool.refused) expect(reason).toMatch(/copy of/);
    await pool.close({ unmount: true });
    expect(await loopOf(copy)).toBeUndefined();
  });

  it('keeps the mounted disk when its copy comes first after a restart', async () => {
    const path = await sparse('a.img');
    const first = only(await openPool(options([path])));
    const copy = join(directory, 'copy.img');
    await run('fsfreeze', ['-f', first.directory]);
    await copyFile(path, copy);
    await run('fsfreeze', ['-u', first.directory]);
    const pool = await openPool(options([copy, path]));
    expect(pool.refused).toMatchObject([{ path: copy }]);
    expect(pool.disks).toMatchObject([{ devicePath: first.devicePath, state: 'ready' }]);
    await pool.close({ unmount: true });
  });

  it('refuses one device under two names', async () => {
    const path = await sparse('a.img');
    const link = join(directory, 'link');
    await symlink(path, link);
    const pool = await openPool(options([path, link]));
    expect(pool.disks).toHaveLength(1);
    expect(pool.refused).toMatchObject([{ path: link }]);
    await pool.close({ unmount: true });
  });

  it('refuses a disk that is too small, missing, or no device, and brings up the others', async () => {
    const small = await sparse('small.img', 299 * MIB);
    const good = await sparse('good.img');
    const missing = join(directory, 'missing.img');
    const pool = await openPool(options([small, missing, '/dev/null', good]));
    expect(pool.disks).toHaveLength(1);
    expect(pool.refused.map(({ reason }) => reason)).toEqual([
      expect.stringMatching(/small.img has \d+ bytes; a disk must have at least 314572800/),
      expect.stringMatching(/missing.img/),
      expect.stringMatching(/neither a file nor a block device/),
    ]);
    await pool.close({ unmount: true });
  });

  it('takes a block device as a disk, and refuses it while it is mounted elsewhere', async () => {
    const path = await madeDisk('a.img');
    const loop = await attachLoop(path, silentLog());
    const elsewhere = join(directory, 'elsewhere');
    await mkdir(elsewhere);
    await run('mount', [loop.path, elsewhere]);
    const refused = await openPool(options([loop.path]));
    expect(refused.refused[0]?.reason).toMatch(/in use|mounted at/);
    await run('umount', [elsewhere]);
    const pool = await openPool(options([loop.path]));
    expect(only(pool).devicePath).toBe(loop.path);
    await pool.close({ unmount: true });
    expect(await loopOf(path)).toBe(loop.path);
  });

  it('takes an unreadable device for an error, never for a blank one', async () => {
    const path = await sparse('a.img');
    const loop = await attachLoop(path, silentLog());
    await truncate(path, 100 * MIB);
    const pool = await openPool(options([loop.path]));
    expect(pool.refused[0]?.reason).toMatch(/can't be read at byte/);
    await detachLoop(loop.path);
  });

  it('reports a filesystem that has shut down as failed; the next start mounts it anew, and that shows', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const disk = only(pool);
    await run('xfs_io', ['-x', '-c', 'shutdown', disk.directory]);
    expect(await pool.report()).toMatchObject([{ diskId: disk.diskId, state: 'failed' }]);
    expect(pool.readyDisks()).toEqual([]);
    await pool.close({ unmount: false });
    const next = await openPool(options([path]));
    expect(next.disks).toMatchObject([{ diskId: disk.diskId, state: 'ready' }]);
    expect(only(next).incarnation).not.toBe(disk.incarnation);
    await next.close({ unmount: true });
  });

  it('leaves one that has shut down and is in use as it is, failed', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const disk = only(pool);
    const held = await open(join(disk.directory, 'held'), 'w');
    await run('xfs_io', ['-x', '-c', 'shutdown', disk.directory]);
    await pool.close({ unmount: false });
    const next = await openPool(options([path]));
    expect(next.disks).toMatchObject([{ diskId: disk.diskId, state: 'failed' }]);
    await held.close();
    await next.close({ unmount: true });
  });

  it('reports a read-only disk as failed until it can be written again', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const disk = only(pool);
    await run('mount', ['-o', 'remount,ro', disk.directory]);
    await disk.check();
    expect(disk).toMatchObject({ state: 'failed', reason: 'it is mounted read-only' });
    await run('mount', ['-o', 'remount,rw', disk.directory]);
    await disk.check();
    expect(disk.state).toBe('ready');
    await pool.close({ unmount: true });
  });

  it('reports a full disk as ready and full', async () => {
    const path = await sparse('a.img');
    const pool = await openPool(options([path]));
    const disk = only(pool);
    await expect(run('dd', ['if=/dev/zero', `of=${join(disk.directory, 'big')}`, 'bs=1M'])).rejects.toThrow(/space/);
    const [report] = await pool.report();
    expect(report?.state).toBe('ready');
    expect((report?.capacityBytes ?? 0) - (report?.usedBytes ?? 0)).toBeLessThan(5 * MIB);
    await pool.close({ unmount: true });
  });

  it('says which disk is in use when it can not be unmounted, and unmounts the others', async () => {
    const [a, b] = [await sparse('a.img'), await sparse('b.img')];
    const pool = await openPool(options([a, b]));
    const [first, second] = pool.disks;
    const busy = await open(join(first?.directory ?? '', 'busy'), 'w');
    await expect(pool.close({ unmount: true })).rejects.toMatchObject({
      code: 'io-error',
      message: expect.stringContaining(first?.diskId ?? '?') as string,
    });
    const mounted = (await readMountTable()).map((entry) => entry.mountPoint);
    expect(mounted).toContain(first?.directory);
    expect(mounted).not.toContain(second?.directory);
    await busy.close();
    await pool.close({ unmount: true });
  });

  it('empties the trash of what has been there for its time', async () => {
    const path = await sparse('a.img');
    const pool = await openPool({ ...options([path]), trashGraceMs: 0 });
    const trash = join(only(pool).directory, 'trash');
    await mkdir(join(trash, 'vol-x', 'data'), { recursive: true });
    await writeFile(join(trash, 'vol-x', 'data', '00000000'), 'x');
    await pool.emptyTrash();
    expect((await readdir(trash)).filter((name) => !name.startsWith('.'))).toEqual([]);
    await pool.close({ unmount: true });
  });
});

describe('loop devices under files', () => {
  it('gives a file one loop device, however often and by whatever name it is asked for', async () => {
    const path = await sparse('a.img', MIB);
    const link = join(directory, 'other-name');
    await symlink(path, link);
    const made = await Promise.all([1, 2, 3].map(() => attachLoop(path, silentLog())));
    expect(new Set(made.map((loop) => loop.path)).size).toBe(1);
    expect(made.filter((loop) => loop.made)).toHaveLength(1);
    expect(await attachLoop(link, silentLog())).toEqual({ path: made[0]?.path, made: false });
    await detachLoop(made[0]?.path ?? '');
    await detachLoop(made[0]?.path ?? '');
    expect(await loopOf(path)).toBeUndefined();
  });
});
