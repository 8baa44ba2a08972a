import { afterEach, describe, expect, it } from 'vitest';
import { codeOf, HoldfastError } from '../../../src/base/errors.js';
import type { Labels } from '../../../src/base/meters.js';
import { serveNbd } from '../../../src/nbd/server.js';
import { NbdClient } from '../../../src/nbd/client.js';
import { WriterExports } from '../../../src/writer/exports.js';
import type { Writer } from '../../../src/writer/writer.js';
import { WARN } from '../../support/recording-log.js';
import { type ClusterNode, ReplicationCluster, VOLUME } from '../../support/replication-cluster.js';

const CAPACITY = 32 * 1024 * 1024;

let cluster: ReplicationCluster;

afterEach(() => cluster.close());

async function twoNodes(): Promise<[ClusterNode, ClusterNode]> {
  cluster = await ReplicationCluster.create({ names: ['a', 'b'], capacityBytes: CAPACITY });
  return [cluster.node('a'), cluster.node('b')];
}

async function write(node: ClusterNode, writer: Pick<Writer, 'write'>, offset = 0): Promise<void> {
  const lease = await node.slab.take(4096);
  lease.bytes.fill(7);
  await writer.write(offset, lease, false).finally(() => lease.release());
}

/** A counter's value, or a histogram's count; 0 where nothing was counted under these labels. */
function counted(node: ClusterNode, name: string, labels: Labels = {}): number {
  const { values, histograms } = node.meters.snapshot();
  const isAsked = (of: { name: string; labels: Labels }): boolean =>
    of.name === `holdfast_${name}` && Object.entries(labels).every(([label, value]) => of.labels[label] === value);
  const counts = histograms.filter(isAsked).flatMap((histogram) => histogram.counts);
  return [...counts, ...values.filter(isAsked).map(({ value }) => value)].reduce((sum, value) => sum + value, 0);
}

/** The writer's figures now, by name, the last one for each. */
function figures(writer: Writer): Map<string, number> {
  const told = new Map<string, number>();
  writer.tell((name, value, labels = {}) => {
    const others = Object.entries(labels).filter(([label]) => label !== 'volume');
    told.set([name.replace('holdfast_', ''), ...others.map(([, text]) => text)].join(' '), value);
  });
  return told;
}

describe('what a writer tells of itself', () => {
  it('is its state, its replicas, and what I/O waits for', async () => {
    const [a, b] = await twoNodes();
    const writer = await a.attach();
    await write(a, writer);
    const told = figures(writer);
    expect(Object.fromEntries(told)).toMatchObject({
      [`writer_info ${VOLUME}`]: 1,
      'writer_state serving': 1,
      'writer_state fenced': 0,
      writer_epoch: 2,
      'writer_replica_in_sync a': 1,
      'writer_replica_in_sync b': 1,
      'writer_replica_oldest_request_seconds b': 0,
      writer_open_regions: 1,
      writer_reconcile_regions: 0,
      writer_waits: 0,
    });
    await b.kill();
    await cluster.until(() => figures(writer).get('writer_replica_in_sync b') === 0);
    expect(counted(a, 'replica_drops_total', { replica: 'b' })).toBe(1);
    expect(counted(a, 'replica_drops_total', { replica: 'b', reason: 'not-back' })).toBe(1);
  });

  it('counts a take-over and its parts, and the requests of peers and disks', async () => {
    const [a, b] = await twoNodes();
    const writer = await a.attach();
    for (const part of ['record', 'fencing', 'tables', 'outwait']) {
      expect(counted(a, 'takeover_seconds', { part })).toBe(1);
    }
    expect(counted(a, 'takeovers_total', { outcome: 'done' })).toBe(1);
    await write(a, writer);
    await writer.flush();
    for (const node of [a, b]) {
      expect(counted(node, 'disk_request_seconds', { op: 'write' })).toBe(1);
      expect(counted(node, 'disk_request_seconds', { op: 'flush' })).toBeGreaterThanOrEqual(1);
      expect(counted(node, 'disk_bytes_total', { op: 'write' })).toBe(4096);
      expect(counted(node, 'region_open_seconds')).toBe(1);
    }
    expect(counted(a, 'peer_request_seconds', { replica: 'b', op: 'write' })).toBe(1);
    expect(counted(b, 'replica_sessions_admitted_total')).toBe(1);
  });

  it('counts what a resync copies', async () => {
    const [a, b] = await twoNodes();
    const writer = await a.attach();
    await b.kill();
    await write(a, writer);
    await cluster.until(async () => (await cluster.inSync()).join() === 'a');
    await write(a, writer, 8 * 1024 * 1024);
    await b.start();
    await cluster.until(async () => (await cluster.inSync()).join() === 'a,b');
    await cluster.until(() => counted(a, 'resyncs_total', { outcome: 'done' }) === 1);
    expect(counted(a, 'resync_copied_bytes_total')).toBeGreaterThan(0);
  });

  it('refuses a take-over with its code', async () => {
    const [a] = await twoNodes();
    await expect(a.attach({ resume: true })).rejects.toMatchObject({ code: 'fenced' });
    expect(counted(a, 'takeovers_total', { outcome: 'fenced' })).toBe(1);
  });
});

