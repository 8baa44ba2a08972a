import { afterEach, describe, expect, it } from 'vitest';
import { volumeKey } from '../../../src/model/ids.js';
import { CAPACITY, PathCluster } from '../../support/path-cluster.js';

const MIB = 1024 * 1024;
const PAGE = 4096;
const ATTACH_MS = 8_000;

let cluster: PathCluster;
afterEach(() => cluster.close());

describe('a writer', () => {
  it('that is told of a new replica in the record brings it into sync', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c']);
    const volume = await cluster.addVolume(1, ['a', 'b']);
    await cluster.node('a').path.attach(volume, false, ATTACH_MS);
    await cluster.node('a').write(volume, [0, 5 * MIB, 20 * MIB], 3);
    await cluster.node('c').path.createReplica(volume, 'disk-c', CAPACITY);
    await cluster.change(volume, (record) => ({
      ...record,
      replicas: [...record.replicas, { node: 'c', disk: 'disk-c', inSync: false }],
    }));
    await cluster.node('a').path.refresh(volume);
    await cluster.until(async () => (await cluster.replicas(volume)).includes('c*'));
    const bytes = await cluster.node('c').peek(volume, [0, 5 * MIB, 20 * MIB, 21 * MIB]);
    expect(bytes).toEqual([3, 3, 3, 0]);
  });

  it('takes a replica out of set and record in one step, never one that is wanted', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c']);
    const volume = await cluster.addVolume(1, ['a', 'b', 'c'], { parameters: { replicas: 2 } });
    const { path } = cluster.node('a');
    await path.attach(volume, false, ATTACH_MS);
    const { epoch } = await cluster.record(volume);
    await path.dropReplica(volume, 'b', 'no longer wanted');
    expect(await cluster.replicas(volume)).toEqual(['a*', 'c*']);
    expect((await cluster.record(volume)).epoch).toBe(epoch + 1);
    await path.dropReplica(volume, 'b', 'a repeat');
    expect((await cluster.record(volume)).epoch).toBe(epoch + 1);
    await expect(path.dropReplica(volume, 'c', 'too many')).rejects.toMatchObject({ code: 'failed-precondition' });
    await expect(cluster.node('b').path.dropReplica(volume, 'c', '')).rejects.toMatchObject({ code: 'not-found' });
    await cluster.node('a').write(volume, [0], 1);
    expect((await cluster.decisions(volume)).at(-1)).toBe('a the replica on b left the volume: no longer wanted');
  });

  it('goes on writing while a replica leaves, though the answer of the store is lost', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c']);
    const volume = await cluster.addVolume(1, ['a', 'b', 'c'], { parameters: { replicas: 2 } });
    await cluster.node('a').path.attach(volume, false, ATTACH_MS);
    cluster.faults.next('update', { lose: 'answer' });
    const left = cluster.node('a').path.dropReplica(volume, 'c', 'no longer wanted');
    await cluster.node('a').write(volume, [0, MIB, 2 * MIB], 9);
    await left;
    expect(await cluster.replicas(volume)).toEqual(['a*', 'b*']);
  });

  it('tells in the record why it took over, dropped and released', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b']);
    await cluster.node('a').path.attach(volume, false, ATTACH_MS);
    await cluster.node('b').stop();
    const writing = cluster.node('a').write(volume, [0], 1);
    await cluster.until(async () => (await cluster.replicas(volume)).includes('b'));
    await writing;
    await cluster.node('a').path.release(volume, 5_000);
    expect(await cluster.decisions(volume)).toEqual([
      'a took over: nobody was the writer',
      expect.stringMatching(/^a the replica on b was dropped: /) as string,
      'a released the volume',
    ]);
    const decisions = (await cluster.record(volume)).decisions ?? [];
    expect(decisions.map(({ epoch }) => epoch)).toEqual([2, 3, 4]);
    expect(decisions.every(({ at }) => at === '2026-01-01T00:00:00.000Z')).toBe(true);
  });

  it('leaves one decision of a take-over that fails again and again', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c']);
    const volume = await cluster.addVolume(1, ['b']);
    await cluster.node('b').stop();
    for (let i = 0; i < 3; i++) {
      await expect(cluster.node('a').path.attach(volume, false, 700)).rejects.toMatchObject({ code: 'unavailable' });
    }
    const decisions = (await cluster.record(volume)).decisions ?? [];
    expect(decisions).toHaveLength(1);
    expect(decisions[0]).toMatchObject({ by: 'a', times: 3 });
    expect(decisions[0]?.what).toContain('gave a take-over up: no in-sync replica');
    // No writer has served a read, so the next one need not wait for any.
    expect(await cluster.record(volume)).toMatchObject({ writer: null, quiet: true });
  });
});

