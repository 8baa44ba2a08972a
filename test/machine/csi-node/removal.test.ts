import { stat } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listLoops } from '../../../src/device/loop.js';
import type { VolumeId } from '../../../src/model/ids.js';
import { holdOpen, type Holder } from '../device/holder.js';
import { FuseDevices } from './fuse-devices.js';
import { TestNode } from './test-node.js';

let node: TestNode<FuseDevices>;
let holder: Holder | undefined;
beforeEach(async () => {
  const devices = await FuseDevices.start();
  node = await TestNode.on(() => devices);
});
afterEach(async () => {
  await holder?.close();
  await node.dispose();
});

const listed = async (volume: VolumeId): ReturnType<FuseDevices['list']> =>
  (await node.devices.list()).filter((device) => device.volume === volume);

/** A volume that is being unstaged while a scanner has its device open. */
async function cutShort(block: boolean): Promise<VolumeId> {
  const volume = await node.addVolume('a', block ? { content: { kind: 'block' } } : {});
  await node.stage(volume, { block });
  holder = await holdOpen((await listed(volume))[0]?.path ?? '');
  await expect(node.unstage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
  return volume;
}

/** The last close, until the device has gone with it. */
async function lastClose(volume: VolumeId): Promise<void> {
  await holder?.close();
  const isLeft = async (): Promise<boolean> =>
    (await listLoops()).some(
      ({ backingFile }) => backingFile.startsWith(node.devices.directory) && backingFile.includes(volume),
    );
  await expect.poll(isLeft).toBe(false);
}

describe('an unstage that an open device cuts short', () => {
  it.each(['filesystem', 'block'] as const)('a new stage of a %s volume waits for the close only', async (kind) => {
    const block = kind === 'block';
    const volume = await cutShort(block);
    await expect(node.stage(volume, { block })).rejects.toMatchObject({ code: 'failed-precondition' });
    await holder?.close();
    await node.stage(volume, { block });
    await node.publish(volume, { block });
    expect(await node.mounts(node.path('target'))).toHaveLength(1);
    await node.unpublish(volume);
    await node.unstage(volume);
    expect(await node.devices.list()).toEqual([]);
    expect((await node.record(volume)).writer).toBeNull();
  });

  it('repeated, it is finished after the close', async () => {
    const volume = await cutShort(true);
    await expect(node.unstage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    await lastClose(volume);
    await node.unstage(volume);
    expect(await node.devices.list()).toEqual([]);
    expect((await node.record(volume)).writer).toBeNull();
  });

  it("a settling lets what the last user writes arrive, also after the plugin's restart, and clears up after the close", async () => {
    const volume = await cutShort(true);
    for (const step of [() => Promise.resolve(), () => node.restart()]) {
      await step();
      await node.volumes.settle(volume, 5_000);
      expect(await holder?.write()).toBe(0);
      expect((await node.volumes.attachment(volume))?.status.state).toBe('serving');
    }
    await lastClose(volume);
    await node.volumes.settle(volume, 5_000);
    expect(await node.devices.list()).toEqual([]);
    expect((await node.record(volume)).writer).toBeNull();
  });

  describe('leaves the number of its device to another volume', () => {
    const places = (): { block: true; path: string; target: string } => ({
      block: true,
      path: node.path('next'),
      target: node.path('next-target'),
    });
    let volume: VolumeId;
    beforeEach(async () => {
      volume = await cutShort(true);
      await lastClose(volume);
      await node.publish(await node.addVolume('b', { content: { kind: 'block' } }), places());
    });

    it('whose device is never published in its place', async () => {
      await node.publish(volume, { block: true });
      const [own, other] = await Promise.all([stat(node.path('target')), stat(places().target)]);
      expect(own.rdev).not.toBe(other.rdev);
    });

    it('whose mounts stay when it is taken down', async () => {
      await node.volumes.takeDown(volume, 30_000);
      expect(await node.mounts(places().target)).toHaveLength(1);
    });
  });
});
