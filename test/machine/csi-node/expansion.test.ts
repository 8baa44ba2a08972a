import { readFileSync } from 'node:fs';
import { statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { run } from '../../../src/base/run.js';
import type { VolumeId } from '../../../src/model/ids.js';
import { MEBIBYTE, TestNode } from './test-node.js';

let node: TestNode;
beforeEach(async () => (node = await TestNode.create()));
afterEach(() => node.dispose());

function expand(volume: VolumeId, path: string, requiredBytes = 0): Promise<number> {
  return node.volumes.expand({ volume, path, requiredBytes, limitBytes: 0, access: null }, () => 60_000);
}

async function filesystemBytes(path: string): Promise<number> {
  const { blocks, bsize } = await statfs(path);
  return blocks * bsize;
}

const GROWTHS = [
  ['ext4', 64, 192],
  ['xfs', 300, 600],
] as const;

/** Online growth of ext4 asks for CAP_SYS_RESOURCE (bit 24), which not every machine gives to root. */
const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0';
const mayGrowExt4 = ((BigInt(`0x${capabilities}`) >> 24n) & 1n) === 1n;
const ONLINE = GROWTHS.filter(([type]) => type === 'xfs' || mayGrowExt4);

describe('NodeExpandVolume', () => {
  it.each(ONLINE)(
    '%s grows online, by the target or the staging path, twice at once (B34)',
    async (type, before, after) => {
      const volume = await node.addVolume('a', {
        content: { kind: 'filesystem', type },
        capacityBytes: before * MEBIBYTE,
      });
      await node.publish(volume);
      await node.change(volume, { capacityBytes: after * MEBIBYTE });
      const sizes = await Promise.all([expand(volume, node.path('target')), expand(volume, node.path('staging'))]);
      expect(sizes).toEqual([after * MEBIBYTE, after * MEBIBYTE]);
      expect(await filesystemBytes(node.path('target'))).toBeGreaterThan(((before + after) / 2) * MEBIBYTE);
      await writeFile(join(node.path('target'), 'file'), Buffer.alloc(before * MEBIBYTE));
    },
  );

  it.each(ONLINE)(
    'a growth of %s that stopped after the device is finished by the next stage (B34, B35)',
    async (type, before, after) => {
      const volume = await node.addVolume('a', {
        content: { kind: 'filesystem', type },
        capacityBytes: before * MEBIBYTE,
      });
      await node.stage(volume);
      await node.change(volume, { capacityBytes: after * MEBIBYTE });
      await node.attachments.grow(volume);
      await node.devices.grow(volume, after * MEBIBYTE);
      await node.stage(volume);
      expect(await filesystemBytes(node.path('staging'))).toBeGreaterThan(((before + after) / 2) * MEBIBYTE);
    },
  );

  it.each(GROWTHS)(
    '%s that grew while it was not staged has its size at the next stage (B35)',
    async (type, before, after) => {
      const volume = await node.addVolume('a', {
        content: { kind: 'filesystem', type },
        capacityBytes: before * MEBIBYTE,
      });
      await node.stage(volume);
      await node.unstage(volume);
      await node.change(volume, { capacityBytes: after * MEBIBYTE });
      await node.stage(volume);
      expect(await filesystemBytes(node.path('staging'))).toBeGreaterThan(((before + after) / 2) * MEBIBYTE);
    },
  );

  it('a block volume grows by any of its paths, and its content is untouched (B33)', async () => {
    const volume = await node.addVolume('a', { content: { kind: 'block' } });
    await node.publish(volume, { block: true });
    await node.change(volume, { capacityBytes: 128 * MEBIBYTE });
    for (const path of ['target', 'staging', 'target']) {
      expect(await expand(volume, node.path(path))).toBe(128 * MEBIBYTE);
    }
    const { stdout } = await run('blockdev', ['--getsize64', node.path('target')], { timeoutMs: 5_000 });
    expect(Number(stdout)).toBe(128 * MEBIBYTE);
    await run('cmp', ['--bytes', String(128 * MEBIBYTE), node.devices.file(volume), '/dev/zero'], {
      timeoutMs: 20_000,
    });
  });

  it('unknown volumes and paths are not found; a size beyond the record is out of range', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    await expect(expand(`vol-${'e'.repeat(32)}`, '/any')).rejects.toMatchObject({ code: 'not-found' });
    await expect(expand(volume, node.path('elsewhere'))).rejects.toMatchObject({ code: 'not-found' });
    await expect(expand(volume, node.path('staging'), 65 * MEBIBYTE)).rejects.toMatchObject({ code: 'out-of-range' });
  });
});

describe('NodeGetVolumeStats and NodeGetVolumeHealth', () => {
  const usage = (volume: VolumeId, path: string) => node.volumes.usage({ volume, path }, () => 10_000);

  it('a filesystem tells bytes and inodes, a block volume its size', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    const [bytes, inodes] = await usage(volume, node.path('target'));
    expect(bytes?.unit).toBe('BYTES');
    expect(inodes?.unit).toBe('INODES');
    for (const row of [bytes, inodes]) {
      expect(row?.total).toBeGreaterThan(0);
      expect(row?.used).toBeGreaterThan(0);
      expect((row?.used ?? 0) + (row?.available ?? 0)).toBeLessThanOrEqual(row?.total ?? 0);
    }
    const block = await node.addVolume('b', { content: { kind: 'block' } });
    await node.publish(block, { block: true, path: node.path('s'), target: node.path('t') });
    expect(await usage(block, node.path('t'))).toEqual([{ unit: 'BYTES', total: 64 * MEBIBYTE }]);
  });

  it('unknown volumes and paths are not found', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    await expect(usage(volume, 'some/path')).rejects.toMatchObject({ code: 'not-found' });
    await expect(usage(`vol-${'e'.repeat(32)}`, node.path('staging'))).rejects.toMatchObject({ code: 'not-found' });
    await expect(node.volumes.conditions(`vol-${'e'.repeat(32)}`)).rejects.toMatchObject({ code: 'not-found' });
  });

  it('a healthy volume has no condition, one whose attachment has ended is inaccessible', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    expect(await node.volumes.conditions(volume)).toEqual([]);
    node.attachments.fence(volume);
    expect(await node.volumes.conditions(volume)).toMatchObject([
      { status: 'INACCESSIBLE', reason: 'AttachmentEnded' },
    ]);
  });
});
