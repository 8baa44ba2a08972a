import { afterEach, describe, expect, it } from 'vitest';
import { PathCluster } from '../../support/path-cluster.js';

const MIB = 1024 * 1024;
const ATTACH_MS = 8_000;

let cluster: PathCluster;
afterEach(() => cluster.close());

describe('a writer without a device', () => {
  it('brings a replica that was behind into sync, and leaves the record', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b'], { behind: ['b'] });
    cluster.node('a').path.maintain(volume, []);
    await cluster.until(async () => (await cluster.record(volume)).writer?.maintenance === true);
    await cluster.until(async () => (await cluster.record(volume)).writer === null);
    expect(await cluster.replicas(volume)).toEqual(['a*', 'b*']);
    expect(await cluster.record(volume)).toMatchObject({ quiet: true });
    expect(await cluster.decisions(volume)).toEqual([
      'a began to bring the replicas into line, without a device: nobody was the writer',
      'a the replica on b is in sync: its resync is done',
      'a released the volume',
    ]);
  });

  it('lets those leave that are no longer wanted, when all others are in sync', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c']);
    const volume = await cluster.addVolume(1, ['a', 'b', 'c'], { behind: ['b'], parameters: { replicas: 2 } });
    cluster.node('a').path.maintain(volume, ['c']);
    await cluster.until(async () => (await cluster.replicas(volume)).length === 2);
    await cluster.until(async () => (await cluster.record(volume)).writer === null);
    expect(await cluster.replicas(volume)).toEqual(['a*', 'b*']);
  });

  it('ends when it gets no further: a node is away', async () => {
    cluster = await PathCluster.create(['a', 'b'], { maintenanceIdleMs: 300 });
    const volume = await cluster.addVolume(1, ['a', 'b'], { behind: ['b'] });
    await cluster.node('b').stop();
    cluster.node('a').path.maintain(volume, []);
    await cluster.until(async () => (await cluster.record(volume)).writer !== null);
    await cluster.until(async () => (await cluster.record(volume)).writer === null);
    expect(await cluster.replicas(volume)).toEqual(['a*', 'b']);
  });

  it('serves no client', async () => {
    cluster = await PathCluster.create(['a', 'b'], { maintenanceIdleMs: 60_000 });
    const volume = await cluster.addVolume(1, ['a', 'b'], { behind: ['b'] });
    await cluster.node('b').stop();
    cluster.node('a').path.maintain(volume, []);
    await cluster.until(() => cluster.node('a').path.status(volume)?.maintenance === true);
    await expect(cluster.node('a').client(volume)).rejects.toMatchObject({ code: 'not-found' });
  });

  it('gives way to an attachment on another node within about a second', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c'], { maintenanceIdleMs: 60_000 });
    const volume = await cluster.addVolume(1, ['a', 'b', 'c'], { behind: ['c'] });
    await cluster.node('c').stop();
    cluster.node('a').path.maintain(volume, []);
    await cluster.until(() => cluster.node('a').path.status(volume)?.maintenance === true);
    const began = performance.now();
    await cluster.node('b').path.attach(volume, false, ATTACH_MS);
    expect(performance.now() - began).toBeLessThan(1_500);
    expect(cluster.yields).toBe(1);
    expect((await cluster.record(volume)).writer).toMatchObject({ node: 'b' });
    await cluster.node('b').write(volume, [0], 1);
    expect(cluster.node('a').path.status(volume)).toBeUndefined();
  });

  it('gives way at any moment of its take-over too, and the other node is the only writer then', async () => {
    cluster = await PathCluster.create(['a', 'b', 'c'], { maintenanceIdleMs: 60_000, fenceMs: 2_000 });
    for (let i = 0; i < 8; i++) {
      const volume = await cluster.addVolume(i + 1, ['a', 'b'], { behind: i % 2 === 0 ? ['b'] : [] });
      cluster.node('a').path.maintain(volume, []);
      await new Promise((resolve) => setTimeout(resolve, i * 7));
      const began = performance.now();
      await cluster.node('c').path.attach(volume, false, ATTACH_MS);
      expect(performance.now() - began).toBeLessThan(3_000);
      await cluster.node('c').write(volume, [i * MIB], 7);
      expect((await cluster.record(volume)).writer).toMatchObject({ node: 'c' });
      await cluster.until(() => cluster.node('a').path.status(volume) === undefined);
    }
  });

  it('is taken over by an attachment on its own node, without a release', async () => {
    cluster = await PathCluster.create(['a', 'b'], { maintenanceIdleMs: 300 });
    const volume = await cluster.addVolume(1, ['a', 'b'], { behind: ['b'] });
    await cluster.node('b').stop();
    cluster.node('a').path.maintain(volume, []);
    await cluster.until(() => cluster.node('a').path.status(volume)?.maintenance === true);
    const session = (await cluster.record(volume)).writer?.session;
    await cluster.node('a').path.attach(volume, false, ATTACH_MS);
    expect((await cluster.record(volume)).writer).toEqual({ node: 'a', session });
    // What it was begun for does not end the attachment.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    await cluster.node('a').write(volume, [0], 1);
    expect(await cluster.node('a').path.yieldUp(volume)).toBe(false);
    expect((await cluster.record(volume)).writer).toEqual({ node: 'a', session });
  });

  it('leaves the record even where the store was away when it was to leave', async () => {
    cluster = await PathCluster.create(['a', 'b'], { maintenanceIdleMs: 60_000 });
    const volume = await cluster.addVolume(1, ['a', 'b'], { behind: ['b'] });
    await cluster.node('b').stop();
    cluster.node('a').path.maintain(volume, []);
    await cluster.until(() => cluster.node('a').path.status(volume)?.maintenance === true);
    cluster.faults.startOutage();
    const yielded = cluster.node('a').path.yieldUp(volume);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    cluster.faults.endOutage();
    expect(await yielded).toBe(true);
    expect((await cluster.record(volume)).writer).toBeNull();
  });

  it('of a node that has died is outwaited by its lease, even where failover is manual', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b'], { parameters: { failover: 'manual' } });
    const dead = { node: 'gone', session: 'd'.repeat(32), maintenance: true };
    await cluster.change(volume, (record) => ({ ...record, epoch: 7, writer: dead, quiet: false }));
    cluster.nodes.get('a')?.path.maintain(volume, []);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await cluster.record(volume)).writer).toEqual(dead);
    cluster.expired.add('gone');
    await cluster.until(async () => (await cluster.record(volume)).writer === null);
    expect((await cluster.decisions(volume))[0]).toContain('from node gone, whose lease had expired');
  });

  it('is not begun where a device may still wait, nor beside an attachment, nor too often at once', async () => {
    cluster = await PathCluster.create(['a', 'b'], { maintenancesAtOnce: 1, maintenanceIdleMs: 60_000 });
    const [waiting, attached, first, second] = [
      await cluster.addVolume(1, ['a', 'b']),
      await cluster.addVolume(2, ['a', 'b']),
      await cluster.addVolume(3, ['a', 'b'], { behind: ['b'] }),
      await cluster.addVolume(4, ['a', 'b'], { behind: ['b'] }),
    ];
    const writer = { node: 'a', session: 'e'.repeat(32) };
    await cluster.change(waiting, (record) => ({ ...record, epoch: 2, writer }));
    cluster.node('a').path.maintain(waiting, []);
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect((await cluster.record(waiting)).writer).toEqual(writer);

    await cluster.node('a').path.attach(attached, false, ATTACH_MS);
    cluster.node('a').path.maintain(attached, []);
    expect(cluster.node('a').path.status(attached)?.maintenance).toBe(false);

    await cluster.node('b').stop();
    cluster.node('a').path.maintain(first, []);
    expect(() => cluster.node('a').path.maintain(second, [])).toThrow(/as many volumes as may be at once/);
  });
});

