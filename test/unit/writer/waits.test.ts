/* Every wait ends or has a named cause (I7), and waiting costs nothing that grows. */
import { readdir } from 'node:fs/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { codeOf, HoldfastError } from '../../../src/base/errors.js';
import { ReplicaHost } from '../../../src/replica/host.js';
import { RemoteSession } from '../../../src/replica/remote-session.js';
import type { Writer } from '../../../src/writer/writer.js';
import { type ClusterNode, ReplicationCluster, VOLUME } from '../../support/replication-cluster.js';

const MIB = 1024 * 1024;
const CAPACITY = 32 * MIB;
let cluster: ReplicationCluster;
const undo: (() => void)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0)) step();
  cluster.beforeDisk = undefined;
  vi.restoreAllMocks();
  await Promise.race([cluster.close(), pause(3_000)]);
}, 10_000);

async function write(node: ClusterNode, writer: Writer, offset: number, fill: number, length = 4096) {
  const lease = await node.slab.take(length);
  lease.bytes.fill(fill);
  try {
    await writer.write(offset, lease, false);
  } finally {
    lease.release();
  }
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function settled(work: Promise<unknown>, withinMs: number): Promise<string> {
  return Promise.race([
    work.then(
      () => 'done',
      (error: unknown) => codeOf(error),
    ),
    pause(withinMs).then(() => 'hangs'),
  ]);
}

async function make(names: string[], options: Partial<Parameters<typeof ReplicationCluster.create>[0]> = {}) {
  cluster = await ReplicationCluster.create({ names, capacityBytes: CAPACITY, ...options });
  return names.map((name) => cluster.node(name));
}

describe('the end of a writer', () => {
  it('fails every request, also one behind the closer that waits for a region', async () => {
    const [a] = (await make(['a', 'b'])) as [ClusterNode];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    cluster.cut('a', 'b');
    cluster.faults.startOutage();
    const first = write(a, writer, 0, 2);
    first.catch(() => undefined);
    // Longer than idleCloseMs: the closer wants the region, and waits for `first`.
    await pause(1_200);
    const second = write(a, writer, 0, 3);
    second.catch(() => undefined);
    await pause(50);
    writer.fence(new HoldfastError('fenced', 'a newer epoch was admitted here'));
    expect(await settled(first, 1_000)).toBe('fenced');
    expect(await settled(second, 1_000)).toBe('fenced');
    cluster.faults.endOutage();
  });
});

describe('memory that others use up', () => {
  it('does not make a writer drop healthy replicas', async () => {
    const [a] = (await make(['a', 'b', 'c'])) as [ClusterNode];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    // Stands for writes of another volume on this thread that wait (for minInSync, or the store).
    const all = await a.slab.take(a.slab.capacityBytes);
    undo.push(() => all.release());
    const reading = writer.read(0, 4096, a.slab).then((lease) => lease.release());
    reading.catch(() => undefined);
    await pause(6_000);
    expect(await cluster.inSync()).toEqual(['a', 'b', 'c']);
  }, 15_000);

  it('does not keep the resync from ending that waiting writes wait for', async () => {
    const [a, b] = (await make(['a', 'b'], { minInSync: 2 })) as [ClusterNode, ClusterNode];
    const writer = await a.attach();
    await b.kill();
    const count = a.slab.capacityBytes / MIB;
    const writes = Array.from({ length: count }, (_, index) => write(a, writer, (index % 32) * MIB, 1, MIB));
    for (const one of writes) one.catch(() => undefined);
    await cluster.until(async () => (await cluster.inSync()).length === 1);
    await b.start();
    expect(await settled(Promise.all(writes), 8_000)).toBe('done');
  }, 20_000);
});

describe('a peer that falls silent', () => {
  it('in the middle of its return is dropped all the same (R4)', async () => {
    const [a, b] = (await make(['a', 'b'])) as [ClusterNode, ClusterNode];
    const writer = await a.attach();
    const original = RemoteSession.prototype.serving;
    let cuts = 0;
    vi.spyOn(RemoteSession.prototype, 'serving').mockImplementation(function (this: RemoteSession) {
      if (cuts++ === 0) cluster.cut('a', 'b');
      return original.call(this);
    });
    await b.kill();
    await b.start();
    await cluster.until(() => cuts > 0);
    const writing = write(a, writer, 0, 1);
    writing.catch(() => undefined);
    await pause(500);
    cluster.heal();
    expect(await settled(writing, 8_000)).toBe('done');
  }, 20_000);

  it('in the middle of a take-over does not hold it up past its deadline', async () => {
    const [a] = (await make(['a', 'b'])) as [ClusterNode];
    const original = RemoteSession.prototype.table;
    vi.spyOn(RemoteSession.prototype, 'table').mockImplementation(function (this: RemoteSession) {
      cluster.cut('a', 'b');
      return original.call(this);
    });
    const attaching = a.attach({ timeoutMs: 2_000 });
    attaching.catch(() => undefined);
    expect(await settled(attaching, 8_000)).not.toBe('hangs');
  }, 20_000);
});

describe('a plugin that starts', () => {
  /** As in src/node.ts: data threads listen first, then the disks are opened. */
  function openDisksLate(ms: number): void {
    const original = ReplicaHost.prototype.openDisk;
    vi.spyOn(ReplicaHost.prototype, 'openDisk').mockImplementation(function (this: ReplicaHost, disk) {
      void pause(ms)
        .then(() => original.call(this, disk))
        .catch(() => undefined);
      return Promise.resolve();
    });
  }

  it('does not end an attachment that lived before, while disks are being opened', async () => {
    const [a, b] = (await make(['a', 'b'])) as [ClusterNode, ClusterNode];
    await a.attach();
    await a.kill();
    await b.kill();
    openDisksLate(700);
    await a.start();
    await b.start();
    const code = await a.attach({ resume: true, timeoutMs: 3_000 }).then(
      () => 'attached',
      (error: unknown) => codeOf(error),
    );
    // continueAttachment() fails the device for good on `fenced` and `failed-precondition`.
    expect(['attached', 'unavailable']).toContain(code);
  }, 15_000);
});

describe('a hung disk', () => {
  it('does not use up the connections of its data thread', async () => {
    const [a] = (await make(['a', 'b'])) as [ClusterNode];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    let free: () => void = () => undefined;
    const hung = new Promise<void>((resolve) => (free = resolve));
    undo.push(() => free());
    cluster.beforeDisk = (operation, path) =>
      operation === 'write' && path.includes('/b/') && path.includes('/data/') ? hung : undefined;
    await write(a, writer, 0, 2);
    expect(await cluster.inSync()).toEqual(['a']);
    await pause(4_000);
    const before = cluster.node('b').connectionCount;
    await pause(7_000);
    expect(cluster.node('b').connectionCount - before).toBeLessThanOrEqual(0);
  }, 25_000);
});

describe('a replica that can not be opened anew', () => {
  it('costs no files with each try', async () => {
    const [a] = (await make(['a', 'b'])) as [ClusterNode];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    cluster.beforeDisk = (operation, path) => {
      if (path.includes('/b/')) throw new HoldfastError('io-error', `${operation}: the disk is broken`);
    };
    await writer.flush();
    expect(await cluster.inSync()).toEqual(['a']);
    const open = async (): Promise<number> => (await readdir('/proc/self/fd')).length;
    await pause(500);
    const before = await open();
    await pause(3_000);
    expect((await open()) - before).toBeLessThan(10);
  }, 15_000);
});

describe('one failed close', () => {
  it('does not end the closing of regions', async () => {
    const [a] = (await make(['a'])) as [ClusterNode];
    const writer = await a.attach();
    let failures = 0;
    await write(a, writer, 0, 1);
    cluster.beforeDisk = (operation, path) => {
      if (failures > 0 || operation !== 'sync' || !path.endsWith('/regions')) return;
      failures++;
      throw new HoldfastError('io-error', 'once');
    };
    await cluster.until(() => failures > 0);
    await pause(2_500);
    expect(writer.ended).toBeUndefined();
    expect(writer.status().regionsOpen).toBe(0);
  }, 15_000);
});

describe('a replica that denies', () => {
  it('does not make looks at the record pile up while the store is away', async () => {
    const [a, b] = (await make(['a', 'b', 'c'])) as [ClusterNode, ClusterNode];
    await a.attach();
    cluster.faults.startOutage();
    await b.host.remove(VOLUME, 'unnamed');
    await pause(4_000);
    const original = cluster.store.get.bind(cluster.store);
    let gets = 0;
    cluster.store.get = ((...args: Parameters<typeof original>) => {
      gets++;
      return original(...args);
    }) as typeof cluster.store.get;
    cluster.faults.endOutage();
    await pause(1_500);
    expect(gets).toBeLessThan(40);
  }, 15_000);
});
