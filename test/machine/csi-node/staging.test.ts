import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { run } from '../../../src/base/run.js';
import { MEBIBYTE, TestNode } from './test-node.js';

const TOOL = { timeoutMs: 20_000 };

let node: TestNode;
beforeEach(async () => (node = await TestNode.create()));
afterEach(() => node.dispose());

async function expectNothingLeft(): Promise<void> {
  expect(await node.mounts()).toEqual([]);
  expect(await node.devices.list()).toEqual([]);
}

describe('NodeStageVolume', () => {
  it.each([
    ['ext4', 64],
    ['xfs', 300],
  ] as const)('a blank %s volume is formatted once, mounted, and keeps its data', async (type, mebibytes) => {
    const volume = await node.addVolume('a', {
      content: { kind: 'filesystem', type },
      capacityBytes: mebibytes * MEBIBYTE,
    });
    await node.stage(volume);
    expect(await node.mounts()).toMatchObject([{ mountPoint: node.path('staging'), fsType: type }]);
    expect(await node.record(volume)).toMatchObject({ format: 'formatted', writer: { node: 'node-1' } });
    await writeFile(join(node.path('staging'), 'file'), 'kept');
    await node.unstage(volume);
    await expectNothingLeft();
    expect((await node.record(volume)).writer).toBeNull();
    await node.stage(volume);
    expect(await readFile(join(node.path('staging'), 'file'), 'utf8')).toBe('kept');
    await node.unstage(volume);
  });

  it('three calls, one through a link, make one mount (B18)', async () => {
    const volume = await node.addVolume('a');
    await mkdir(node.path('staging'));
    await symlink(node.path('staging'), node.path('link'));
    await node.stage(volume);
    await node.stage(volume, { path: node.path('link') });
    await Promise.all([node.stage(volume), node.stage(volume)]);
    expect(await node.mounts()).toHaveLength(1);
  });

  it('another filesystem type or other flags are refused, the old mount untouched (B18)', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume, { flags: ['noatime'] });
    const before = await node.mounts();
    await expect(node.stage(volume, { filesystem: 'xfs', flags: ['noatime'] })).rejects.toMatchObject({
      code: 'already-exists',
    });
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'already-exists' });
    await expect(node.stage(volume, { flags: ['noatime', 'discard'] })).rejects.toMatchObject({
      code: 'already-exists',
    });
    await node.restart({ wipe: true });
    await expect(node.stage(volume, { flags: ['noexec'] })).rejects.toMatchObject({ code: 'already-exists' });
    await node.stage(volume, { flags: ['noatime'] });
    expect(await node.mounts()).toEqual(before);
  });

  it('a path that holds another volume is refused, the other volume untouched (B18)', async () => {
    const [first, second] = [await node.addVolume('a'), await node.addVolume('b')];
    await node.stage(first);
    const before = await node.mounts();
    await expect(node.stage(second)).rejects.toMatchObject({ code: 'already-exists' });
    expect(await node.mounts()).toEqual(before);
    expect((await node.devices.list()).map(({ volume }) => volume)).toEqual([first]);
  });

  it('of two volumes at one path at once, one is staged and the other refused', async () => {
    const volumes = [await node.addVolume('a'), await node.addVolume('b')];
    const calls = await Promise.allSettled(volumes.map((volume) => node.stage(volume)));
    expect(calls.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(calls.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'already-exists' } });
    expect(await node.mounts()).toHaveLength(1);
    expect(await node.devices.list()).toHaveLength(1);
  });

  it('a staging directory that was removed is made again (B18)', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    await run('umount', [node.path('staging')], TOOL);
    await rm(node.path('staging'), { recursive: true });
    await node.stage(volume);
    expect(await node.mounts()).toHaveLength(1);
  });

  it('a volume that does not exist, is being made or is being deleted is refused', async () => {
    await expect(node.stage(`vol-${'e'.repeat(32)}`)).rejects.toMatchObject({ code: 'not-found' });
    const volume = await node.addVolume('a');
    await node.change(volume, { phase: 'creating' });
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'aborted' });
    await node.change(volume, { phase: 'deleting' });
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await expectNothingLeft();
  });

  it('a volume that another node writes is refused by that name, and nothing is left behind', async () => {
    const volume = await node.addVolume('a');
    await node.change(volume, { writer: { node: 'node-2', session: '1'.repeat(32) } });
    await expect(node.stage(volume)).rejects.toThrow(/node-2/);
    await expectNothingLeft();
  });

  it('a failure half way takes back what the call did', async () => {
    const volume = await node.addVolume('a');
    node.devices.beforeCreate = () => Promise.reject(new HoldfastError('unavailable', 'no device'));
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await node.record(volume)).writer).toBeNull();
    node.devices.beforeCreate = () => Promise.resolve();
    await expect(node.stage(volume, { flags: ['no-such-option'] })).rejects.toMatchObject({
      code: expect.any(String) as string,
    });
    await expectNothingLeft();
    expect((await node.record(volume)).writer).toBeNull();
    await node.stage(volume);
  });

  it('a mount that is not ours at the path is refused and left', async () => {
    const volume = await node.addVolume('a');
    await mkdir(node.path('staging'));
    await run('mount', ['-t', 'tmpfs', 'tmpfs', node.path('staging')], TOOL);
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await node.unstage(volume);
    expect(await node.mounts()).toMatchObject([{ fsType: 'tmpfs' }]);
  });

  it('a loop mount that is not ours at the path is refused and left', async () => {
    const volume = await node.addVolume('a');
    await node.mountForeign(node.path('staging'));
    const before = await node.mounts();
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await node.unstage(volume);
    expect(await node.mounts()).toEqual(before);
  });

  it('a block volume has a device and nothing at the staging path', async () => {
    const volume = await node.addVolume('a', { content: { kind: 'block' } });
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'invalid-argument' });
    await node.stage(volume, { block: true });
    await node.stage(volume, { block: true });
    expect(await node.mounts()).toEqual([]);
    expect(await node.devices.list()).toHaveLength(1);
    expect((await node.record(volume)).format).toBe('blank');
    await node.unstage(volume);
    await expectNothingLeft();
  });
});

