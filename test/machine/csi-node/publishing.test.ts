import { mkdir, open, readFile, stat, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { run } from '../../../src/base/run.js';
import { MEBIBYTE, TestNode } from './test-node.js';

const TOOL = { timeoutMs: 20_000 };

let node: TestNode;
beforeEach(async () => (node = await TestNode.create()));
afterEach(() => node.dispose());

async function writeBlock(path: string): Promise<void> {
  const file = await open(path, 'r+');
  try {
    await file.write(Buffer.alloc(4096, 1));
    await file.sync();
  } finally {
    await file.close();
  }
}

describe('NodePublishVolume', () => {
  it('repeats, with a restart in between, make one mount; one unpublish ends it (B21)', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    for (let round = 0; round < 20; round++) {
      if (round === 10) await node.restart();
      await node.publish(volume);
      expect(await node.mounts(node.path('target'))).toHaveLength(1);
    }
    await node.unpublish(volume);
    expect(await node.mounts(node.path('target'))).toEqual([]);
    expect(existsSync(node.path('target'))).toBe(false);
    await node.unstage(volume);
    expect(await node.devices.list()).toEqual([]);
  });

  it('a block volume is its device node at the target, once however often asked (B21)', async () => {
    const volume = await node.addVolume('a', { content: { kind: 'block' } });
    await node.stage(volume, { block: true });
    for (let round = 0; round < 20; round++) await node.publish(volume, { block: true });
    expect(await node.mounts()).toHaveLength(1);
    expect((await stat(node.path('target'))).isBlockDevice()).toBe(true);
    const { stdout } = await run('blockdev', ['--getsize64', node.path('target')], TOOL);
    expect(Number(stdout)).toBe(64 * MEBIBYTE);
    await expect(node.unstage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await node.unpublish(volume);
    expect(existsSync(node.path('target'))).toBe(false);
    await node.unstage(volume);
    expect(await node.devices.list()).toEqual([]);
  });

  it('without a stage the volume is staged first, whatever lies at the staging path (B20)', async () => {
    const block = await node.addVolume('a', { content: { kind: 'block' } });
    await writeFile(node.path('staging-block'), 'a plain file');
    await node.publish(block, { block: true, path: node.path('staging-block'), target: node.path('target-block') });
    expect((await stat(node.path('target-block'))).isBlockDevice()).toBe(true);

    const volume = await node.addVolume('b');
    await mkdir(node.path('staging'));
    await node.publish(volume);
    expect(await node.mounts(node.path('target'))).toMatchObject([{ fsType: 'ext4' }]);
  });

  it('a plain file in the place of the staging directory never becomes a volume (B20)', async () => {
    const volume = await node.addVolume('a');
    await writeFile(node.path('staging'), 'a plain file');
    await expect(node.publish(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await node.mounts()).toEqual([]);
    expect(await node.devices.list()).toEqual([]);
    expect(await readFile(node.path('staging'), 'utf8')).toBe('a plain file');
  });

  it('readonly is honoured', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume, { readOnly: true });
    await expect(writeFile(join(node.path('target'), 'file'), 'x')).rejects.toMatchObject({ code: 'EROFS' });
    await expect(node.publish(volume)).rejects.toMatchObject({ code: 'already-exists' });
    await node.publish(volume, { target: node.path('second') });
    await writeFile(join(node.path('second'), 'file'), 'x');
  });

  it('a volume staged with the flag ro is read-only, and alive', async () => {
    const volume = await node.addVolume('a');
    const wish = { flags: ['ro'] };
    await node.stage(volume, wish);
    const [before] = await node.mounts();
    for (let round = 0; round < 2; round++) {
      await node.stage(volume, wish);
      await node.publish(volume, { ...wish, readOnly: true });
    }
    expect((await node.mounts(node.path('staging')))[0]).toEqual(before);
    await expect(writeFile(join(node.path('target'), 'file'), 'x')).rejects.toMatchObject({ code: 'EROFS' });
  });

  it('readonly is honoured for a block volume, and all its publications agree', async () => {
    const volume = await node.addVolume('a', { content: { kind: 'block' } });
    await node.publish(volume, { block: true, readOnly: true });
    await expect(writeBlock(node.path('target'))).rejects.toMatchObject({ code: 'EPERM' });
    const second = { block: true, target: node.path('second') };
    await expect(node.publish(volume, second)).rejects.toMatchObject({ code: 'failed-precondition' });
    await node.unpublish(volume);
    await node.publish(volume, second);
    await writeBlock(node.path('second'));
    await node.unpublish(volume, node.path('second'));
    await node.publish(volume, { block: true, readOnly: true });
    await node.unpublish(volume);
    await node.unstage(volume);
    await node.stage(await node.addVolume('b'));
  });

  it('a volume of a single writer is published once only', async () => {
    const volume = await node.addVolume('a');
    const mode = 'SINGLE_NODE_SINGLE_WRITER' as const;
    await node.stage(volume, { mode });
    await node.publish(volume, { mode });
    await node.publish(volume, { mode });
    await expect(node.publish(volume, { mode, target: node.path('other') })).rejects.toMatchObject({
      code: 'failed-precondition',
    });
    expect(existsSync(node.path('other'))).toBe(false);
    await node.unpublish(volume);
    await node.publish(volume, { mode, target: node.path('other') });
  });

  it('of two volumes at one target at once, one is published and the other refused', async () => {
    const volumes = [await node.addVolume('a'), await node.addVolume('b')];
    for (const volume of volumes) await node.stage(volume, { path: node.path(volume) });
    const calls = await Promise.allSettled(volumes.map((volume) => node.publish(volume, { path: node.path(volume) })));
    expect(calls.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(calls.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'already-exists' } });
    expect(await node.mounts(node.path('target'))).toHaveLength(1);
  });

  it('a loop mount that is not ours at the target is refused and left', async () => {
    const volume = await node.addVolume('a');
    await node.mountForeign(node.path('target'));
    const before = await node.mounts(node.path('target'));
    await expect(node.publish(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await node.unpublish(volume);
    expect(await node.mounts(node.path('target'))).toEqual(before);
  });

  it('after the attachment has ended the stale mounts go, and the volume is staged anew', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    await writeFile(join(node.path('target'), 'file'), 'flushed');
    await run('sync', ['-f', node.path('target')], TOOL);
    await node.devices.fail(volume);
    node.attachments.fence(volume);
    await node.change(volume, { writer: null });
    await node.publish(volume);
    expect(await readFile(join(node.path('target'), 'file'), 'utf8')).toBe('flushed');
    expect(await node.mounts()).toHaveLength(2);
  });

  it('while the store is away a staged volume is still published', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    await node.store.delete('volume', `vol-${'a'.repeat(24)}`);
    await node.publish(volume);
    expect(await node.mounts(node.path('target'))).toHaveLength(1);
  });
});

