import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { readMountTable } from '../../../src/base/mount-table.js';
import { run } from '../../../src/base/run.js';
import {
  bindMount,
  checkFilesystem,
  diagnoseFilesystem,
  filesystemSize,
  filesystemUsage,
  growFilesystem,
  makeFilesystem,
  mountFilesystem,
  needsGrowth,
  probe,
  unmount,
} from '../../../src/device/filesystem.js';
import { mayUseResources } from '../../../src/device/capability.js';
import { MIB, OTHER_VOLUME, Rig, VOLUME, codeOfRun, fio, leftBelow } from './rig.js';
import { SparseStage } from './sparse-stage.js';

const IO_ERROR = new HoldfastError('io-error', 'bad sector');

/** The kernel lets none but this capability grow a mounted ext4. */
const canGrowExt4 = await mayUseResources();

let rig: Rig;
let mountPoint: string;

beforeEach(async () => {
  rig = await Rig.start();
  mountPoint = rig.folder('mnt');
});

afterEach(async () => {
  await rig.end();
  expect(await leftBelow(rig.directory)).toEqual([]);
});

const tool = (command: string, ...args: string[]): Promise<{ stdout: string }> =>
  run(command, args, { timeoutMs: 60_000 });

async function put(device: string, text: string, offset: number): Promise<void> {
  await writeFile(rig.folder('text'), text.padEnd(4096, '\0'));
  const where = [`of=${device}`, 'bs=4k', `seek=${offset / 4096}`, 'conv=notrunc,fsync', 'status=none'];
  await tool('dd', `if=${rig.folder('text')}`, ...where);
}

async function mountsAt(path: string): Promise<number> {
  return (await readMountTable()).filter((entry) => entry.mountPoint === path).length;
}

describe('a probe', () => {
  test('knows blank from made', async () => {
    const { path } = await rig.device(new SparseStage(320 * MIB));
    expect(await probe(path)).toEqual({ kind: 'blank' });
    await makeFilesystem(path, 'ext4', ['-L', 'label']);
    expect(await probe(path)).toMatchObject({ kind: 'filesystem', type: 'ext4', label: 'label' });
    await makeFilesystem(path, 'xfs', []);
    expect(await probe(path)).toMatchObject({ kind: 'filesystem', type: 'xfs' });
  });

  test('finds data in the first and last MiB, and the spare superblock of ext4', async () => {
    const { path } = await rig.device(new SparseStage(320 * MIB));
    for (const offset of [0, MIB - 4096, 319 * MIB, 320 * MIB - 4096, 128 * MIB]) {
      await put(path, 'somebody was here', offset);
      expect((await probe(path)).kind).toBe('other');
      await put(path, '', offset);
    }
    expect(await probe(path)).toEqual({ kind: 'blank' });
  });

  test('names what is no filesystem', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await tool('mkswap', path);
    expect(await probe(path)).toEqual({ kind: 'other', what: 'swap' });
  });

  test('never takes unreadable for blank, wherever the bad place is', async () => {
    const stage = new SparseStage(320 * MIB);
    const { path } = await rig.device(stage);
    stage.failure = IO_ERROR;
    await expect(probe(path)).rejects.toMatchObject({ code: 'io-error' });
    for (const from of [0, 512 * 1024, 128 * MIB, 320 * MIB - 4096]) {
      stage.failingRange = { from, to: from + 4096 };
      await expect(probe(path)).rejects.toMatchObject({ code: 'io-error' });
    }
    stage.failure = undefined;
    expect(await probe(path)).toEqual({ kind: 'blank' });
  });

  test('of a device that does not answer ends at its deadline, and works when it answers again', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    const release = stage.hold();
    await expect(probe(path, 500)).rejects.toMatchObject({ code: 'deadline-exceeded' });
    release();
    expect(await probe(path)).toEqual({ kind: 'blank' });
  });

  test('refuses what is no block device', async () => {
    await expect(probe('/dev/holdfast-missing')).rejects.toMatchObject({ code: 'not-found' });
    await writeFile(rig.folder('file'), '');
    await expect(probe(rig.folder('file'))).rejects.toMatchObject({ code: 'invalid-argument' });
  });
});

