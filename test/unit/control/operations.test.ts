import { afterEach, describe, expect, it } from 'vitest';
import { present } from '../../../src/base/assert.js';
import { HoldfastError } from '../../../src/base/errors.js';
import { codeFrom, FakeCluster, GIB, MIB, orderOf, patient, type NodePlan } from './fake-cluster.js';

let cluster: FakeCluster;

async function start(plan: Readonly<Record<string, NodePlan>> = { a: {}, b: {}, c: {} }): Promise<FakeCluster> {
  cluster = await FakeCluster.start(plan);
  return cluster;
}

afterEach(() => cluster.stop());

describe('creating', () => {
  it('a created volume is ready, with its replicas on as many nodes', async () => {
    const { volumes } = await start();
    const record = await volumes.create(orderOf('v'), patient());
    expect(record).toMatchObject({ name: 'v', capacityBytes: GIB, phase: 'ready', epoch: 1, writer: null });
    expect(cluster.holders(record.id)).toEqual(record.replicas.map((replica) => replica.node).toSorted());
    expect(record.replicas.every((replica) => replica.inSync)).toBe(true);
  });

  it('a repeated call finds the volume, a different order is refused by what differs', async () => {
    const { volumes } = await start();
    const first = await volumes.create(orderOf('v'), patient());
    expect((await volumes.create(orderOf('v'), patient())).id).toBe(first.id);
    const bigger = orderOf('v', { range: { requiredBytes: 2 * GIB, limitBytes: Infinity } });
    await expect(volumes.create(bigger, patient())).rejects.toMatchObject({
      code: 'already-exists',
      message: expect.stringContaining('capacity') as string,
    });
    const single = orderOf('v', { parameters: { ...orderOf('v').parameters, replicas: 1 } });
    await expect(volumes.create(single, patient())).rejects.toMatchObject({
      code: 'already-exists',
      message: expect.stringContaining('replicas') as string,
    });
    expect(await codeFrom(volumes.create(orderOf('v', { content: { kind: 'block' } }), patient()))).toBe(
      'already-exists',
    );
  });

  it('many calls for one name at once make one volume', async () => {
    const { volumes } = await start();
    const made = await Promise.all(Array.from({ length: 20 }, () => volumes.create(orderOf('v'), patient())));
    expect(new Set(made.map((record) => record.id)).size).toBe(1);
    expect(cluster.replicaCount()).toBe(2);
  });

  it('volumes made at once never get the same room', async () => {
    const { volumes } = await start({ a: { disks: [3] }, b: { disks: [3] } });
    const codes = await Promise.all(
      Array.from({ length: 8 }, (_, index) => codeFrom(volumes.create(orderOf(`v${index}`), patient()))),
    );
    expect(codes.filter((code) => code === 'ok')).toHaveLength(3);
    expect(new Set(codes)).toEqual(new Set(['ok', 'resource-exhausted']));
  });

  it('a node that is cut off during a create is exchanged, and its late replica is removed when it returns', async () => {
    const { volumes } = await start();
    const first = await volumes.create(orderOf('probe'), patient());
    await volumes.remove(first.id, patient());
    const cut = present(first.replicas[0], 'replica').node;
    cluster.node(cut).mode = 'cut';
    const record = await volumes.create(orderOf('v'), patient());
    expect(record.replicas).toHaveLength(2);
    expect(record.replicas.map((replica) => replica.node)).not.toContain(cut);
    cluster.node(cut).heal();
    await volumes.settle();
    expect(cluster.node(cut).replicas.size).toBe(0);
    expect(cluster.holders(record.id)).toHaveLength(2);
  });

  it('without another node the caller is told which one fails, and a later call carries on', async () => {
    const { volumes } = await start({ a: {}, b: {} });
    cluster.node('b').mode = 'cut';
    await expect(volumes.create(orderOf('v'), patient())).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('node b') as string,
    });
    const [half] = await cluster.records();
    expect(half?.phase).toBe('creating');
    cluster.node('b').heal();
    const record = await volumes.create(orderOf('v'), patient());
    expect(record.id).toBe(half?.id);
    expect(record.phase).toBe('ready');
    expect(cluster.holders(record.id)).toEqual(['a', 'b']);
  });

  it('a controller that died in the middle is followed by one that finishes the same volume', async () => {
    await start({ a: {}, b: {} });
    cluster.node('b').mode = 'broken';
    await codeFrom(cluster.volumes.create(orderOf('v'), patient()));
    const [half] = await cluster.records();
    cluster.node('b').heal();
    const record = await cluster.newVolumes().create(orderOf('v'), patient());
    expect(record).toMatchObject({ id: half?.id, phase: 'ready' });
    expect(await cluster.records()).toHaveLength(1);
  });

  it('a replica left on another disk by an earlier try makes way', async () => {
    const { volumes } = await start({ a: {}, b: {} });
    cluster.node('b').mode = 'broken';
    await codeFrom(volumes.create(orderOf('v'), patient()));
    const [half] = await cluster.records();
    cluster.node('b').heal();
    cluster.node('b').replicas.set(half?.id ?? '', { disk: 'disk-elsewhere', capacityBytes: GIB });
    const record = await volumes.create(orderOf('v'), patient());
    expect(cluster.node('b').replicas.get(record.id)?.disk).toBe('disk-b0');
  });

  it('a half-made volume makes way for a different order of its name', async () => {
    const { volumes } = await start({ a: {}, b: {} });
    cluster.node('b').mode = 'broken';
    await codeFrom(volumes.create(orderOf('v'), patient()));
    const [half] = await cluster.records();
    cluster.node('b').heal();
    const bigger = orderOf('v', { range: { requiredBytes: 2 * GIB, limitBytes: Infinity } });
    const record = await volumes.create(bigger, patient());
    expect(record.capacityBytes).toBe(2 * GIB);
    expect(record.id).not.toBe(half?.id);
    expect(cluster.replicaCount()).toBe(2);
  });

  it('a half-made volume that nobody asks for any more is taken back, and not before', async () => {
    const { volumes } = await start({ a: {}, b: {} });
    cluster.node('b').mode = 'broken';
    await codeFrom(volumes.create(orderOf('v'), patient()));
    cluster.node('b').heal();
    cluster.nowMs = 5 * 60_000;
    await volumes.settle();
    expect(await cluster.records()).toHaveLength(1);
    cluster.nowMs = 10 * 60_000;
    await volumes.settle();
    expect(await cluster.records()).toHaveLength(0);
    expect(cluster.replicaCount()).toBe(0);
  });

  it('a restarted controller gives half-made volumes their full time', async () => {
    await start({ a: {}, b: {} });
    cluster.node('b').mode = 'broken';
    await codeFrom(cluster.volumes.create(orderOf('v'), patient()));
    cluster.node('b').heal();
    cluster.nowMs = 60 * 60_000;
    const volumes = cluster.newVolumes();
    await volumes.settle();
    expect(await cluster.records()).toHaveLength(1);
    cluster.nowMs += 10 * 60_000;
    await volumes.settle();
    expect(await cluster.records()).toHaveLength(0);
  });

  it('a create that can not get its turn before its deadline is aborted and does nothing', async () => {
    const { volumes } = await start({ a: {}, b: {} });
    cluster.node('b').mode = 'cut';
    const first = codeFrom(volumes.create(orderOf('v'), patient()));
    const hasty = { remainingMs: () => 300, signal: new AbortController().signal };
    expect(await codeFrom(volumes.create(orderOf('v'), hasty))).toBe('aborted');
    expect(await first).toBe('unavailable');
  });

  it('a caller that went away before anything was written leaves nothing', async () => {
    const { volumes } = await start();
    const gone = AbortSignal.abort();
    expect(await codeFrom(volumes.create(orderOf('v'), { remainingMs: () => Infinity, signal: gone }))).toBe(
      'cancelled',
    );
    expect(await cluster.records()).toHaveLength(0);
  });

  it('cancelled at any moment, a create leaves nothing or a volume that its name finds', async () => {
    const { volumes } = await start();
    for (let round = 0; round < 60; round++) {
      const controller = new AbortController();
      const context = { remainingMs: () => Infinity, signal: controller.signal };
      const call = codeFrom(volumes.create(orderOf(`v${round % 7}`), context));
      await new Promise((resolve) => setTimeout(resolve, round % 6));
      controller.abort();
      await call;
      const [record] = await cluster.records();
      if (record === undefined) continue;
      expect((await volumes.create(orderOf(record.name), patient())).id).toBe(record.id);
      if (round % 2 === 0) await volumes.remove(record.id, patient());
    }
    for (const record of await cluster.records()) await volumes.remove(record.id, patient());
    expect(cluster.replicaCount()).toBe(0);
  });

  it('a lost answer of the store is settled by the next call', async () => {
    const { volumes } = await start();
    cluster.faults.next('create', { lose: 'answer' });
    expect(await codeFrom(volumes.create(orderOf('v'), patient()))).toBe('unavailable');
    cluster.faults.next('update', { lose: 'answer' });
    expect(await codeFrom(volumes.create(orderOf('v'), patient()))).toBe('unavailable');
    const record = await volumes.create(orderOf('v'), patient());
    expect(await cluster.records()).toEqual([record]);
  });

  it('nodes that are not ready are not asked at all', async () => {
    const { volumes } = await start();
    cluster.leases.set('a', 'expired');
    cluster.leases.set('b', 'unknown');
    await expect(volumes.create(orderOf('v'), patient())).rejects.toMatchObject({
      code: 'resource-exhausted',
      message: expect.stringMatching(/a is not ready.*b is not ready/) as string,
    });
  });
});