describe('with failover manual', () => {
  it('an expired lease alone ends no attachment, and the refusal names the command that does', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b'], { parameters: { failover: 'manual' } });
    await cluster.change(volume, (record) => ({
      ...record,
      epoch: 2,
      writer: { node: 'gone', session: 'd'.repeat(32) },
      quiet: false,
    }));
    cluster.expired.add('gone');
    await expect(cluster.node('b').path.attach(volume, false, 600)).rejects.toMatchObject({
      code: 'failed-precondition',
      message: expect.stringContaining(`holdfast volume release ${volume} --force`) as string,
    });
  });
});

describe('an attachment that lived before', () => {
  it('has ended where a writer without a device came after it, though on its own node', async () => {
    cluster = await PathCluster.create(['a', 'b']);
    const volume = await cluster.addVolume(1, ['a', 'b']);
    const { epoch } = await cluster.record(volume);
    await cluster.change(volume, (record) => ({
      ...record,
      epoch: epoch + 1,
      writer: { node: 'a', session: 'f'.repeat(32), maintenance: true },
    }));
    await expect(cluster.node('a').path.attach(volume, true, ATTACH_MS)).rejects.toMatchObject({ code: 'fenced' });
    await cluster.node('a').path.attach(volume, false, ATTACH_MS);
  });
});
