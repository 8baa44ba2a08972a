import { describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { KeyedMutex } from '../../../src/base/mutex.js';
import { ReplicaCollector } from '../../../src/agent/collect.js';
import { MemoryStore, StoreFaults } from '../../../src/store/memory-store.js';
import { volumeKey, type VolumeId } from '../../../src/model/ids.js';
import { volumeRecord } from '../csi/node-fakes.js';
import { HeldReplicas } from './held-replicas.js';

const VOLUME = `vol-${'a'.repeat(32)}`;

async function setUp(clusterId = 'one') {
  const faults = new StoreFaults();
  const store = new MemoryStore({ faults: faults.plan });
  await store.create('cluster', 'cluster', { schema: 1, clusterId });
  const replicas = new HeldReplicas();
  replicas.held.add(VOLUME);
  let time = 0;
  const options = {
    store,
    replicas,
    turns: new KeyedMutex<VolumeId>(),
    clusterId: 'one',
    graceMs: 600_000,
    log: silentLog(),
    now: () => time,
  };
  const collector = new ReplicaCollector(options);
  const look = async (atMs: number): Promise<void> => {
    time = atMs;
    await collector.look();
  };
  return { store, faults, replicas, look };
}

describe('replicas without a record', () => {
  it('are removed when they have been seen so for the whole grace time', async () => {
    const { replicas, look } = await setUp();
    await look(0);
    await look(599_999);
    expect(replicas.held.size).toBe(1);
    await look(600_000);
    expect(replicas.held.size).toBe(0);
  });

  it.each(['node-1', 'node-2'])('stay while a record names their disk, as being on %s', async (node) => {
    const { store, replicas, look } = await setUp();
    await store.create('volume', volumeKey(VOLUME), volumeRecord(VOLUME, { node }));
    await look(0);
    await look(9_000_000);
    expect(replicas.held.size).toBe(1);
  });

  it('stay while the store is that of another cluster, as one that was made anew', async () => {
    const { replicas, look } = await setUp('two');
    for (const atMs of [0, 900_000]) {
      await expect(look(atMs)).rejects.toMatchObject({ code: 'failed-precondition' });
    }
    expect(replicas.held.size).toBe(1);
  });

  it('are those whose record is of another volume of the same name', async () => {
    const { store, replicas, look } = await setUp();
    await store.create('volume', volumeKey(VOLUME), volumeRecord(VOLUME.replace(/.{8}$/, '00000000')));
    await look(0);
    await look(600_000);
    expect(replicas.held.size).toBe(0);
  });

  it('are those on another disk than the one that the record names here', async () => {
    const { store, replicas, look } = await setUp();
    await store.create('volume', volumeKey(VOLUME), volumeRecord(VOLUME, { node: 'node-1' }));
    replicas.disk = 'disk-older';
    await look(0);
    await look(600_000);
    expect(replicas.held.size).toBe(0);
  });

  it('begin their grace time anew when a record named them in between', async () => {
    const { store, replicas, look } = await setUp();
    await look(0);
    await store.create('volume', volumeKey(VOLUME), volumeRecord(VOLUME, { node: 'node-1' }));
    await look(300_000);
    await store.delete('volume', volumeKey(VOLUME));
    await look(600_000);
    expect(replicas.held.size).toBe(1);
  });

  it('stay while the store does not answer', async () => {
    const { faults, replicas, look } = await setUp();
    await look(0);
    faults.startOutage();
    await expect(look(900_000)).rejects.toMatchObject({ code: 'unavailable' });
    expect(replicas.held.size).toBe(1);
  });
});
