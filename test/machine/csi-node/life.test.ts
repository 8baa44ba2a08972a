import { open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TestNode } from './test-node.js';

let node: TestNode;
beforeEach(async () => (node = await TestNode.create()));
afterEach(() => node.dispose());

const settle = (volume: string): Promise<void> => node.volumes.settle(volume, 5_000);

describe('what lived before a restart', () => {
  it('goes on, untouched, while the record names this node', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    const before = await node.mounts();
    await node.restart();
    await settle(volume);
    expect((await node.volumes.attachment(volume))?.status.state).toBe('serving');
    expect((await node.volumes.attachment(volume))?.address?.exportName).toBe(volume);
    expect(await node.mounts()).toEqual(before);
    await writeFile(join(node.path('target'), 'file'), 'on and on');
  });

  it('waits while that can not be known', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    const before = await node.mounts();
    await node.restart();
    node.attachments.setUnavailable(true);
    await expect(settle(volume)).rejects.toMatchObject({ code: 'unavailable' });
    await expect(node.publish(volume)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await node.devices.list()).toMatchObject([{ failed: false }]);
    expect(await node.mounts()).toEqual(before);
    node.attachments.setUnavailable(false);
    await settle(volume);
    await node.publish(volume);
    expect(await node.mounts()).toEqual(before);
  });

  it('ends when another node has taken over; its dead mounts keep pods off the host until they are unpublished', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    await node.restart();
    await node.change(volume, { writer: { node: 'node-2', session: '2'.repeat(32) } });
    await settle(volume);
    await expectDead(volume);
    expect((await node.record(volume)).writer?.node).toBe('node-2');
  });

  it('a stage before all is settled never lets old I/O reach a new attachment', async () => {
    const volume = await node.addVolume('a');
    await node.stage(volume);
    const [before] = await node.devices.list();
    await node.restart();
    await node.change(volume, { writer: null });
    await node.stage(volume);
    const [after] = await node.devices.list();
    expect(after).toMatchObject({ failed: false });
    expect(before).toBeDefined();
    expect(await node.mounts()).toHaveLength(1);
    expect((await node.record(volume)).writer?.node).toBe('node-1');
  });
});

async function writeThrough(path: string): Promise<void> {
  const file = await open(path, 'w');
  try {
    await file.writeFile('x');
    await file.sync();
  } finally {
    await file.close();
  }
}

/** All I/O fails, the mounts are still there; with the last of them everything goes. */
async function expectDead(volume: string): Promise<void> {
  expect(await node.mounts()).toHaveLength(2);
  expect(await node.devices.list()).toMatchObject([{ failed: true }]);
  await expect(writeThrough(join(node.path('target'), 'late'))).rejects.toThrow();
  await node.unpublish(volume);
  await node.unstage(volume);
  expect(await node.mounts()).toEqual([]);
  expect(await node.devices.list()).toEqual([]);
}

describe('a live attachment', () => {
  it('that is fenced ends, and its device goes with its mounts', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    node.attachments.fence(volume);
    await settle(volume);
    await expectDead(volume);
  });

  it('is ended on order: its data is flushed, I/O fails, the record is free (R8)', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    await writeFile(join(node.path('target'), 'file'), 'written but not flushed');
    await node.volumes.end(volume, 30_000);
    expect((await node.record(volume)).writer).toBeNull();
    await expect(writeThrough(join(node.path('target'), 'late'))).rejects.toThrow();
    await node.stage(volume);
    expect(await readFile(join(node.path('staging'), 'file'), 'utf8')).toBe('written but not flushed');
  });

  it('ended while a container holds it: the device stays, failed, until it is let go', async () => {
    const volume = await node.addVolume('a');
    await node.publish(volume);
    const held = await open(join(node.path('target'), 'held'), 'w');
    try {
      await node.volumes.takeDown(volume, 30_000);
      expect(await node.mounts()).toEqual([]);
      expect(await node.devices.list()).toMatchObject([{ failed: true }]);
      expect((await node.record(volume)).writer).toBeNull();
      await expect(node.stage(volume)).rejects.toMatchObject({ code: 'failed-precondition' });
    } finally {
      await held.close();
    }
    await settle(volume);
    expect(await node.devices.list()).toEqual([]);
    await node.stage(volume);
  });

  it('ending what is not attached only frees the record', async () => {
    const volume = await node.addVolume('a');
    await node.change(volume, { writer: { node: 'node-1', session: '3'.repeat(32) } });
    await node.volumes.end(volume, 30_000);
    expect((await node.record(volume)).writer).toBeNull();
    await node.volumes.end(`vol-${'e'.repeat(32)}`, 30_000);
  });
});
