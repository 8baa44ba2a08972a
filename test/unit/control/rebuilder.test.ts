import { expect, it, describe, beforeEach } from 'vitest';
import { RebuildWorld } from './rebuild-world.js';

const GRACE_MS = 600_000;

let world: RebuildWorld;

async function threeNodes(): Promise<void> {
  world = new RebuildWorld();
  for (const name of ['a', 'b', 'c']) await world.addNode(name);
}

beforeEach(threeNodes);

describe('a volume that is attached', () => {
  let volume: string;
  beforeEach(async () => {
    volume = await world.addVolume(1, ['a', 'b']);
    await world.attach(volume, 'a');
  });

  it('keeps its replicas while a node is away for less than the grace period', async () => {
    world.die('b');
    await world.pass(GRACE_MS - 60_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b']);
    await world.comeBack('b');
    await world.pass(30_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*']);
    expect(world.node('c').replicas.size).toBe(0);
  });

  it('is rebuilt elsewhere when the node stays away, and what comes back later is removed', async () => {
    world.die('b');
    await world.pass(GRACE_MS + 60_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'c*']);
    await world.comeBack('b');
    await world.pass(30_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'c*']);
  });

  it('keeps whichever is in sync first, where the node comes back while a new replica is copied', async () => {
    world.die('b');
    world.copying = false;
    await world.pass(GRACE_MS + 30_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b', 'c']);
    await world.comeBack('b');
    await world.round(3);
    expect(await world.replicas(volume)).toEqual(['a*', 'b', 'c']);
    world.copying = true;
    await world.round(3);
    const kept = await world.replicas(volume);
    expect(kept).toEqual(['a*', 'b*']);
    expect(world.node('c').replicas.has(volume)).toBe(false);
  });

  it('is rebuilt at once where the node was removed from the cluster', async () => {
    world.die('b');
    await world.round(5);
    await world.store.delete('node', 'b');
    await world.round(3);
    expect(await world.replicas(volume)).toEqual(['a*', 'c*']);
  });

  it('is rebuilt soon where the disk of a live node has failed, but not for a moment of failure', async () => {
    await world.failDisk('b');
    await world.pass(9_000);
    await world.mendDisk('b');
    await world.round();
    expect(world.node('c').replicas.size).toBe(0);
    await world.failDisk('b');
    await world.pass(30_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'c*']);
  });

  it('gets more and fewer replicas as a person asks, and never loses its writer’s own', async () => {
    await world.setReplicas(volume, 3);
    await world.pass(30_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*', 'c*']);
    await world.setReplicas(volume, 1);
    await world.pass(30_000);
    expect(await world.replicas(volume)).toEqual(['a*']);
    expect(world.node('b').replicas.size + world.node('c').replicas.size).toBe(0);
  });

  it('tells once what stands in its way, and goes on when that has gone', async () => {
    await world.setReplicas(volume, 3);
    world.die('c');
    await world.pass(30_000);
    expect(world.rebuilder.problemOf(volume)).toContain('no room for replica 3');
    await world.comeBack('c');
    await world.pass(90_000);
    expect(world.rebuilder.problemOf(volume)).toBeUndefined();
    expect(await world.replicas(volume)).toEqual(['a*', 'b*', 'c*']);
  });

  it('tells in its record why its replicas changed', async () => {
    world.die('b');
    await world.pass(GRACE_MS + 60_000);
    const told = (await world.record(volume)).decisions?.map(({ by, what }) => `${by}: ${what}`);
    expect(told).toEqual([
      'controller: a new replica is made on c: node b does not renew its lease',
      expect.stringMatching(/controller: the replica on b, which was not in sync, left the volume: 2 are wanted/),
    ]);
  });
});

describe('a volume that nobody uses', () => {
  it('is brought into line by a writer without a device, which then leaves', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    await world.change(volume, (record) => ({
      ...record,
      replicas: record.replicas.map((one) => ({ ...one, inSync: one.node === 'a' })),
    }));
    await world.round(3);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*']);
    expect((await world.record(volume)).writer).toBeNull();
  });

  it('is left alone while all is well, and while a node is only away', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    await world.pass(60_000);
    world.die('b');
    await world.pass(GRACE_MS - 60_000);
    expect((await world.record(volume)).epoch).toBe(1);
  });

  it('is rebuilt when a node stays away, though no writer could drop its replica before', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    world.die('b');
    await world.pass(GRACE_MS + 60_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'c*']);
    expect((await world.record(volume)).writer).toBeNull();
  });

  it('loses a surplus in-sync replica by the hand of a writer', async () => {
    const volume = await world.addVolume(1, ['a', 'b', 'c']);
    await world.setReplicas(volume, 2);
    await world.pass(30_000);
    expect(await world.replicas(volume)).toHaveLength(2);
    expect((await world.record(volume)).writer).toBeNull();
  });

  it('is mended where a node found blocks damaged, closed where regions are open, reconciled after a crash', async () => {
    for (const [number, wrong] of [{ damagedBlocks: 2 }, { openRegions: 3 }, { crashMark: true }].entries()) {
      const volume = await world.addVolume(number + 1, ['a', 'b']);
      const told = world.node('b').replicas.get(volume);
      Object.assign(told ?? {}, wrong);
      await world.pass(30_000);
      expect(told).toMatchObject({ damagedBlocks: 0, openRegions: 0, crashMark: false });
    }
  });

  it('is not taken over by crashed replicas alone while one that may hold more is only away', async () => {
    const volume = await world.addVolume(1, ['a', 'b', 'c']);
    world.die('c');
    for (const name of ['a', 'b']) Object.assign(world.node(name).replicas.get(volume) ?? {}, { crashMark: true });
    await world.pass(GRACE_MS - 60_000);
    expect((await world.record(volume)).epoch).toBe(1);
    await world.comeBack('c');
    await world.pass(30_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*', 'c*']);
    expect((await world.record(volume)).epoch).toBeGreaterThan(1);
  });

  it('that a dead node had attached is given up when the node is not waited for any more, unless failover is manual', async () => {
    const [auto, manual] = [await world.addVolume(1, ['a', 'b']), await world.addVolume(2, ['a', 'b'])];
    await world.change(manual, (record) => ({
      ...record,
      parameters: { ...record.parameters, failover: 'manual' },
    }));
    for (const volume of [auto, manual]) await world.attach(volume, 'a');
    world.die('a');
    await world.pass(GRACE_MS + 120_000);
    expect(await world.replicas(auto)).toEqual(['b*', 'c*']);
    expect((await world.record(auto)).writer).toBeNull();
    expect((await world.record(manual)).writer).toMatchObject({ node: 'a' });
  });

  it('with no in-sync replica within reach is left as it is', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    world.die('a');
    world.die('b');
    await world.pass(GRACE_MS + 60_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*']);
    expect(world.node('c').replicas.size).toBe(0);
  });
});

