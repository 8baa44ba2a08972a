import { afterEach, describe, expect, it } from 'vitest';
import { present } from '../../../src/base/assert.js';
import type { ForceStaleResponse__Output } from '../../../src/generated/holdfast/v1/ForceStaleResponse.js';
import type { RemoveNodeResponse__Output } from '../../../src/generated/holdfast/v1/RemoveNodeResponse.js';
import type { SetReplicasResponse__Output } from '../../../src/generated/holdfast/v1/SetReplicasResponse.js';
import type { VolumeExplanation__Output } from '../../../src/generated/holdfast/v1/VolumeExplanation.js';
import type { VolumeView__Output } from '../../../src/generated/holdfast/v1/VolumeView.js';
import type { VolumeRecord } from '../../../src/model/records.js';
import { ask, codeFrom, diskOf, FakeCluster, orderOf, patient, type NodePlan } from './fake-cluster.js';

let cluster: FakeCluster;
afterEach(() => cluster.stop());

const SESSION = 'f'.repeat(32);

async function start(
  plan: Record<string, NodePlan>,
  parameters: Partial<VolumeRecord['parameters']> = {},
): Promise<VolumeRecord> {
  cluster = await FakeCluster.start(plan, { serve: true });
  const order = orderOf('v');
  return cluster.volumes.create({ ...order, parameters: { ...order.parameters, ...parameters } }, patient());
}

function setReplicas(replicas: number): Promise<SetReplicasResponse__Output> {
  const { admin } = cluster;
  return ask(admin, (...call) => admin.SetReplicas(...call), { volume: 'v', replicas });
}

function why(): Promise<VolumeExplanation__Output> {
  const { admin } = cluster;
  return ask(admin, (...call) => admin.ExplainVolume(...call), { volume: 'v' });
}

function forceStale(node: string, accept: boolean): Promise<ForceStaleResponse__Output> {
  const { admin } = cluster;
  return ask(admin, (...call) => admin.ForceStale(...call), { volume: 'v', node, accept_loss: accept });
}

function removeNode(node: string): Promise<RemoveNodeResponse__Output> {
  const { admin } = cluster;
  return ask(admin, (...call) => admin.RemoveNode(...call), { node });
}

function release(force: boolean): Promise<unknown> {
  const { admin } = cluster;
  return ask(admin, (...call) => admin.ReleaseVolume(...call), { volume_id: 'v', force });
}

async function lease(node: string): Promise<void> {
  await cluster.store.create('lease', node, { schema: 1, nodeUid: 'u', intervalMs: 3_000, beat: 1 });
}

describe('set-replicas', () => {
  it('changes what is wanted, with its decision, and tells what will happen', async () => {
    const { id } = await start({ a: {}, b: {}, c: {} });
    expect((await setReplicas(3)).next.join()).toContain('1 more will be placed');
    const record = await cluster.record(id);
    expect(record).toMatchObject({ epoch: 1, parameters: { replicas: 3 } });
    expect(record.decisions).toMatchObject([{ by: 'controller', epoch: 1 }]);
    await cluster.rebuilder.round();
    expect((await cluster.record(id)).replicas.map(({ inSync }) => inSync)).toEqual([true, true, false]);
    expect((await setReplicas(3)).next.join()).toContain('nothing changes');
    expect((await setReplicas(1)).next.join()).toContain('2 will leave');
  });

  it('refuses with the right code what can not be', async () => {
    const { id } = await start({ a: {}, b: {} }, { minInSync: 2 });
    expect(await codeFrom(setReplicas(0))).toBe('invalid-argument');
    expect(await codeFrom(setReplicas(4))).toBe('invalid-argument');
    expect(await codeFrom(setReplicas(1))).toBe('failed-precondition');
    expect(await codeFrom(setReplicas(3))).toBe('resource-exhausted');
    await cluster.change(id, { phase: 'deleting' });
    expect(await codeFrom(setReplicas(2))).toBe('failed-precondition');
    const { admin } = cluster;
    const other = ask(admin, (...call) => admin.SetReplicas(...call), { volume: 'other', replicas: 2 });
    expect(await codeFrom(other)).toBe('not-found');
    expect((await cluster.record(id)).parameters.replicas).toBe(2);
  });
});

