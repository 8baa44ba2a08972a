/* What must never go wrong with an acknowledged write or a read, under faults at unkind moments. */
import { afterEach, describe, expect, it } from 'vitest';
import { codeOf, HoldfastError } from '../../../src/base/errors.js';
import type { Writer } from '../../../src/writer/writer.js';
import { type ClusterNode, ReplicationCluster, VOLUME } from '../../support/replication-cluster.js';

const MIB = 1024 * 1024;
const CAPACITY = 32 * MIB;
let cluster: ReplicationCluster;
afterEach(async () => {
  cluster.beforeDisk = undefined;
  await cluster.close();
});

async function write(node: ClusterNode, writer: Writer, offset: number, fill: number, length = 4096, fua = false) {
  const lease = await node.slab.take(length);
  lease.bytes.fill(fill);
  try {
    await writer.write(offset, lease, fua);
  } finally {
    lease.release();
  }
}

async function readByte(node: ClusterNode, writer: Writer, offset: number): Promise<number | undefined> {
  const lease = await writer.read(offset, 4096, node.slab);
  try {
    return lease.bytes[0];
  } finally {
    lease.release();
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const inData = (path: string, node: string): boolean => path.includes(`/${node}/`) && path.includes('/data/');

describe('a write that the last in-sync replica refuses while a resync runs', () => {
  it('leaves the target of the resync equal to it (I5, I8)', async () => {
    cluster = await ReplicationCluster.create({
      names: ['a', 'b'],
      capacityBytes: CAPACITY,
      timing: { resyncBytesPerSecond: 4 * MIB },
    });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await b.kill();
    for (let region = 0; region < 8; region++) await write(a, writer, region * 4 * MIB, 1, MIB);
    await b.start();
    await cluster.until(() => (writer.status().resync?.regionsDone ?? 0) >= 1);
    cluster.beforeDisk = (operation, path) => {
      if (operation === 'write' && inData(path, 'a')) throw new HoldfastError('no-space', 'disk is full');
    };
    await expect(write(a, writer, 0, 2)).rejects.toSatisfy((error) => codeOf(error) === 'no-space');
    cluster.beforeDisk = undefined;
    await cluster.until(async () => (await cluster.inSync()).length === 2);
    await cluster.until(() => writer.status().regionsOpen === 0);
    // Both are in sync and closed with one stamp now.
    expect(await b.content()).toBe(await a.content());
  }, 20_000);
});

describe('a replica that refuses a write while the other is away', () => {
  it('stays in the set: the other may come back without what it acknowledged (R4, R10, I2)', async () => {
    cluster = await ReplicationCluster.create({ names: ['a', 'b'], capacityBytes: CAPACITY });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    cluster.beforeDisk = (operation, path) => {
      if (operation === 'write' && inData(path, 'a')) throw new HoldfastError('no-space', 'disk is full');
    };
    // While the drop of a can't reach the store, b crashes with its region open.
    cluster.faults.startOutage();
    const pending = write(a, writer, 4096, 2).catch(() => undefined);
    await cluster.until(() => writer.status().waitsFor.some((wait) => wait.includes('drop the replica on a')));
    await b.kill();
    cluster.faults.endOutage();
    // Longer than a change of the record is tried again.
    await pause(1_200);
    await b.reboot();
    await writer.lost;
    await pending;
    expect(await cluster.inSync()).toContain('a');
    cluster.beforeDisk = undefined;
    const next = await a.attach();
    expect(next.status().inSync).toEqual(['a']);
    expect(await readByte(a, next, 0)).toBe(1);
  }, 20_000);
});

describe('a fenced or superseded writer', () => {
  it('acknowledges no WRITE_ZEROES (R4, I3)', async () => {
    cluster = await ReplicationCluster.create({ names: ['a', 'b', 'c'], capacityBytes: CAPACITY });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const old = await a.attach();
    const writer = await b.attach({ expired: ['a'] });
    await write(b, writer, 0, 7);
    expect(old.ended).toBeDefined();
    await expect(old.zero(0, 4096, false, false)).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
  });

  it('acknowledges no WRITE_ZEROES while it is cut off and another serves (I3)', async () => {
    cluster = await ReplicationCluster.create({ names: ['a', 'b', 'c'], capacityBytes: CAPACITY });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const old = await a.attach();
    cluster.cut('a', 'b');
    cluster.cut('a', 'c');
    const writer = await b.attach({ expired: ['a'] });
    await write(b, writer, 0, 7);
    const outcome = await Promise.race([
      old.zero(0, 4096, false, false).then(
        () => 'acknowledged',
        () => 'refused',
      ),
      pause(500).then(() => 'waits'),
    ]);
    // Acknowledged, and the new writer still holds 7: an acknowledged write is lost.
    expect(outcome).not.toBe('acknowledged');
  });

  it('tells no hole where another writer has written (R9, I4)', async () => {
    cluster = await ReplicationCluster.create({ names: ['a', 'b', 'c'], capacityBytes: CAPACITY });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const old = await a.attach();
    const writer = await b.attach({ expired: ['a'] });
    await write(b, writer, 0, 7);
    await expect(old.extents(0, 4096)).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
  });
});

describe('a failed flush', () => {
  it('of a FUA write on the last replica ends the attachment, as any failed flush does (R10)', async () => {
    cluster = await ReplicationCluster.create({
      names: ['a'],
      capacityBytes: CAPACITY,
      timing: { idleCloseMs: 60_000 },
    });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    let failed = false;
    cluster.beforeDisk = (operation, path) => {
      if (failed || operation !== 'sync' || !inData(path, 'a')) return;
      failed = true;
      throw new HoldfastError('io-error', 'the kernel dropped what it could not write');
    };
    await expect(write(a, writer, 0, 2, 4096, true)).rejects.toThrow();
    await pause(1_500);
    expect(a.host.list()[0]?.crashMark).toBe(true);
    // A marked replica goes on serving reads of data that may be lost.
    expect(writer.ended, 'the writer goes on with a marked replica').toBeDefined();
  });

  it('whose mark can not be written either is not forgotten when the disk is back (R10, I1, I8)', async () => {
    cluster = await ReplicationCluster.create({
      names: ['a', 'b'],
      capacityBytes: CAPACITY,
      timing: { reconnectMs: 3_000, idleCloseMs: 60_000 },
    });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    cluster.beforeDisk = (operation, path) => {
      if (path.includes('/b/') && (operation === 'sync' || operation === 'write'))
        throw new HoldfastError('io-error', 'the disk fails for a moment');
    };
    const flushed = writer.flush();
    await pause(600);
    cluster.beforeDisk = undefined;
    await flushed;
    const inSync = await cluster.inSync();
    const marked = b.host.list()[0]?.crashMark ?? true;
    // Either it left the set at once (and was resynced, epoch moved by two more) or it carries its mark.
    expect({ epoch: (await cluster.record()).epoch, inSync, marked }).not.toEqual({
      epoch: 2,
      inSync: ['a', 'b'],
      marked: false,
    });
  }, 20_000);
});

describe('a replica that is taken out of the record while it is resynced', () => {
  it('does not make the writer raise the epoch for ever', async () => {
    cluster = await ReplicationCluster.create({
      names: ['a', 'b'],
      capacityBytes: CAPACITY,
      timing: { resyncBytesPerSecond: 4 * MIB },
    });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const update = cluster.store.update.bind(cluster.store);
    // A store that takes its time: with the one in memory the loop would never let go of the thread.
    cluster.store.update = (async (...args: Parameters<typeof update>) => {
      await pause(5);
      return update(...args);
    }) as typeof cluster.store.update;
    const writer = await a.attach();
    await b.kill();
    for (let region = 0; region < 4; region++) await write(a, writer, region * 4 * MIB, 1, MIB);
    await b.start();
    await cluster.until(() => (writer.status().resync?.regionsDone ?? 0) >= 1);
    const key = VOLUME.slice(0, 28);
    const found = await cluster.store.get('volume', key);
    if (!found) throw new Error(`no record ${key}`);
    const replicas = found.record.replicas.filter((replica) => replica.node !== 'b');
    await cluster.store.update('volume', key, { ...found.record, replicas }, found.version);
    await pause(3_000);
    const before = (await cluster.record()).epoch;
    await pause(200);
    expect((await cluster.record()).epoch - before).toBeLessThan(3);
  }, 20_000);
});
