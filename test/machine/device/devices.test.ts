import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { run } from '../../../src/base/run.js';
import {
  bindMount,
  checkFilesystem,
  deviceSize,
  makeFilesystem,
  mountFilesystem,
  unmount,
} from '../../../src/device/filesystem.js';
import { readAllMountTables } from '../../../src/base/mount-table.js';
import { loopSize } from '../../../src/device/loop.js';
import { GIB, MIB, OTHER_VOLUME, Rig, VOLUME, codeOfRun, fio, killed, leftBelow, until } from './rig.js';
import { SparseStage } from './sparse-stage.js';

let rig: Rig;

beforeEach(async () => {
  rig = await Rig.start();
});

afterEach(async () => {
  await rig.end();
  expect(await leftBelow(rig.directory)).toEqual([]);
});

const tool = (command: string, ...args: string[]): Promise<{ stdout: string }> =>
  run(command, args, { timeoutMs: 60_000 });

describe('what is done to the device arrives at the export', () => {
  test('random writes at depth 32 read back as written', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    expect(await fio(path).done).toBe(0);
  });

  test('large writes and reads are split and put together again', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    expect(await fio(path, { bs: '1M', rw: 'write', iodepth: 8 }).done).toBe(0);
    expect(await fio(path, { bs: '64k-1M', rw: 'randwrite', iodepth: 8, blockalign: '4k' }).done).toBe(0);
  });

  test('an fsync flushes it', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    await tool('dd', 'if=/dev/zero', `of=${path}`, 'bs=4k', 'count=4', 'conv=fsync', 'status=none');
    expect(stage.counts.flush).toBeGreaterThan(0);
    expect(stage.counts.write).toBeGreaterThan(0);
  });

  test('a discard trims it, write-zeroes zeroes it', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    await tool('dd', 'if=/dev/urandom', `of=${path}`, 'bs=1M', 'count=16', 'oflag=direct', 'status=none');
    expect(stage.usedBytes).toBe(16 * MIB);
    await tool('blkdiscard', '--force', '--offset', String(4 * MIB), '--length', String(4 * MIB), path);
    expect([stage.usedBytes, stage.trimmedBytes]).toEqual([12 * MIB, 4 * MIB]);
    await tool('blkdiscard', '--force', '--zeroout', '--offset', '0', '--length', String(MIB), path);
    expect(stage.usedBytes).toBe(11 * MIB);
    expect(stage.counts.zero).toBeGreaterThan(0);
    await tool('blkdiscard', '--force', path);
    expect(stage.usedBytes).toBe(0);
  });

  for (const type of ['ext4', 'xfs'] as const) {
    test(`${type}: fstrim gives back the room of deleted files`, async () => {
      const stage = new SparseStage(512 * MIB);
      const { path } = await rig.device(stage);
      await makeFilesystem(path, type, []);
      await checkFilesystem(path, type);
      await mountFilesystem(path, rig.folder('mnt'), type, []);
      await tool(
        'dd',
        'if=/dev/urandom',
        `of=${rig.folder('mnt')}/file`,
        'bs=1M',
        'count=64',
        'conv=fsync',
        'status=none',
      );
      const full = stage.usedBytes;
      await tool('rm', `${rig.folder('mnt')}/file`);
      await tool('sync', '--file-system', rig.folder('mnt'));
      await tool('fstrim', rig.folder('mnt'));
      expect(full - stage.usedBytes).toBeGreaterThan(60 * MIB);
      await unmount(rig.folder('mnt'));
    });
  }

  test('a filesystem on 4 TiB is made in seconds', async () => {
    await rig.nbdkit('memory', '4T');
    const { path } = await rig.devices.create(VOLUME, rig.address, 4096 * GIB, false);
    for (const type of ['ext4', 'xfs'] as const) await makeFilesystem(path, type, [], 60_000);
  });

  test('what the export answers is passed on: EIO, ENOSPC, and a fence as EIO', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    const write = (): Promise<number> =>
      codeOfRun('dd', ['if=/dev/zero', `of=${path}`, 'bs=4k', 'count=1', 'oflag=direct']);
    for (const code of ['io-error', 'no-space', 'fenced'] as const) {
      stage.failure = new HoldfastError(code, 'no');
      expect(await write()).not.toBe(0);
    }
    stage.failure = undefined;
    expect(await write()).toBe(0);
  });

  test('a read-only device takes no writes', async () => {
    await rig.serve({ volume: new SparseStage(64 * MIB) });
    const { path, readOnly } = await rig.devices.create(VOLUME, rig.address, 64 * MIB, true);
    expect(readOnly).toBe(true);
    expect(await codeOfRun('dd', ['if=/dev/zero', `of=${path}`, 'bs=4k', 'count=1', 'oflag=direct'])).not.toBe(0);
    expect(await codeOfRun('dd', [`if=${path}`, 'of=/dev/null', 'bs=4k', 'count=1', 'iflag=direct'])).toBe(0);
  });
});