describe('a replica that its node does not find (R12)', () => {
  it('is replaced, but never made anew in its place while the record calls it in sync', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    world.node('b').replicas.delete(volume);
    await world.pass(60_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'c*']);
  });

  it('may lie on the same node again when the record no longer names it', async () => {
    world.die('c');
    const volume = await world.addVolume(1, ['a', 'b']);
    world.node('b').replicas.delete(volume);
    await world.pass(120_000);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*']);
    // It was made once: what was missing before says nothing of the new one.
    const made = (await world.record(volume)).decisions?.filter(({ what }) => what.includes('a new replica is made'));
    expect(made?.map(({ times }) => times ?? 1)).toEqual([1]);
  });
});

describe('many volumes', () => {
  it('come back a few at a time after a node was lost, the ones with the fewest copies first', async () => {
    world = new RebuildWorld();
    for (const name of ['a', 'b', 'c', 'd']) await world.addNode(name);
    const volumes: string[] = [];
    for (let i = 1; i <= 20; i++) volumes.push(await world.addVolume(i, i % 2 === 0 ? ['a', 'b'] : ['a', 'b', 'c']));
    for (const volume of volumes) await world.attach(volume, 'a');
    world.die('b');
    await world.pass(GRACE_MS + 15_000);
    world.mostCopying = 0;
    await world.pass(300_000);
    expect(world.mostCopying).toBeLessThanOrEqual(2);
    for (const volume of volumes) {
      const { replicas, parameters } = await world.record(volume);
      expect(replicas.filter((one) => one.inSync)).toHaveLength(parameters.replicas);
    }
  });
});

describe('a writer', () => {
  it('is told of a replica that was put into its record, though its node and the replica’s were not seen just then', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    await world.attach(volume, 'a');
    await world.round();
    const before = world.refreshed;
    world.unsure = true;
    await world.change(volume, (record) => ({
      ...record,
      parameters: { ...record.parameters, replicas: 3 },
      replicas: [...record.replicas, { node: 'c', disk: 'disk-c', inSync: false }],
    }));
    world.copying = false;
    await world.round();
    expect(world.refreshed).toBe(before);
    world.unsure = false;
    await world.round(3);
    expect(world.refreshed).toBe(before + 1);
  });

  it('is told of what was taken out of its record, and not again and again of what it knows', async () => {
    const volume = await world.addVolume(1, ['a', 'b', 'c']);
    await world.attach(volume, 'a');
    world.copying = false;
    await world.change(volume, (record) => ({
      ...record,
      replicas: record.replicas.map((one) => ({ ...one, inSync: one.node !== 'c' })),
    }));
    await world.round(3);
    expect(world.refreshed).toBe(1);
    await world.setReplicas(volume, 2);
    await world.round(5);
    expect(await world.replicas(volume)).toEqual(['a*', 'b*']);
    expect(world.refreshed).toBe(2);
  });

  it('is told of a replica on a node that held one of the same volume a moment before', async () => {
    const volume = await world.addVolume(1, ['a', 'b']);
    await world.attach(volume, 'a');
    world.die('c');
    await world.pass(30_000);
    world.copying = false;
    for (let i = 0; i < 3; i++) {
      await world.setReplicas(volume, 1);
      await world.round();
      expect(await world.replicas(volume)).toEqual(['a*']);
      await world.setReplicas(volume, 2);
      const before = world.refreshed;
      await world.round();
      expect(await world.replicas(volume)).toEqual(['a*', 'b']);
      expect(world.refreshed).toBe(before + 1);
    }
  });
});