describe('NodeUnpublishVolume (B22)', () => {
  it('a missing path, an empty folder, and a repeat are fine; the folder goes', async () => {
    const volume = await node.addVolume('a');
    await node.unpublish(volume);
    await mkdir(node.path('target'));
    await node.unpublish(volume);
    expect(existsSync(node.path('target'))).toBe(false);
    await node.unpublish(volume);
    await node.unpublish('unknown');
  });

  it('a folder with files that is no mount is never emptied', async () => {
    const volume = await node.addVolume('a');
    await mkdir(node.path('target'));
    await writeFile(join(node.path('target'), 'file'), 'precious');
    await expect(node.unpublish(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await expect(node.unstage(volume, node.path('target'))).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await readFile(join(node.path('target'), 'file'), 'utf8')).toBe('precious');
  });

  it.each([true, false])('a mount whose device is gone is cleared (state wiped: %s)', async (wipe) => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    await node.devices.fail(volume);
    await node.restart({ wipe });
    await node.unpublish(volume);
    await node.unstage(volume);
    expect(await node.mounts()).toEqual([]);
    expect(await node.devices.list()).toEqual([]);
    expect(existsSync(node.path('target'))).toBe(false);
  });

  it('another volume at the path is left as it is', async () => {
    const [first, second] = [await node.addVolume('a'), await node.addVolume('b')];
    await node.publish(first);
    await expect(node.unpublish(second)).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await node.mounts(node.path('target'))).toHaveLength(1);
  });

  it('a target in use is refused and stays', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    const held = await open(join(node.path('target'), 'open'), 'w');
    try {
      await expect(node.unpublish(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
      expect(await node.mounts(node.path('target'))).toHaveLength(1);
    } finally {
      await held.close();
    }
    await node.unpublish(volume);
  });
});

describe('NodeUnstageVolume (B23)', () => {
  it('works from the kernel alone after the state was wiped', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    await node.restart({ wipe: true });
    await node.unstage(volume);
    expect(await node.mounts()).toEqual([]);
    expect(await node.devices.list()).toEqual([]);
    expect((await node.record(volume)).writer).toBeNull();
    await node.unstage(volume);
  });

  it('is refused while the volume is published, which goes on', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    await expect(node.unstage(volume)).rejects.toThrow(node.path('target'));
    await writeFile(join(node.path('target'), 'file'), 'still there');
  });

  it('a filesystem that was made read-only by an error is replaced at the next stage, not reused', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    await run('mount', ['-o', 'remount,ro', node.path('staging')], TOOL);
    await node.stage(volume);
    await writeFile(join(node.path('staging'), 'file'), 'writable again');
    expect((await node.mounts(node.path('staging')))[0]?.superOptions).toContain('rw');
  });

  it('a dead filesystem at the staging path is replaced', async () => {
    const volume = await node.addVolume('a', {
      content: { kind: 'filesystem', type: 'xfs' },
      capacityBytes: 300 * MEBIBYTE,
    });
    await node.stage(volume);
    await run('xfs_io', ['-x', '-c', 'shutdown', node.path('staging')], TOOL);
    await expect(stat(join(node.path('staging'), 'x'))).rejects.toMatchObject({ code: 'EIO' });
    await node.stage(volume);
    await writeFile(join(node.path('staging'), 'file'), 'alive');
  });
});