describe('while the export is away', () => {
  test('I/O waits and goes on without an error, also when the server is killed in mid-write', async () => {
    const file = rig.folder('data');
    await writeFile(file, '');
    await tool('truncate', '--size', '64M', file);
    let server = await rig.nbdkit('file', file);
    const { path } = await rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
    const work = fio(path, { size: '48M', loops: 2, rate_iops: 4000 });
    for (let round = 0; round < 4; round++) {
      await new Promise((resolve) => setTimeout(resolve, 400));
      await killed(server);
      await new Promise((resolve) => setTimeout(resolve, 200));
      server = await rig.nbdkit('file', file);
    }
    expect(await work.done).toBe(0);
  });

  test('the other devices go on', async () => {
    const stuck = new SparseStage(64 * MIB);
    await rig.serve({ volume: stuck, other: new SparseStage(64 * MIB) });
    const first = await rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
    const other = { ...rig.address, exportName: 'other' };
    const second = await rig.devices.create(OTHER_VOLUME, other, 64 * MIB, false);
    const release = stuck.hold();
    const waiting = fio(first.path, { size: '8M' });
    await until(() => stuck.counts.write > 0);
    expect(await fio(second.path, { size: '8M' }).done).toBe(0);
    release();
    expect(await waiting.done).toBe(0);
  });

  test('more may wait than there is memory for', async () => {
    const stage = new SparseStage(128 * MIB);
    const { path } = await rig.device(stage);
    const release = stage.hold();
    const large = fio(path, { bs: '1M', iodepth: 32, size: '32M' });
    const small = fio(path, { rw: 'randrw', iodepth: 64, size: '32M', offset: '64M', io_size: '4M' });
    await until(() => stage.counts.write > 0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    release();
    expect(await Promise.all([large.done, small.done])).toEqual([0, 0]);
  });

  test('failing the device fails what waits, and the device can be removed', async () => {
    const end = await rig.serve({ volume: new SparseStage(64 * MIB) });
    const { path } = await rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
    await end();
    const work = fio(path, { size: '8M' });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(work.child.exitCode).toBeNull();
    await rig.devices.fail(VOLUME);
    expect(await work.done).not.toBe(0);
    expect(await rig.devices.list()).toMatchObject([{ failed: true }]);
    await expect(rig.devices.create(VOLUME, rig.address, 64 * MIB, false)).rejects.toMatchObject({
      code: 'failed-precondition',
    });
    await rig.devices.remove(VOLUME);
    expect(await leftBelow(rig.directory)).toEqual([]);
  });

  test('a request that the server holds is failed too', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    const release = stage.hold();
    const work = fio(path, { size: '8M' });
    await until(() => stage.counts.write > 0);
    await rig.devices.fail(VOLUME);
    expect(await work.done).not.toBe(0);
    release();
  });
});