describe('deleting', () => {
  it('a deleted volume leaves no record and no replica, and deleting again is fine', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v'), patient());
    await volumes.remove(id, patient());
    await volumes.remove(id, patient());
    expect(await cluster.records()).toHaveLength(0);
    expect(cluster.replicaCount()).toBe(0);
  });

  it('a volume in use is left as it is, and the refusal names the node', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v'), patient());
    await cluster.change(id, { writer: { node: 'c', session: 'f'.repeat(32) }, epoch: 2 });
    const before = await cluster.record(id);
    await expect(volumes.remove(id, patient())).rejects.toMatchObject({
      code: 'failed-precondition',
      message: expect.stringContaining('node c') as string,
    });
    expect(await cluster.record(id)).toEqual(before);
    expect(cluster.holders(id)).toHaveLength(2);
  });

  it('a volume whose writer is gone can be deleted', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v'), patient());
    await cluster.change(id, { writer: { node: 'gone', session: 'f'.repeat(32) } });
    await volumes.remove(id, patient());
    const other = await volumes.create(orderOf('w'), patient());
    await cluster.change(other.id, { writer: { node: 'c', session: 'f'.repeat(32) } });
    cluster.leases.set('c', 'expired');
    await volumes.remove(other.id, patient());
    expect(await cluster.records()).toHaveLength(0);
  });

  it('against a take-over, either the delete or the take-over wins, never both', async () => {
    const { volumes } = await start();
    for (let round = 0; round < 50; round++) {
      const { id } = await volumes.create(orderOf('v'), patient());
      const takeOver = cluster
        .change(id, { writer: { node: 'a', session: 'f'.repeat(32) } })
        .then(() => true)
        .catch(() => false);
      const [attached, code] = await Promise.all([takeOver, codeFrom(volumes.remove(id, patient()))]);
      expect(attached).toBe(code === 'failed-precondition');
      if (!attached) continue;
      expect(cluster.holders(id)).toHaveLength(2);
      await cluster.change(id, { writer: null });
      await volumes.remove(id, patient());
    }
  });

  it('a late delete of an older volume leaves the newer one of its name alone', async () => {
    const { volumes } = await start();
    const older = await volumes.create(orderOf('v'), patient());
    await volumes.remove(older.id, patient());
    const newer = await volumes.create(orderOf('v'), patient());
    expect(newer.id).not.toBe(older.id);
    await volumes.remove(older.id, patient());
    expect((await cluster.record(newer.id)).phase).toBe('ready');
    expect(cluster.holders(newer.id)).toHaveLength(2);
  });

  it('a node that is away does not hold up a delete; its replica goes when it is back', async () => {
    const { volumes } = await start({ a: {}, b: {} });
    const { id } = await volumes.create(orderOf('v'), patient());
    cluster.leases.set('b', 'expired');
    cluster.node('b').mode = 'cut';
    await volumes.remove(id, patient());
    expect(await cluster.records()).toHaveLength(0);
    cluster.node('b').heal();
    await volumes.settle();
    expect(cluster.holders(id)).toEqual(['b']);
    cluster.leases.set('b', 'live');
    await volumes.settle();
    expect(cluster.holders(id)).toEqual([]);
  });

  it('a delete that was interrupted is finished by the next controller', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v'), patient());
    await cluster.change(id, { phase: 'deleting' });
    await cluster.newVolumes().settle();
    expect(await cluster.records()).toHaveLength(0);
    expect(cluster.replicaCount()).toBe(0);
  });

  it('create, delete and create of one name at once end with at most one volume', async () => {
    const { volumes } = await start();
    for (let round = 0; round < 20; round++) {
      const { id } = await volumes.create(orderOf('v'), patient());
      const [, , last] = await Promise.all([
        volumes.create(orderOf('v'), patient()),
        volumes.remove(id, patient()),
        volumes.create(orderOf('v'), patient()),
      ]);
      expect((await cluster.records()).map((record) => record.id)).toEqual([last.id]);
      expect(cluster.replicaCount()).toBe(2);
    }
  });
});

