import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DiskAnnouncer, publishNode, readNodeUid, rejoin, type DiskState } from '../../../src/agent/announce.js';
import { MemoryStore, type StoreCall } from '../../../src/store/memory-store.js';

const NODE = {
  name: 'node-1',
  nodeUid: 'uid-1',
  topology: { zone: 'a' },
  host: '10.0.0.1',
  agentPort: 1,
  dataPorts: [2, 3],
};

function disk(change: Partial<DiskState> = {}): DiskState {
  return { diskId: 'disk-1', capacityBytes: 1000, usedBytes: 0, state: 'ready', reason: '', ...change };
}

describe('what a node announces', () => {
  it('its uid is made once and kept', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-uid-'));
    try {
      const made = await readNodeUid(directory);
      expect(made).toMatch(/^[0-9a-f-]{36}$/);
      expect(await readNodeUid(directory)).toBe(made);
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  it('a node that a person removed while it lived all the same joins again, with its disks', async () => {
    const store = new MemoryStore();
    const announcer = new DiskAnnouncer(store, 'node-1');
    await publishNode(store, NODE);
    await announcer.announce([disk()]);
    await rejoin(store, NODE, announcer);
    const before = await store.get('node', 'node-1');
    await store.delete('disk', 'disk-1');
    await announcer.announce([disk()]);
    expect(await store.get('disk', 'disk-1')).toBeUndefined();
    await store.delete('node', 'node-1');
    await rejoin(store, NODE, announcer);
    await announcer.announce([disk()]);
    expect((await store.get('node', 'node-1'))?.record).toEqual(before?.record);
    expect((await store.get('disk', 'disk-1'))?.record).toMatchObject({ node: 'node-1', state: 'ready' });
  });

  it('a node that comes back is found at its new address, still cordoned', async () => {
    const store = new MemoryStore();
    await publishNode(store, NODE);
    const first = await store.get('node', 'node-1');
    expect(first?.record).toMatchObject({ ...NODE, cordoned: false });
    await store.update('node', 'node-1', { ...NODE, schema: 1, cordoned: true }, first?.version ?? '');
    await publishNode(store, { ...NODE, host: '10.0.0.2', nodeUid: 'uid-2' });
    expect((await store.get('node', 'node-1'))?.record).toMatchObject({
      host: '10.0.0.2',
      nodeUid: 'uid-2',
      cordoned: true,
    });
  });

  it('at rest the store is left alone; what matters is told at once', async () => {
    const calls: StoreCall[] = [];
    const store = new MemoryStore({
      faults: (call) => {
        calls.push(call);
        return undefined;
      },
    });
    const announcer = new DiskAnnouncer(store, 'node-1');
    await announcer.announce([disk()]);
    calls.length = 0;
    await announcer.announce([disk({ usedBytes: 1024 ** 2 })]);
    expect(calls).toEqual([]);
    await announcer.announce([disk({ state: 'failed', reason: 'EIO' })]);
    expect((await store.get('disk', 'disk-1'))?.record).toMatchObject({ state: 'failed', reason: 'EIO' });
    await announcer.announce([disk({ usedBytes: 1024 ** 3 })]);
    expect((await store.get('disk', 'disk-1'))?.record).toMatchObject({ state: 'ready', usedBytes: 1024 ** 3 });
  });

  it('a disk that is gone has failed, one that moved here is ours, those of others are left alone', async () => {
    const store = new MemoryStore();
    await new DiskAnnouncer(store, 'node-1').announce([disk({ diskId: 'disk-1' }), disk({ diskId: 'disk-2' })]);
    await new DiskAnnouncer(store, 'node-2').announce([disk({ diskId: 'disk-2' })]);
    await new DiskAnnouncer(store, 'node-1').announce([]);
    expect((await store.get('disk', 'disk-1'))?.record).toMatchObject({ state: 'failed', node: 'node-1' });
    expect((await store.get('disk', 'disk-2'))?.record).toMatchObject({ state: 'ready', node: 'node-2' });
  });

  it('a disk that moved to another node is not taken back by the one that had it', async () => {
    const store = new MemoryStore();
    const before = new DiskAnnouncer(store, 'node-1');
    const gone = disk({ diskId: 'disk-2', state: 'failed', reason: 'the device is gone' });
    await before.announce([disk(), disk({ diskId: 'disk-2' })]);
    await new DiskAnnouncer(store, 'node-2').announce([disk({ diskId: 'disk-2' })]);
    await before.announce([disk({ usedBytes: 2 ** 30 }), gone]);
    expect((await store.get('disk', 'disk-2'))?.record).toMatchObject({ state: 'ready', node: 'node-2' });
  });
});