describe('making, growing, removing', () => {
  test('the same device is found again, by two callers at once too', async () => {
    await rig.serve({ volume: new SparseStage(64 * MIB) });
    const make = (): ReturnType<typeof rig.devices.create> => rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
    const [first, second] = await Promise.all([make(), make()]);
    expect(first).toEqual(second);
    expect(await make()).toEqual(first);
    expect(await rig.devices.list()).toEqual([first]);
  });

  test('another export or mode for the same volume is refused', async () => {
    await rig.device(new SparseStage(64 * MIB));
    const other = { ...rig.address, exportName: 'other' };
    await expect(rig.devices.create(VOLUME, other, 64 * MIB, false)).rejects.toMatchObject({ code: 'already-exists' });
    await expect(rig.devices.create(VOLUME, rig.address, 64 * MIB, true)).rejects.toMatchObject({
      code: 'already-exists',
    });
  });

  test('without an export nothing is made', async () => {
    await expect(rig.devices.create(VOLUME, rig.address, 64 * MIB, false)).rejects.toMatchObject({
      code: 'unavailable',
    });
    await rig.serve({ other: new SparseStage(64 * MIB) });
    await expect(rig.devices.create(VOLUME, rig.address, 64 * MIB, false)).rejects.toMatchObject({ code: 'not-found' });
    await expect(
      rig.devices.create(VOLUME, { ...rig.address, exportName: 'other' }, 128 * MIB, false),
    ).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await leftBelow(rig.directory)).toEqual([]);
    expect(await rig.devices.list()).toEqual([]);
  });

  test('with an export that does not answer nothing is made, and it can be tried again', async () => {
    const stage = new SparseStage(64 * MIB);
    await rig.serve({ volume: stage });
    const release = stage.hold();
    const make = (): ReturnType<typeof rig.devices.create> => rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
    await expect(make()).rejects.toMatchObject({ code: 'deadline-exceeded' });
    expect(await leftBelow(rig.directory)).toEqual([]);
    release();
    expect(await fio((await make()).path, { size: '4M' }).done).toBe(0);
  });

  test('bad requests are refused by field', async () => {
    const { address, devices } = rig;
    await expect(devices.create('../x', address, MIB, false)).rejects.toMatchObject({ code: 'invalid-argument' });
    await expect(devices.create(VOLUME, address, 1000, false)).rejects.toMatchObject({ code: 'invalid-argument' });
    const relative = { ...address, socketPath: 'x' };
    await expect(devices.create(VOLUME, relative, MIB, false)).rejects.toMatchObject({ code: 'invalid-argument' });
    await expect(devices.grow(VOLUME, MIB)).rejects.toMatchObject({ code: 'not-found' });
    await devices.fail(VOLUME);
    await devices.remove(VOLUME);
  });

  test('it grows under load, and never shrinks', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    const work = fio(path, { size: '32M', loops: 2 });
    for (const size of [96, 128, 160, 192]) {
      stage.sizeBytes = size * MIB;
      await rig.devices.grow(VOLUME, size * MIB);
      expect(await loopSize(path)).toBe(size * MIB);
    }
    expect(await work.done).toBe(0);
    await rig.devices.grow(VOLUME, 64 * MIB);
    expect(await deviceSize(path)).toBe(192 * MIB);
    expect(await fio(path, { size: '32M', offset: '160M' }).done).toBe(0);
  });

  test('one that is mounted is not removed, and works on', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, rig.folder('mnt'), 'ext4', []);
    await expect(rig.devices.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    await writeFile(`${rig.folder('mnt')}/file`, 'still there');
    await unmount(rig.folder('mnt'));
    await mountFilesystem(path, rig.folder('mnt'), 'ext4', []);
    await unmount(rig.folder('mnt'));
    await rig.devices.remove(VOLUME);
    await rig.devices.remove(VOLUME);
    expect(await rig.devices.list()).toEqual([]);
  });

  test('one whose node is bound to a path is not removed, and works on', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await bindMount(path, rig.folder('target'), false);
    await expect(rig.devices.remove(VOLUME)).rejects.toThrow(rig.folder('target'));
    expect(await rig.devices.list()).toMatchObject([{ path, failed: false }]);
    expect(await fio(rig.folder('target'), { size: '4M' }).done).toBe(0);
    await unmount(rig.folder('target'));
    await rig.devices.remove(VOLUME);
    expect(await rig.devices.list()).toEqual([]);
  });

  test('one whose node is bound in another mount namespace is not removed', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await bindMount(path, rig.folder('target'), false);
    const child = spawn('unshare', ['--mount', '--propagation', 'private', 'sleep', '100'], { stdio: 'ignore' });
    try {
      const seen = async (): Promise<number> =>
        (await readAllMountTables()).filter(({ mountPoint }) => mountPoint === rig.folder('target')).length;
      await until(async () => (await seen()) === 2);
      await unmount(rig.folder('target'));
      await expect(rig.devices.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    } finally {
      await killed(child);
    }
    await rig.devices.remove(VOLUME);
    expect(await rig.devices.list()).toEqual([]);
  });

  test('one that is open is removed after its last close', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    const holder = fio(path, { rw: 'randread', verify: 0, time_based: 1, runtime: 30, size: '32M', rate_iops: 100 });
    await new Promise((resolve) => setTimeout(resolve, 500));
    await expect(rig.devices.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    await expect(rig.devices.create(VOLUME, rig.address, 64 * MIB, false)).rejects.toMatchObject({
      code: 'failed-precondition',
    });
    holder.child.kill('SIGTERM');
    await holder.done;
    await rig.devices.remove(VOLUME);
    expect(await leftBelow(rig.directory)).toEqual([]);
  });
});