describe('formatting (B17)', () => {
  it('a device with data in it is never formatted, though the record says blank', async () => {
    const volume = await node.addVolume('a');
    await mkdir(node.path('devices'));
    await writeFile(node.devices.file(volume), Buffer.alloc(MEBIBYTE, 7));
    await run('truncate', ['--size=64M', node.devices.file(volume)], TOOL);
    const before = await node.checksum(volume);
    await expect(node.stage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await node.checksum(volume)).toBe(before);
    expect((await node.record(volume)).format).toBe('blank');
    await expectNothingLeft();
  });

  it('a formatted volume that reads as zeros is an error, and is not formatted again', async () => {
    const volume = await node.addVolume('a');
    await node.change(volume, { format: 'formatted' });
    await expect(node.stage(volume)).rejects.toBeInstanceOf(HoldfastError);
    await expectNothingLeft();
    const zeros = await node.checksum(volume);
    await run('cmp', ['--bytes', String(64 * MEBIBYTE), node.devices.file(volume), '/dev/zero'], TOOL);
    expect(zeros).toHaveLength(64);
  });

  it('an unreadable device is an error, never blank', async () => {
    const volume = await node.addVolume('a');
    const create = node.devices.create.bind(node.devices);
    node.devices.create = async (...given) => {
      const device = await create(...given);
      await node.devices.fail(volume);
      return device;
    };
    await expect(node.stage(volume)).rejects.toBeInstanceOf(HoldfastError);
    expect((await node.record(volume)).format).toBe('blank');
    await run('cmp', ['--bytes', String(64 * MEBIBYTE), node.devices.file(volume), '/dev/zero'], TOOL);
    await expectNothingLeft();
  });

  it('a format that was cut off is done again', async () => {
    const volume = await node.addVolume('a');
    await node.change(volume, { format: 'formatting' });
    await mkdir(node.path('devices'));
    await writeFile(node.devices.file(volume), Buffer.alloc(MEBIBYTE, 7));
    await node.stage(volume);
    expect((await node.record(volume)).format).toBe('formatted');
    expect(await node.mounts()).toHaveLength(1);
  });
});