describe('a fenced writer', () => {
  it('is told of once, with who fenced it, and its refused requests are counted', async () => {
    const [a, b] = await twoNodes();
    const writer = await a.attach();
    const { epoch, session } = writer;
    const exports = new WriterExports(new Map([[VOLUME, writer]]), a.told.log, a.meters);
    const address = { kind: 'tcp', host: '127.0.0.1', port: 0 } as const;
    const server = await serveNbd({ io: a.io, address, exports, slab: a.slab, log: a.told.log });
    const client = await NbdClient.connect({ io: a.io, address: server.address, exportName: VOLUME, timeoutMs: 1_000 });
    try {
      await write(a, client);
      await b.attach({ expired: ['a'] });
      await cluster.until(() => writer.ended !== undefined);
      expect(writer.status()).toMatchObject({ state: 'fenced', waitsFor: [expect.stringMatching(/^fenced by /)] });
      const [told, ...more] = a.told.of('writer was fenced');
      expect(told).toMatchObject({ level: WARN, volume: VOLUME, epoch, session });
      expect(told?.['by']).toMatch(/^(node|record|replica [ab])$/);
      expect(more).toEqual([]);
      expect(counted(a, 'writers_fenced_total')).toBe(1);
      expect(figures(writer).get('writer_state fenced')).toBe(1);

      for (let tries = 0; tries < 2; tries++) await expect(write(a, client)).rejects.toThrow();
      expect(counted(a, 'fenced_requests_total', { side: 'writer' })).toBe(2);
      expect(counted(a, 'volume_errors_total', { volume: VOLUME, code: 'fenced' })).toBe(2);
      expect(counted(a, 'volume_requests_total', { volume: VOLUME, op: 'write' })).toBe(3);
      expect(a.told.of('requests of a fenced writer are refused')).toHaveLength(1);
    } finally {
      client.close();
      await server.close();
    }
  });

  it('that was cut off learns it from the replica that refuses it, which says so too', async () => {
    const [a, b] = await twoNodes();
    const writer = await a.attach();
    await write(a, writer);
    cluster.cut('a', 'b');
    await b.attach({ expired: ['a'] });
    expect(b.told.of('session was fenced off')).toHaveLength(1);
    expect(counted(b, 'replica_sessions_fenced_total')).toBe(1);
    cluster.heal();
    await cluster.until(() => writer.ended !== undefined);
    expect(a.told.of('writer was fenced')).toHaveLength(1);
    expect(counted(a, 'writers_fenced_total')).toBe(1);
    await expect(write(a, writer)).rejects.toMatchObject({ code: 'fenced' });
  });

  it('that died before it could be told is told of when it would go on', async () => {
    const [a, b] = await twoNodes();
    await a.attach();
    await a.kill();
    await b.attach({ expired: ['a'] });
    await a.start();
    const refused = await a.attach({ resume: true }).then(() => undefined, codeOf);
    expect(refused).toBe('fenced');
    expect(a.told.of('writer was fenced')).toEqual([
      expect.objectContaining({
        level: WARN,
        volume: VOLUME,
        by: 'record',
        successor: { node: 'b', session: b.writer?.session },
      }),
    ]);
    expect(counted(a, 'writers_fenced_total', { by: 'record' })).toBe(1);
  });

  it('by the forced end of its attachment is told of as well', async () => {
    const [a] = await twoNodes();
    const writer = await a.attach();
    writer.fence(new HoldfastError('fenced', 'the attachment was ended'), 'revoke');
    expect(a.told.of('writer was fenced')).toEqual([expect.objectContaining({ level: WARN, by: 'revoke' })]);
    expect(counted(a, 'writers_fenced_total', { by: 'revoke' })).toBe(1);
  });
});

describe('a replica', () => {
  it('counts the sessions it refuses, by reason', async () => {
    const [a, b] = await twoNodes();
    await a.attach();
    await expect(b.host.admit(VOLUME, { epoch: 1, session: 'f'.repeat(32), disk: 'disk-b' })).rejects.toMatchObject({
      code: 'fenced',
    });
    const unknown = VOLUME.replace(/^vol-a/, 'vol-b');
    await expect(b.host.admit(unknown, { epoch: 1, session: 'x', disk: 'disk-b' })).rejects.toMatchObject({
      code: 'not-found',
    });
    expect(counted(b, 'replica_sessions_refused_total', { reason: 'fenced' })).toBe(1);
    expect(counted(b, 'replica_sessions_refused_total', { reason: 'not-found' })).toBe(1);
    expect(b.told.of('fenced writer refused')).toEqual([expect.objectContaining({ level: WARN, epoch: 1 })]);
  });
});
