import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkCluster, clusterIdOf } from '../../../src/agent/cluster.js';
import { silentLog } from '../../../src/base/log.js';
import { MemoryStore, StoreFaults } from '../../../src/store/memory-store.js';

describe('the cluster of a node', () => {
  let directory = '';
  beforeEach(async () => (directory = await mkdtemp(join(tmpdir(), 'holdfast-cluster-'))));
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('is waited for until the controller has made it', async () => {
    const store = new MemoryStore();
    const asked = clusterIdOf(store, directory, silentLog(), new AbortController().signal);
    await store.create('cluster', 'cluster', { schema: 1, clusterId: 'one' });
    expect(await asked).toBe('one');
  });

  it('the wait ends when the plugin is told to', async () => {
    const stop = new AbortController();
    const asked = clusterIdOf(new MemoryStore(), directory, silentLog(), stop.signal);
    stop.abort();
    await expect(asked).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('is remembered, so that a node starts while the store is away', async () => {
    const faults = new StoreFaults();
    const store = new MemoryStore({ faults: faults.plan });
    await store.create('cluster', 'cluster', { schema: 1, clusterId: 'one' });
    await clusterIdOf(store, directory, silentLog(), new AbortController().signal);
    faults.startOutage();
    expect(await clusterIdOf(store, directory, silentLog(), new AbortController().signal)).toBe('one');
    await expect(checkCluster(store, 'one')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('the store of another cluster is refused', async () => {
    const store = new MemoryStore();
    await store.create('cluster', 'cluster', { schema: 1, clusterId: 'two' });
    await expect(checkCluster(store, 'one')).rejects.toMatchObject({ code: 'failed-precondition' });
    await checkCluster(store, 'two');
  });
});