describe('why', () => {
  it('tells what happened, what is waited for and what comes next', async () => {
    const { id, replicas } = await start({ a: {}, b: {}, c: {} });
    const away = replicas[1]?.node ?? '';
    cluster.leases.set(away, 'expired');
    await cluster.rebuilder.round();
    cluster.nowMs += 130_000;
    await cluster.rebuilder.round();
    const first = await why();
    expect(first).toMatchObject({ volume_id: id, health: 'degraded', happened: [] });
    expect(first.state).toContain('2 of 2 replicas are in sync');
    expect(first.state).toContain('no node has it attached');
    expect(first.next).toEqual([`node ${away} is away for 2 min 10 s; after 10 min a new replica is made elsewhere`]);
    cluster.nowMs += 600_000;
    await cluster.rebuilder.round();
    const later = await why();
    expect(later.happened[0]).toMatchObject({ by: 'controller', epoch: 1, times: 1 });
    expect(later.happened[0]?.what).toMatch(/a new replica is made on .*: node . does not renew its lease/);
    expect(later.next.join()).toMatch(/a writer without a device brings the replica on . up to date/);
  });

  it('tells what is missing where, where no node has room', async () => {
    await start({ a: {}, b: {} });
    await cluster.change((await cluster.records())[0]?.id ?? '', {
      parameters: { ...orderOf('v').parameters, replicas: 3 },
    });
    await cluster.rebuilder.round();
    const told = await why();
    expect(told.waits_for.join()).toContain('no room for replica 3 of 3');
    expect(told.next).toEqual([
      'a new replica is made on other nodes, as soon as that is possible: 3 replicas are wanted',
    ]);
  });

  it('tells how far a resync is, and a dead writer’s way out where failover is manual', async () => {
    const { id, replicas } = await start({ a: {}, b: {} }, { failover: 'manual' });
    const node = replicas[0]?.node ?? '';
    await cluster.change(id, { writer: { node, session: SESSION } });
    cluster.node(node).attachments.set(id, {
      state: 'serving',
      resync: { node: 'c', regions_total: 120, regions_done: 45 },
      waits_for: [],
      sizeBytes: 1,
    });
    expect((await why()).waits_for).toContain('the resync of c: 45 of 120 regions');
    cluster.leases.set(node, 'expired');
    expect((await why()).next.join()).toContain(`holdfast volume release ${id} --force`);
  });

  it('names the way out where no in-sync replica is within reach', async () => {
    const { id, replicas } = await start({ a: {}, b: {} });
    const [gone, stale] = [replicas[0]?.node ?? '', replicas[1]?.node ?? ''];
    await cluster.change(id, { replicas: replicas.map((one) => ({ ...one, inSync: one.node === gone })) });
    cluster.leases.set(gone, 'expired');
    expect((await why()).next).toEqual([
      `nothing can be done before an in-sync replica is back: ${gone}; if none ever comes back, a stale one can be chosen, with loss: holdfast volume force-stale ${id} --replica ${stale}`,
    ]);
  });
});

describe('force-stale (R12)', () => {
  async function stranded(): Promise<{ id: string; gone: string; stale: string }> {
    const { id, replicas } = await start({ a: {}, b: {} });
    const [gone, stale] = [replicas[0]?.node ?? '', replicas[1]?.node ?? ''];
    await cluster.change(id, { epoch: 5, replicas: replicas.map((one) => ({ ...one, inSync: one.node === gone })) });
    return { id, gone, stale };
  }

  it('is refused while an in-sync replica may come back', async () => {
    const { gone, stale } = await stranded();
    expect(await codeFrom(forceStale(stale, true))).toBe('failed-precondition');
    cluster.leases.set(gone, 'unknown');
    expect(await codeFrom(forceStale(stale, true))).toBe('failed-precondition');
    cluster.leases.set(gone, 'expired');
    await expect(forceStale(stale, true)).rejects.toThrow(`holdfast node remove ${gone}`);
    expect(await codeFrom(forceStale(gone, true))).toBe('failed-precondition');
    expect(await codeFrom(forceStale('other', true))).toBe('not-found');
    expect(await codeFrom(forceStale('', true))).toBe('invalid-argument');
  });

  it('makes the stale one the in-sync one, once the loss is accepted, and tells it', async () => {
    const { id, gone, stale } = await stranded();
    cluster.leases.set(gone, 'expired');
    await removeNode(gone);
    await expect(forceStale(stale, false)).rejects.toThrow(/lacks every write .*--accept-loss/s);
    expect((await cluster.record(id)).epoch).toBe(5);
    const { loss } = await forceStale(stale, true);
    expect(loss.join('; ')).toContain(`those that had these writes are gone: ${gone}`);
    const record = await cluster.record(id);
    expect(record).toMatchObject({ epoch: 6, writer: null, quiet: false });
    expect(record.replicas.filter(({ inSync }) => inSync).map(({ node }) => node)).toEqual([stale]);
    expect(record.decisions?.at(-1)?.what).toContain(`a person chose the stale replica on ${stale}`);
  });

  it('is there too where the only in-sync replica’s disk has failed on a live node', async () => {
    const { id, gone, stale } = await stranded();
    const disk = present(await cluster.store.get('disk', diskOf(gone)), 'the disk');
    await cluster.store.update('disk', disk.key, { ...disk.record, state: 'failed' }, disk.version);
    await cluster.rebuilder.round();
    expect(await codeFrom(forceStale(stale, true))).toBe('failed-precondition');
    cluster.nowMs += 20_000;
    await cluster.rebuilder.round();
    await forceStale(stale, true);
    expect((await cluster.record(id)).replicas.find(({ inSync }) => inSync)?.node).toBe(stale);
  });
});