describe('a removal that an open cuts short', () => {
  const make = (): ReturnType<typeof rig.devices.create> => rig.devices.create(VOLUME, rig.address, 64 * MIB, false);
  const told = async (): Promise<object | undefined> =>
    (await rig.devices.list()).find(({ volume }) => volume === VOLUME);

  test('is finished by who wants the device next, after the last close', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    const holder = await rig.holder(path);
    await expect(rig.devices.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    await expect(make()).rejects.toMatchObject({ code: 'failed-precondition' });
    await holder.close();
    const again = await make();
    expect(await told()).toEqual(again);
    expect(await fio(again.path, { size: '4M' }).done).toBe(0);
    await rig.devices.remove(VOLUME);
    expect(await leftBelow(rig.directory)).toEqual([]);
  });

  test('lets the last users write, but does not grow, and tells no path', async () => {
    const stage = new SparseStage(64 * MIB);
    const { path } = await rig.device(stage);
    const holder = await rig.holder(path);
    await expect(rig.devices.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await told()).toMatchObject({ path: '', failed: false });
    await expect(rig.devices.grow(VOLUME, 128 * MIB)).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await holder.write()).toBe(0);
    await holder.close();
    expect(stage.usedBytes).toBe(4096);
  });

  test('leaves the number of the device to the next volume', async () => {
    await rig.serve({ volume: new SparseStage(64 * MIB), other: new SparseStage(128 * MIB) });
    const { path } = await make();
    const holder = await rig.holder(path);
    await expect(rig.devices.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    await holder.close();
    await until(async () => (await leftBelow(rig.directory)).every((left) => left !== path));
    const other = { ...rig.address, exportName: 'other' };
    const next = await rig.devices.create(OTHER_VOLUME, other, 128 * MIB, false);
    expect(await told()).toMatchObject({ path: '', failed: true });
    const again = await make();
    expect(again.path).not.toBe(next.path);
    expect(await rig.devices.list()).toEqual([next, again]);
    expect(await deviceSize(next.path)).toBe(128 * MIB);
  });

  test('that somebody else detaches gives its number to nobody while its node is bound to a path', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await bindMount(path, rig.folder('target'), false);
    await tool('losetup', '--detach', path);
    await until(async () => !(await leftBelow(rig.directory)).includes(path));
    const again = await make();
    expect(again.path).not.toBe(path);
    expect(await fio(again.path, { size: '4M' }).done).toBe(0);
    await unmount(rig.folder('target'));
  });

  test('counts as one where somebody else detaches the device', async () => {
    const { path } = await rig.device(new SparseStage(64 * MIB));
    await tool('losetup', '--detach', path);
    await until(async () => !(await leftBelow(rig.directory)).includes(path));
    expect(await told()).toMatchObject({ path: '', failed: true });
    expect(await told()).not.toEqual(await make());
    expect(await told()).toMatchObject({ failed: false });
  });
});
