import { afterEach, expect, it } from 'vitest';
import { present } from '../../../src/base/assert.js';
import { replicaUri } from '../../../src/control/admin-views.js';
import type { GetStatusResponse__Output } from '../../../src/generated/holdfast/v1/GetStatusResponse.js';
import type { ListNodesResponse__Output } from '../../../src/generated/holdfast/v1/ListNodesResponse.js';
import type { ListVolumesResponse__Output } from '../../../src/generated/holdfast/v1/ListVolumesResponse.js';
import type { VolumeView__Output } from '../../../src/generated/holdfast/v1/VolumeView.js';
import type { NodeRecord, VolumeRecord } from '../../../src/model/records.js';
import { threadOf } from '../../../src/model/threads.js';
import { ask, codeFrom, FakeCluster, GIB, orderOf, patient } from './fake-cluster.js';

let cluster: FakeCluster;
afterEach(() => cluster.stop());

async function start(): Promise<VolumeRecord> {
  cluster = await FakeCluster.start({ a: {}, b: {}, c: { disks: [] } }, { serve: true });
  await cluster.store.create('cluster', 'cluster', { schema: 1, clusterId: 'cluster-id' });
  return cluster.volumes.create(orderOf('v'), patient());
}

function volume(idOrName: string): Promise<VolumeView__Output> {
  const { admin } = cluster;
  return ask(admin, (...call) => admin.GetVolume(...call), { volume: idOrName });
}

it('a volume is found by id and by name, with its replicas and their endpoints', async () => {
  const record = await start();
  const view = await volume('v');
  expect(await volume(record.id)).toEqual(view);
  expect(JSON.parse(view.record_json)).toEqual(record);
  expect(view).toMatchObject({ health: 'healthy', conditions: [], attachment: null });
  const port = 7001 + threadOf(record.id, 2);
  expect(view.replicas).toContainEqual({
    node: 'a',
    disk_id: 'disk-a0',
    in_sync: true,
    node_ready: true,
    nbd_uri: `nbd://127.0.0.1:${port}/${record.id}`,
  });
  expect(await codeFrom(volume('other'))).toBe('not-found');
  expect(await codeFrom(volume(''))).toBe('invalid-argument');
});

it('an attachment is told while its node answers, and a silent node is waited for once', async () => {
  const record = await start();
  await cluster.change(record.id, { writer: { node: 'c', session: 'f'.repeat(32) } });
  cluster
    .node('c')
    .attachments.set(record.id, { state: 'serving', epoch: 2, in_sync: ['a'], waits_for: [], sizeBytes: GIB });
  expect((await volume('v')).attachment).toMatchObject({ state: 'serving', in_sync: ['a'] });
  cluster.node('c').mode = 'cut';
  expect(await volume('v')).toMatchObject({ attachment: null, health: 'degraded' });
});

it('the status and the nodes are counted', async () => {
  await start();
  const { admin } = cluster;
  cluster.leases.set('b', 'expired');
  const status: GetStatusResponse__Output = await ask(admin, (...call) => admin.GetStatus(...call), {});
  expect(status).toMatchObject({
    cluster_id: 'cluster-id',
    nodes_ready: 2,
    nodes_total: 3,
    volumes_total: 1,
    volumes_degraded: 1,
    volumes_attached: 0,
    capacity_bytes: 200 * GIB,
    provisioned_bytes: 2 * GIB,
  });
  const { nodes }: ListNodesResponse__Output = await ask(admin, (...call) => admin.ListNodes(...call), {});
  expect(nodes.map(({ ready, replicas, provisioned_bytes }) => [ready, replicas, provisioned_bytes])).toEqual([
    [true, 1, GIB],
    [false, 1, GIB],
    [true, 0, 0],
  ]);
  const { volumes }: ListVolumesResponse__Output = await ask(admin, (...call) => admin.ListVolumes(...call), {});
  expect(volumes.map((view) => view.conditions)).toEqual([
    ['NodesNotReady: nodes of replicas do not renew their leases: b'],
  ]);
});

it('a release is asked of the writer, by id or name; without a writer there is nothing to do', async () => {
  const record = await start();
  const { admin } = cluster;
  const release = (id: string) => ask(admin, (...call) => admin.ReleaseVolume(...call), { volume_id: id });
  await release('v');
  await cluster.change(record.id, { writer: { node: 'b', session: 'f'.repeat(32) } });
  await release('v');
  expect(cluster.node('b').released).toEqual([record.id]);
  cluster.leases.set('b', 'expired');
  expect(await codeFrom(release(record.id))).toBe('unavailable');
});

it('a replica on a node that is not registered has no endpoint, and IPv6 hosts are bracketed', async () => {
  const { id } = await start();
  expect(replicaUri(undefined, id)).toBe('');
  const node: NodeRecord = present(await cluster.store.get('node', 'a'), 'node').record;
  expect(replicaUri({ ...node, host: 'fd00::1', dataPorts: [9] }, id)).toBe(`nbd://[fd00::1]:9/${id}`);
});