describe('node remove', () => {
  it('takes a dead node, its lease and its disks out, and rebuilds begin at once', async () => {
    const { id, replicas } = await start({ a: {}, b: {}, c: {} });
    const [kept, gone] = [replicas[0]?.node ?? '', replicas[1]?.node ?? ''];
    await cluster.change(id, { replicas: replicas.map((one) => ({ ...one, inSync: one.node === kept })) });
    await lease(gone);
    expect(await codeFrom(removeNode(gone))).toBe('failed-precondition');
    cluster.leases.set(gone, 'expired');
    expect(await removeNode(gone)).toMatchObject({ disks: [diskOf(gone)], volumes: 1 });
    for (const [kind, key] of [
      ['node', gone],
      ['lease', gone],
      ['disk', diskOf(gone)],
    ] as const) {
      expect(await cluster.store.get(kind, key)).toBeUndefined();
    }
    await cluster.rebuilder.round();
    await cluster.rebuilder.round();
    const nodes = (await cluster.record(id)).replicas.map(({ node }) => node);
    expect(nodes).toHaveLength(2);
    expect(nodes).not.toContain(gone);
    expect(await codeFrom(removeNode('other'))).toBe('not-found');
  });
});

describe('release with force', () => {
  it('takes a dead writer out of the record, and says without force that it could', async () => {
    const { id } = await start({ a: {}, b: {} });
    await cluster.change(id, { epoch: 4, writer: { node: 'b', session: SESSION }, quiet: true });
    cluster.leases.set('b', 'expired');
    await expect(release(false)).rejects.toThrow(/--force/);
    await release(true);
    expect(await cluster.record(id)).toMatchObject({ epoch: 5, writer: null, quiet: false });
    expect((await cluster.record(id)).decisions?.at(-1)?.what).toContain('released by a person with force');
  });

  it('asks a live writer all the same, and is refused while it can not be asked and its lease is live', async () => {
    const { id } = await start({ a: {}, b: {} });
    await cluster.change(id, { writer: { node: 'b', session: SESSION } });
    await release(true);
    expect(cluster.node('b').released).toEqual([id]);
    cluster.node('b').mode = 'cut';
    await expect(release(true)).rejects.toMatchObject({ code: 'unavailable' });
    expect((await cluster.record(id)).writer).toMatchObject({ node: 'b' });
  });
});

describe('a volume that is being maintained', () => {
  it('is deleted when its writer has given it up', async () => {
    const { id } = await start({ a: {}, b: {} });
    await cluster.change(id, { writer: { node: 'b', session: SESSION, maintenance: true } });
    expect(await codeFrom(cluster.volumes.remove(id, patient()))).toBe('aborted');
    cluster.node('b').onYield = () => cluster.change(id, { writer: null });
    await cluster.volumes.remove(id, patient());
    expect(await cluster.records()).toEqual([]);
  });

  it('says so in its health, as does one with a replica on a failed disk or with damaged blocks', async () => {
    const { id, replicas } = await start({ a: {}, b: {} });
    const conditions = async (): Promise<string> => {
      const { admin } = cluster;
      const view: VolumeView__Output = await ask(admin, (...call) => admin.GetVolume(...call), { volume: 'v' });
      return [view.health, ...view.conditions].join(' | ');
    };
    expect(await conditions()).toBe('healthy');
    const node = replicas[0]?.node ?? '';
    cluster.node(node).told.set(id, { damaged_blocks: 3 });
    await cluster.rebuilder.round();
    expect(await conditions()).toContain(`degraded | DamagedBlocks: blocks of replicas are damaged: 3 on ${node}`);
    const disk = present(await cluster.store.get('disk', diskOf(node)), 'the disk');
    await cluster.store.update('disk', disk.key, { ...disk.record, state: 'failed', reason: 'EIO' }, disk.version);
    expect(await conditions()).toContain(`DiskFailed: disk ${diskOf(node)} of node ${node} has failed (EIO)`);
    await cluster.change(id, { writer: { node: 'b', session: SESSION, maintenance: true } });
    expect(await conditions()).toContain('Maintenance: node b brings the replicas into line');
  });
});
