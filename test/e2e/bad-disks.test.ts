import { randomBytes } from 'node:crypto';
import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.js';
import { BLOCK_BYTES } from '../history/history.js';
import { devLayout } from '../../src/dev/layout.js';
import { Scene } from '../support/attached-volume.js';
import { RunningDev } from '../support/dev-cluster.js';
import { figureOf } from '../support/figures.js';
import { FaultDisk, fillDirectory } from '../support/fault-disk.js';

const NODES = ['a', 'b', 'c'];
const DISK_BYTES = 1024 ** 3;
const POLL = { timeout: 30_000, interval: 200 };
/** A plugin that does not wait for its disk has started after so long. */
const START_MS = 20_000;
const DAMAGED = 'holdfast_replica_damaged_blocks';
const FOUND = 'holdfast_damaged_blocks_found_total';
const MIB_BLOCKS = 256;

describe('a disk', () => {
  const disks = new Map<string, FaultDisk>();
  let dev: RunningDev;
  let scene: Scene;

  beforeAll(async () => {
    dev = await RunningDev.prepared([], async (directory) => {
      for (const node of NODES)
        disks.set(node, await FaultDisk.create(devLayout(directory).node(node).disk, DISK_BYTES));
    });
  });
  afterEach(async () => {
    for (const disk of disks.values()) await disk.recover();
    await scene.end();
  });
  afterAll(async () => {
    await dev.remove();
    expect(await dev.leftovers()).toEqual([]);
    for (const disk of disks.values()) await disk.end();
  });

  it('that hangs under a replica: that one is dropped, and comes back when the disk answers again', async () => {
    scene = await Scene.create(dev, 'hangs', 2);
    const [writer = '', peer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    await diskOf(peer).hang();
    await scene.untilInSync([writer]);
    await scene.untilAcknowledged(client, 100);
    await diskOf(peer).resume();
    await scene.untilInSync(scene.replicas);
    expect(client.failed).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('that hangs under the only replica: it is told, and I/O goes on when the disk answers again', async () => {
    scene = await Scene.create(dev, 'hangs-alone', 1);
    const [writer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    await diskOf(writer).hang();
    await expect.poll(async () => (await scene.view()).health, POLL).not.toBe('healthy');
    expect((await scene.view()).conditions.join()).toContain(writer);
    await diskOf(writer).resume();
    await scene.untilAcknowledged(client, 100);
    await expect.poll(async () => (await scene.view()).health, POLL).toBe('healthy');
    expect(client.failed).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('that hangs when its node starts again: its replica is in sync when it answers, without another start', async () => {
    scene = await Scene.create(dev, 'hangs-at-start', 3);
    const [writer = '', , peer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    await dev.control(peer, 'stop');
    await scene.untilInSync(scene.replicas.filter((node) => node !== peer));
    await scene.untilAcknowledged(client, 100);
    await startWhileItHangs(peer);
    await scene.untilInSync(scene.replicas);
    expect(client.failed).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('that hangs under the only replica when its node starts again: the volume attaches when it answers', async () => {
    scene = await Scene.create(dev, 'hangs-at-start-alone', 1);
    const [node = ''] = scene.replicas;
    const before = await scene.attach(node);
    await scene.untilAcknowledged(before, 100);
    await scene.detach(node, before);
    await dev.control(node, 'stop');
    await startWhileItHangs(node);
    const client = await scene.attach(node);
    await client.readAll();
    await scene.untilAcknowledged(client, 100);
    await scene.detach(node, client);
    await scene.judge();
  });

  it.each([
    { what: 'fails', harm: (disk: FaultDisk) => disk.fail(), mend: (disk: FaultDisk) => disk.mend() },
    { what: 'is taken away', harm: (disk: FaultDisk) => disk.remove(), mend: (disk: FaultDisk) => disk.putBack() },
  ])('that $what under a replica: that one is dropped, and comes back with its disk', async ({ what, harm, mend }) => {
    scene = await Scene.create(dev, what.replaceAll(' ', '-'), 2);
    const [writer = '', peer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    await harm(diskOf(peer));
    await scene.untilInSync([writer]);
    await scene.untilAcknowledged(client, 100);
    await dev.control(peer, 'kill');
    await mend(diskOf(peer));
    await dev.control(peer, 'start');
    await scene.untilInSync(scene.replicas);
    expect(client.failed).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('that is full under a replica: that one is dropped; under the last one, writes get ENOSPC and go on with room', async () => {
    scene = await Scene.create(dev, 'full', 2);
    const [writer = '', peer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    const rooms = [await fillDirectory(await mountOf(peer))];
    try {
      expect(await client.writeUnused(MIB_BLOCKS)).toBe(true);
      await scene.untilInSync([writer]);
      rooms.push(await fillDirectory(await mountOf(writer)));
      expect(await client.writeUnused(MIB_BLOCKS)).toBe(false);
      expect(client.lastFailure).toBe('no-space');
      // What has its space is written and read as ever.
      await scene.untilAcknowledged(client, 100);
    } finally {
      for (const give of rooms) await give();
    }
    expect(await client.writeUnused(MIB_BLOCKS)).toBe(true);
    await scene.untilInSync(scene.replicas);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('whose bytes change under a replica: what was written is read, and the replica mended', async () => {
    scene = await Scene.create(dev, 'rots', 2);
    const [writer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    const block = client.coldBlock;
    await spoil(writer, block);
    expect(await client.read(block, 1)).toBe(true);
    await expect.poll(() => figureOf(scene.kubernetes.node(writer), DAMAGED), POLL).toBe(0);
    expect(await figureOf(scene.kubernetes.node(writer), FOUND)).toBeGreaterThan(0);
    expect(client.failed).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('whose bytes change under the only replica: they are never returned, and it is told', async () => {
    scene = await Scene.create(dev, 'rots-alone', 1);
    const [writer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 100);
    const block = client.coldBlock;
    await spoil(writer, block);
    expect(await client.read(block, 1)).toBe(false);
    expect(client.lastFailure).toBe('io-error');
    expect(await client.read(block + 1, 1)).toBe(true);
    await expect.poll(async () => (await scene.view()).conditions.join(), POLL).toMatch(/damaged: 1 on/);
    await client.readAll();
    await scene.detach(writer, client);
    expect(await scene.recorder.violations()).toEqual([]);
  });

  /** Its disk answers again when the plugin has started; or a while later, where the start waits for it. */
  async function startWhileItHangs(node: string): Promise<void> {
    await diskOf(node).hang();
    const started = dev.control(node, 'start');
    await Promise.race([started, sleep(START_MS)]);
    await diskOf(node).resume();
    await started;
  }

  /** Changes the bytes of a block in the slice of a node's replica, below everything that is there to notice it. */
  async function spoil(node: string, block: number): Promise<void> {
    const slice = join(await mountOf(node), 'replicas', scene.volume.id, 'data', '00000000');
    const file = await open(slice, 'r+');
    try {
      await file.write(randomBytes(16), 0, 16, block * BLOCK_BYTES + 1_000);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  function diskOf(node: string): FaultDisk {
    return present(disks.get(node), 'every node has such a disk');
  }

  /** Where the node has its disk mounted. */
  async function mountOf(node: string): Promise<string> {
    const { poolDirectory } = devLayout(dev.directory).node(node);
    const [disk = ''] = await readdir(poolDirectory);
    return join(poolDirectory, disk);
  }
});