describe('a filesystem', () => {
  test('is not made on a device too small for it, nor on one that is mounted', async () => {
    const { path } = await rig.device(new SparseStage(16 * MIB));
    await expect(makeFilesystem(path, 'xfs', [])).rejects.toMatchObject({ code: 'out-of-range' });
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, mountPoint, 'ext4', []);
    await expect(makeFilesystem(path, 'ext4', [])).rejects.toMatchObject({ code: 'io-error' });
    await unmount(mountPoint);
  });

  test('with damage that must be repaired by hand is not passed as good', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await makeFilesystem(path, 'ext4', []);
    await checkFilesystem(path, 'ext4');
    expect(await diagnoseFilesystem(path, 'ext4')).toBe('no damage found');
    await tool('debugfs', '-w', '-R', 'clri <2>', path);
    await tool('debugfs', '-w', '-R', 'ssv state 2', path);
    await expect(checkFilesystem(path, 'ext4')).rejects.toMatchObject({ code: 'corrupt' });
    expect(await diagnoseFilesystem(path, 'ext4')).toContain('exited with');
  });

  test('on an unreadable device is an I/O error, not damage', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    stage.failure = IO_ERROR;
    await expect(checkFilesystem(path, 'ext4')).rejects.toMatchObject({ code: 'io-error' });
  });

  for (const type of ['ext4', 'xfs'] as const) {
    test.skipIf(type === 'ext4' && !canGrowExt4)(`${type} grows online, under load`, async () => {
      const stage = new SparseStage(320 * MIB);
      const { path } = await rig.device(stage);
      await makeFilesystem(path, type, []);
      await mountFilesystem(path, mountPoint, type, []);
      expect(await needsGrowth(path, mountPoint, type)).toBe(false);
      const work = fio(`${mountPoint}/file`, { size: '32M', iodepth: 8 });
      stage.sizeBytes = 1024 * MIB;
      await rig.devices.grow(VOLUME, 1024 * MIB);
      expect(await needsGrowth(path, mountPoint, type)).toBe(true);
      await growFilesystem(path, mountPoint, type);
      await growFilesystem(path, mountPoint, type);
      expect(await needsGrowth(path, mountPoint, type)).toBe(false);
      expect(await filesystemSize(path, mountPoint, type)).toBeGreaterThan(1000 * MIB);
      expect((await filesystemUsage(mountPoint)).bytes.total).toBeGreaterThan(800 * MIB);
      expect(await work.done).toBe(0);
      await unmount(mountPoint);
      await checkFilesystem(path, type);
    });

    test(`${type}: a growth while it is not mounted is seen when it is mounted again`, async () => {
      const stage = new SparseStage(320 * MIB);
      const { path } = await rig.device(stage);
      await makeFilesystem(path, type, []);
      stage.sizeBytes = 1024 * MIB;
      await rig.devices.grow(VOLUME, 1024 * MIB);
      await checkFilesystem(path, type);
      await mountFilesystem(path, mountPoint, type, []);
      if (await needsGrowth(path, mountPoint, type)) await growFilesystem(path, mountPoint, type);
      expect(await needsGrowth(path, mountPoint, type)).toBe(false);
      expect(await filesystemSize(path, mountPoint, type)).toBeGreaterThan(1000 * MIB);
      await unmount(mountPoint);
    });

    test(`${type} survives that its export goes and comes`, async () => {
      const stage = new SparseStage(320 * MIB);
      const end = await rig.serve({ volume: stage });
      const { path } = await rig.devices.create(VOLUME, rig.address, 320 * MIB, false);
      await makeFilesystem(path, type, []);
      await mountFilesystem(path, mountPoint, type, []);
      const work = fio(`${mountPoint}/file`, { size: '32M', iodepth: 8, fsync: 32 });
      await new Promise((resolve) => setTimeout(resolve, 300));
      await end();
      await new Promise((resolve) => setTimeout(resolve, 300));
      await rig.serve({ volume: stage });
      expect(await work.done).toBe(0);
      await unmount(mountPoint);
      expect(await diagnoseFilesystem(path, type)).toBe('no damage found');
    });
  }

  test.skipIf(canGrowExt4)('ext4 that may not be grown online says what is missing', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, mountPoint, 'ext4', []);
    stage.sizeBytes = 128 * MIB;
    await rig.devices.grow(VOLUME, 128 * MIB);
    await expect(growFilesystem(path, mountPoint, 'ext4')).rejects.toMatchObject({
      code: 'failed-precondition',
      message: expect.stringContaining('CAP_SYS_RESOURCE') as string,
    });
    await unmount(mountPoint);
  });

  test('xfs and its clone are mounted side by side', async () => {
    const stages = { volume: new SparseStage(320 * MIB), other: new SparseStage(320 * MIB) };
    await rig.serve(stages);
    const source = await rig.devices.create(VOLUME, rig.address, 320 * MIB, false);
    const other = { ...rig.address, exportName: 'other' };
    const clone = await rig.devices.create(OTHER_VOLUME, other, 320 * MIB, false);
    await makeFilesystem(source.path, 'xfs', []);
    const copy = ['bs=1M', 'oflag=direct', 'iflag=direct', 'conv=sparse', 'status=none'];
    await tool('dd', `if=${source.path}`, `of=${clone.path}`, ...copy);
    await mountFilesystem(source.path, mountPoint, 'xfs', []);
    await mountFilesystem(clone.path, rig.folder('clone'), 'xfs', []);
    await unmount(rig.folder('clone'));
    await unmount(mountPoint);
  });

  test('tells its use in bytes and inodes', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, mountPoint, 'ext4', []);
    const before = await filesystemUsage(mountPoint);
    await writeFile(`${mountPoint}/file`, Buffer.alloc(8 * MIB));
    await tool('sync', '--file-system', mountPoint);
    const after = await filesystemUsage(mountPoint);
    expect(after.bytes.used - before.bytes.used).toBe(8 * MIB);
    expect(after.inodes.used - before.inodes.used).toBe(1);
    expect(after.bytes.available).toBeLessThan(after.bytes.total);
    await unmount(mountPoint);
  });
});