describe('expanding', () => {
  const toGib = (gib: number) => ({ requiredBytes: gib * GIB, limitBytes: Infinity });

  it('an unattached volume grows in its record; the filesystem grows at the next stage', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v'), patient());
    expect(await volumes.expand(id, { requiredBytes: 2 * GIB + 1, limitBytes: Infinity }, patient())).toEqual({
      capacityBytes: 2 * GIB + MIB,
      nodeStepNeeded: true,
    });
    expect((await cluster.record(id)).capacityBytes).toBe(2 * GIB + MIB);
  });

  it('a block volume needs no step on the node, attached or not', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v', { content: { kind: 'block' } }), patient());
    expect((await volumes.expand(id, toGib(2), patient())).nodeStepNeeded).toBe(false);
    attach(id, 'a', 2 * GIB);
    await cluster.change(id, { writer: { node: 'a', session: 'f'.repeat(32) } });
    cluster.node('a').growTo = 3 * GIB;
    expect(await volumes.expand(id, toGib(3), patient())).toEqual({ capacityBytes: 3 * GIB, nodeStepNeeded: false });
    expect(cluster.node('a').attachments.get(id)?.sizeBytes).toBe(3 * GIB);
  });

  it('a smaller or equal size changes nothing and tells the present one', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v', { range: toGib(2) }), patient());
    const before = await cluster.record(id);
    expect((await volumes.expand(id, toGib(1), patient())).capacityBytes).toBe(2 * GIB);
    expect((await volumes.expand(id, toGib(2), patient())).capacityBytes).toBe(2 * GIB);
    expect(await cluster.record(id)).toEqual(before);
    expect(await codeFrom(volumes.expand(id, { requiredBytes: 0, limitBytes: GIB }, patient()))).toBe('out-of-range');
  });

  it('a growth that fails half way is finished by the repeated call', async () => {
    const { volumes } = await start();
    const { id } = await volumes.create(orderOf('v'), patient());
    attach(id, 'a', GIB);
    await cluster.change(id, { writer: { node: 'a', session: 'f'.repeat(32) } });
    cluster.node('a').mode = 'cut';
    expect(await codeFrom(volumes.expand(id, toGib(2), patient()))).toBe('unavailable');
    cluster.node('a').heal();
    expect(await codeFrom(volumes.expand(id, toGib(2), patient()))).toBe('unavailable');
    cluster.node('a').growTo = 2 * GIB;
    expect((await volumes.expand(id, toGib(2), patient())).capacityBytes).toBe(2 * GIB);
  });

  it('a disk without room refuses, names itself, and nothing is changed', async () => {
    const { volumes } = await start({ a: { disks: [4] }, b: { disks: [9] } });
    const { id } = await volumes.create(orderOf('v'), patient());
    await expect(volumes.expand(id, toGib(5), patient())).rejects.toMatchObject({
      code: 'out-of-range',
      message: expect.stringContaining('disk-a0') as string,
    });
    expect((await cluster.record(id)).capacityBytes).toBe(GIB);
    expect((await volumes.expand(id, toGib(4), patient())).capacityBytes).toBe(4 * GIB);
  });

  it('a volume that is not there is not found', async () => {
    const { volumes } = await start();
    expect(await codeFrom(volumes.expand(`vol-${'0'.repeat(32)}`, toGib(2), patient()))).toBe('not-found');
  });

  function attach(id: string, node: string, sizeBytes: number): void {
    cluster.node(node).attachments.set(id, { state: 'serving', epoch: 2, in_sync: [], waits_for: [], sizeBytes });
  }
});

describe('what went wrong', () => {
  it('keeps its code across the node and names the node', async () => {
    await start({ a: {} });
    cluster.node('a').mode = 'broken';
    const node = present(await cluster.store.get('node', 'a'), 'node').record;
    const failure = await cluster.agents
      .of(node)
      .removeReplica(`vol-${'0'.repeat(32)}`)
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(HoldfastError);
    expect(failure).toMatchObject({ code: 'io-error', message: expect.stringContaining('node a') as string });
  });

  it('a changed address is another connection, an unchanged one the same', async () => {
    await start({ a: {} });
    const node = present(await cluster.store.get('node', 'a'), 'node').record;
    const first = cluster.agents.of(node);
    expect(cluster.agents.of({ ...node })).toBe(first);
    expect(cluster.agents.of({ ...node, agentPort: 1 })).not.toBe(first);
  });
});
