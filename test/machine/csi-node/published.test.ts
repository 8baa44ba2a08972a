import { stat } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { run } from '../../../src/base/run.js';
import type { BlockDevice } from '../../../src/device/device.js';
import type { VolumeId } from '../../../src/model/ids.js';
import { holdOpen, type Holder } from '../device/holder.js';
import { codeOfRun } from '../device/rig.js';
import { FuseDevices } from './fuse-devices.js';
import { TestNode } from './test-node.js';

const BLOCK = { content: { kind: 'block' } } as const;

let node: TestNode<FuseDevices>;
let holder: Holder | undefined;
beforeEach(async () => {
  const devices = await FuseDevices.start();
  node = await TestNode.on(() => devices);
});
afterEach(async () => {
  await holder?.close();
  holder = undefined;
  await node.dispose();
});

const settle = (volume: VolumeId): Promise<void> => node.volumes.settle(volume, 5_000);

async function device(volume: VolumeId): Promise<BlockDevice | undefined> {
  return (await node.devices.list()).find((listed) => listed.volume === volume);
}

/** Another volume, mounted beside. */
async function publishNext(): Promise<VolumeId> {
  const next = await node.addVolume('b');
  await node.publish(next, { path: node.path('next'), target: node.path('next-target') });
  return next;
}

const read = (path: string): Promise<number> =>
  codeOfRun('dd', [`if=${path}`, 'of=/dev/null', 'bs=4k', 'count=1', 'iflag=direct']);
const write = (path: string): Promise<number> =>
  codeOfRun('dd', ['if=/dev/zero', `of=${path}`, 'bs=4k', 'count=1', 'oflag=direct', 'conv=notrunc']);

/** Ways in which an attachment ends while its volume is published. */
const ENDS = {
  fence: (volume: VolumeId) => {
    node.attachments.fence(volume);
    return settle(volume);
  },
  release: (volume: VolumeId) => node.volumes.end(volume, 30_000),
} as const;

describe('a block volume whose attachment ends while it is published, but not open', () => {
  it.each(['fence', 'release'] as const)('(%s) fails all I/O at its path, whatever volume comes next', async (end) => {
    const volume = await node.addVolume('a', BLOCK);
    await node.publish(volume, { block: true });
    await ENDS[end](volume);
    const kept = await device(volume);
    expect(kept).toMatchObject({ failed: true });
    const next = await publishNext();
    expect((await device(next))?.path).not.toBe(kept?.path);
    for (const use of [read, write]) expect(await use(node.path('target'))).not.toBe(0);
  });

  it.each(['fence', 'release'] as const)('(%s) goes when it is unpublished, and so does the next one', async (end) => {
    const volume = await node.addVolume('a', BLOCK);
    await node.publish(volume, { block: true });
    await ENDS[end](volume);
    const next = await publishNext();
    await node.unpublish(volume);
    await settle(volume);
    expect((await node.devices.list()).map((listed) => listed.volume)).toEqual([next]);
    await node.unstage(volume);
    await node.unpublish(next, node.path('next-target'));
    await node.unstage(next, node.path('next'));
    expect(await node.devices.list()).toEqual([]);
  });

  it('can be published again beside the next volume, which is untouched', async () => {
    const volume = await node.addVolume('a', BLOCK);
    await node.publish(volume, { block: true });
    await ENDS.fence(volume);
    await publishNext();
    const before = await node.mounts(node.path('next-target'));
    await node.publish(volume, { block: true });
    expect(await node.mounts(node.path('next-target'))).toEqual(before);
    expect(await device(volume)).toMatchObject({ failed: false });
    expect(await read(node.path('target'))).toBe(0);
  });
});

describe('a block volume whose attachment ends while it is published and open', () => {
  it('keeps its number after the close, until it is unpublished', async () => {
    const volume = await node.addVolume('a', BLOCK);
    await node.publish(volume, { block: true });
    holder = await holdOpen(node.path('target'));
    await ENDS.fence(volume);
    await holder.close();
    await publishNext();
    const [own, other] = [
      await stat(node.path('target')),
      await stat((await device(`vol-${'b'.repeat(32)}`))?.path ?? ''),
    ];
    expect(own.rdev).not.toBe(other.rdev);
    await node.publish(volume, { block: true });
    expect(await node.mounts(node.path('next-target'))).toHaveLength(1);
  });
});

describe('a loop device that somebody else detaches', () => {
  it('while it is published, its number goes to no other volume', async () => {
    const volume = await node.addVolume('a', BLOCK);
    await node.publish(volume, { block: true });
    const before = await stat(node.path('target'));
    await run('losetup', ['--detach', (await device(volume))?.path ?? ''], { timeoutMs: 5_000 });
    await expect.poll(async () => (await device(volume))?.failed).toBe(true);
    const next = await publishNext();
    expect((await stat((await device(next))?.path ?? '')).rdev).not.toBe(before.rdev);
    await node.unpublish(volume);
    await node.unstage(volume);
  });
});