describe('resyncs', () => {
  it('that break off go on where they were, and are never said to be more than done', async () => {
    cluster = await PathCluster.create(['a', 'b'], { resyncBytesPerSecond: 8 * MIB });
    const volume = await cluster.addVolume(1, ['a', 'b'], { behind: ['b'] });
    const pieces = Array.from({ length: CAPACITY / (256 * 1024) }, (_, index) => index * 256 * 1024);
    await cluster.node('a').path.attach(volume, false, ATTACH_MS);
    const { path } = cluster.node('a');
    await cluster.node('b').stop();
    await cluster.node('a').write(volume, pieces, 5);
    const seen: number[] = [];
    for (let times = 0; times < 3; times++) {
      await cluster.node('b').start();
      const before = path.status(volume)?.resync?.regionsDone ?? 0;
      await cluster.until(() => {
        const resync = path.status(volume)?.resync;
        if (resync) seen.push(resync.regionsDone - resync.regionsTotal);
        return resync !== undefined && resync !== null && resync.regionsDone > before + 1;
      });
      await cluster.node('b').stop();
    }
    await cluster.node('b').start();
    await cluster.until(async () => (await cluster.replicas(volume)).includes('b*'));
    expect(Math.max(...seen)).toBeLessThanOrEqual(0);
    // The piece that was on its way at each break may have been sent twice.
    expect(cluster.node('a').copiedBytes(volume)).toBeLessThanOrEqual(CAPACITY + 3 * 256 * 1024);
    expect(await cluster.node('b').peek(volume, pieces)).toEqual(pieces.map(() => 5));
  });

  it('run a few at once from a node and to a node, and all of them end', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c'], { resyncsAtOnce: 2, resyncBytesPerSecond: 64 * MIB });
    const volumes: string[] = [];
    for (let i = 1; i <= 8; i++) {
      const writer = i % 2 === 0 ? 'a' : 'b';
      const volume = await cluster.addVolume(i, [writer, 'c'], { behind: ['c'] });
      volumes.push(volume);
      await cluster.node(writer).path.attach(volume, false, ATTACH_MS);
      await cluster.node(writer).write(volume, [0, 8 * MIB, 16 * MIB], i);
    }
    let most = 0;
    await cluster.until(async () => {
      const running = volumes.filter((volume) =>
        ['a', 'b'].some((name) => (cluster.node(name).path.status(volume)?.resync ?? null) !== null),
      ).length;
      most = Math.max(most, running);
      const records = await Promise.all(volumes.map((volume) => cluster.store.get('volume', volumeKey(volume))));
      return records.every((found) => found?.record.replicas.every(({ inSync }) => inSync) === true);
    });
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(2);
  });
});

describe('a replica that was away for a moment', () => {
  it('is sent the blocks that changed, though their regions hold much more', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b']);
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    await a.path.attach(volume, false, ATTACH_MS);
    const all = Array.from({ length: 128 }, (_, page) => 4 * MIB + page * PAGE);
    await a.write(volume, all, 1);
    await b.stop();
    await cluster.until(async () => (await cluster.replicas(volume)).join() === 'a*,b');
    const changed = [all[3], all[5], all[70]].map((offset) => offset ?? 0);
    await a.write(volume, changed, 2);
    await b.start();
    await cluster.until(async () => (await cluster.replicas(volume)).join() === 'a*,b*');
    // The two that are near each other are sent in one, with what lies between.
    expect(a.copiedBytes(volume)).toBe(4 * PAGE);
    await a.path.release(volume, ATTACH_MS);
    expect(await b.peek(volume, all)).toEqual(all.map((offset) => (changed.includes(offset) ? 2 : 1)));
  });
});

describe('an older replica on another disk of a node', () => {
  it('is never taken for the one that the record names, whichever disk is opened first', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b']);
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    await b.path.attach(volume, false, ATTACH_MS);
    await b.write(volume, [0], 1);
    // The node comes back without that disk, and gets another replica on a second one.
    await a.stop();
    await cluster.until(async () => (await cluster.replicas(volume)).join() === 'a,b*');
    a.disks = ['disk-a-second'];
    await a.start();
    await a.path.createReplica(volume, 'disk-a-second', CAPACITY);
    await cluster.change(volume, (record) => ({
      ...record,
      replicas: record.replicas.map((one) => (one.node === 'a' ? { ...one, disk: 'disk-a-second' } : one)),
    }));
    await b.path.refresh(volume);
    await cluster.until(async () => (await cluster.replicas(volume)).join() === 'a*,b*');
    await b.write(volume, [0], 2);
    await b.path.release(volume, ATTACH_MS);
    await a.stop();
    a.disks = ['disk-a', 'disk-a-second'];
    await a.start();
    expect(a.path.listReplicas().map(({ disk }) => disk)).toEqual(['disk-a', 'disk-a-second']);
    await b.stop();

    await a.path.attach(volume, false, ATTACH_MS);
    expect(await a.read(volume, [0])).toEqual([2]);
    expect(await cluster.replicas(volume)).toEqual(['a*', 'b']);
    await a.path.removeReplica(volume, 'unnamed', 'disk-a');
    expect(a.path.listReplicas().map(({ disk }) => disk)).toEqual(['disk-a-second']);
    expect(await a.read(volume, [0])).toEqual([2]);
  });
});