describe('mounts', () => {
  test('a directory is shown at another place, read-only where asked', async () => {
    const source = rig.folder('source');
    await mkdir(source);
    await writeFile(`${source}/file`, 'text');
    await bindMount(source, rig.folder('a/writable'), false);
    await bindMount(source, rig.folder('a/readable'), true);
    await writeFile(`${rig.folder('a/writable')}/file`, 'new');
    expect(await readFile(`${rig.folder('a/readable')}/file`, 'utf8')).toBe('new');
    await expect(writeFile(`${rig.folder('a/readable')}/file`, 'no')).rejects.toMatchObject({ code: 'EROFS' });
    await unmount(rig.folder('a/writable'));
    await unmount(rig.folder('a/readable'));
  });

  test('a device is shown at a file', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await bindMount(path, rig.folder('device'), false);
    expect((await stat(rig.folder('device'))).isBlockDevice()).toBe(true);
    await unmount(rig.folder('device'));
    expect((await stat(rig.folder('device'))).isFile()).toBe(true);
  });

  test('unmounting clears what is stacked, and is right where nothing is mounted', async () => {
    const source = rig.folder('source');
    await mkdir(source);
    for (let count = 0; count < 3; count++) await bindMount(source, mountPoint, false);
    expect(await mountsAt(mountPoint)).toBe(3);
    await unmount(mountPoint);
    expect(await mountsAt(mountPoint)).toBe(0);
    await unmount(mountPoint);
    await unmount(rig.folder('missing/path'));
  });

  test('one in use is refused, and goes when it is let go lazily', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, mountPoint, 'ext4', []);
    await mkdir(`${mountPoint}/below`);
    await bindMount(rig.directory, `${mountPoint}/below`, false);
    await expect(unmount(mountPoint)).rejects.toMatchObject({ code: 'failed-precondition' });
    await unmount(mountPoint, { lazy: true });
    expect(await mountsAt(mountPoint)).toBe(0);
  });

  test('one whose device is dead is unmounted all the same', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, mountPoint, 'ext4', []);
    await writeFile(`${mountPoint}/file`, 'lost');
    await rig.devices.fail(VOLUME);
    await unmount(mountPoint);
    await rig.devices.remove(VOLUME);
    expect(await codeOfRun('test', ['-e', path])).toBeLessThan(2);
  });

  test('a mount that hangs ends at its deadline, holds up no other, and is made when the device answers', async () => {
    const stuck = new SparseStage(64 * MIB);
    await rig.serve({ volume: stuck, other: new SparseStage(64 * MIB) });
    const first = await rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
    const other = { ...rig.address, exportName: 'other' };
    const second = await rig.devices.create(OTHER_VOLUME, other, 64 * MIB, false);
    for (const { path } of [first, second]) await makeFilesystem(path, 'ext4', []);
    const release = stuck.hold();
    const hanging = mountFilesystem(first.path, mountPoint, 'ext4', [], 1_000);
    await mountFilesystem(second.path, rig.folder('second'), 'ext4', []);
    await expect(hanging).rejects.toMatchObject({ code: 'deadline-exceeded' });
    release();
    await unmount(mountPoint);
    await mountFilesystem(first.path, mountPoint, 'ext4', []);
    await unmount(mountPoint);
    await unmount(rig.folder('second'));
  });
});
