import { afterEach, describe, expect, it } from 'vitest';
import { codeOf } from '../../../src/base/errors.js';
import { volumeKey } from '../../../src/model/ids.js';
import type { Writer } from '../../../src/writer/writer.js';
import { type ClusterNode, ReplicationCluster, VOLUME } from '../../support/replication-cluster.js';

const MIB = 1024 * 1024;
const CAPACITY = 32 * MIB;

let cluster: ReplicationCluster;

afterEach(() => cluster.close());

async function threeNodes(options: { minInSync?: number } = {}): Promise<[ClusterNode, ClusterNode, ClusterNode]> {
  cluster = await ReplicationCluster.create({ names: ['a', 'b', 'c'], capacityBytes: CAPACITY, ...options });
  return [cluster.node('a'), cluster.node('b'), cluster.node('c')];
}

async function write(node: ClusterNode, writer: Writer, offset: number, fill: number, length = 4096): Promise<void> {
  const lease = await node.slab.take(length);
  lease.bytes.fill(fill);
  try {
    await writer.write(offset, lease, false);
  } finally {
    lease.release();
  }
}

async function read(node: ClusterNode, writer: Writer, offset: number): Promise<number> {
  const lease = await writer.read(offset, 4096, node.slab);
  const [first = -1] = lease.bytes;
  expect(lease.bytes.every((byte) => byte === first)).toBe(true);
  lease.release();
  return first;
}

/** Node a is the writer and has the only replica that is left in sync. */
async function lastReplica(): Promise<{ a: ClusterNode; writer: Writer }> {
  const [a, b, c] = await threeNodes();
  const writer = await a.attach();
  await b.kill();
  await c.kill();
  await write(a, writer, 0, 1);
  expect(await cluster.inSync()).toEqual(['a']);
  return { a, writer };
}

async function expectEqualReplicas(...nodes: ClusterNode[]): Promise<void> {
  const contents = await Promise.all(nodes.map((node) => node.content()));
  expect(new Set(contents).size).toBe(1);
}

describe('a writer', () => {
  it('has every acknowledged write on every in-sync replica', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await Promise.all(Array.from({ length: 64 }, (_, index) => write(a, writer, index * 4096 * 7, index + 1)));
    expect(await read(a, writer, 4096 * 7 * 9)).toBe(10);
    await expectEqualReplicas(a, b, c);
  });

  it('orders overlapping writes alike on all replicas', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await Promise.all(Array.from({ length: 100 }, (_, index) => write(a, writer, (index % 3) * 4096, index, 16_384)));
    await expectEqualReplicas(a, b, c);
  });

  it('reads zeros where nothing was written, and after a trim', async () => {
    const [a] = await threeNodes();
    const writer = await a.attach();
    expect(await read(a, writer, 8 * MIB)).toBe(0);
    await write(a, writer, 8 * MIB, 7);
    await writer.trim(8 * MIB, 4096, false);
    expect(await read(a, writer, 8 * MIB)).toBe(0);
    expect(await writer.extents(0, CAPACITY)).toEqual(
      expect.arrayContaining([expect.objectContaining({ hole: true })]),
    );
  });

  it('works without a replica of its own node', async () => {
    cluster = await ReplicationCluster.create({ names: ['a', 'b'], capacityBytes: CAPACITY });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    await cluster.close();
    expect(b.alive).toBe(false);
  });

  it('drops a replica that does not come back, and acknowledges then', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    await c.kill();
    await write(a, writer, 0, 2);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    expect(await read(a, writer, 0)).toBe(2);
    await expectEqualReplicas(a, b);
  });

  it('keeps a replica that is back in time, and sends again what it had not answered', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await c.kill();
    const pending = Array.from({ length: 20 }, (_, index) => write(a, writer, index * 4096, index + 1));
    await c.start();
    await Promise.all(pending);
    expect(await cluster.inSync()).toEqual(['a', 'b', 'c']);
    await expectEqualReplicas(a, b, c);
  });

  it('drops a replica behind a silent partition', async () => {
    const [a, b] = await threeNodes();
    const writer = await a.attach();
    cluster.cut('a', 'c');
    await write(a, writer, 0, 3);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    await expectEqualReplicas(a, b);
  });

  it('acknowledges nothing while a drop can not reach the store, and goes on after', async () => {
    const [a, , c] = await threeNodes();
    const writer = await a.attach();
    cluster.faults.startOutage();
    await c.kill();
    let acknowledged = false;
    const pending = write(a, writer, 0, 4).then(() => (acknowledged = true));
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(acknowledged).toBe(false);
    cluster.faults.endOutage();
    await pending;
    expect(await cluster.inSync()).toEqual(['a', 'b']);
  });

  it('drops a replica at once whose node announces its stop, and I/O does not pause', async () => {
    const [a, , c] = await threeNodes();
    const writer = await a.attach();
    c.host.announceStop();
    await cluster.until(async () => (await cluster.inSync()).length === 2);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    await write(a, writer, 0, 1);
  });

  it('takes a drop for done when only its answer was lost', async () => {
    const [a, , c] = await threeNodes();
    const writer = await a.attach();
    cluster.faults.next('update', { lose: 'answer' });
    await c.kill();
    await write(a, writer, 0, 5);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    expect(writer.ended).toBeUndefined();
  });

  it('brings a replica back by copying only what differs, and all are equal then', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    for (let index = 0; index < 8; index++) await write(a, writer, index * 4 * MIB, index + 1);
    await c.kill();
    await write(a, writer, 4 * MIB, 99);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    await c.start();
    let next = 100;
    await cluster.until(async () => {
      await write(a, writer, (next % 8) * 4 * MIB + 4096, next % 256);
      next++;
      return (await cluster.inSync()).length === 3;
    });
    await expectEqualReplicas(a, b, c);
    expect(writer.status().resync).toBeNull();
  });

  it('closes regions that are idle, and all of them at its release', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    await cluster.until(() => writer.status().regionsOpen === 0);
    await write(a, writer, 4 * MIB, 1);
    await writer.release(5_000);
    for (const node of [a, b, c]) expect(node.host.list()[0]?.openRegions).toBe(0);
    expect((await cluster.record()).writer).toBeNull();
    expect((await cluster.record()).quiet).toBe(true);
  });

  it('that could not be released in time goes on with its release, and a repeat joins it', async () => {
    const [a] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    cluster.faults.startOutage();
    await expect(writer.release(300)).rejects.toSatisfy((error) => codeOf(error) === 'unavailable');
    expect(writer.leaving).toBe(true);
    const again = writer.release(20_000);
    cluster.faults.endOutage();
    await again;
    expect(writer.released).toBe(true);
    // Epoch 2 is the take-over's, 3 the one release's.
    expect(await cluster.record()).toMatchObject({ epoch: 3, writer: null, quiet: true });
  });

  it('waits with acknowledgements while fewer replicas than minInSync are in sync', async () => {
    const [a, b, c] = await threeNodes({ minInSync: 2 });
    const writer = await a.attach();
    await b.kill();
    await c.kill();
    let acknowledged = false;
    const pending = write(a, writer, 0, 6).then(() => (acknowledged = true));
    await cluster.until(async () => (await cluster.inSync()).length === 1);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(acknowledged).toBe(false);
    await b.start();
    await pending;
    expect((await cluster.inSync()).length).toBeGreaterThanOrEqual(2);
    await expectEqualReplicas(a, b);
  });

  it('grows while it serves', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    const found = await cluster.store.get('volume', 'vol-' + 'a'.repeat(24));
    if (!found) throw new Error('no record');
    await cluster.store.update('volume', found.key, { ...found.record, capacityBytes: 2 * CAPACITY }, found.version);
    expect(await writer.grow()).toBe(2 * CAPACITY);
    await write(a, writer, 2 * CAPACITY - 4096, 8);
    expect(await read(a, writer, 2 * CAPACITY - 4096)).toBe(8);
    await expectEqualReplicas(a, b, c);
  });
});

describe('a failing disk', () => {
  it.each(['io-error', 'no-space'] as const)(
    'with %s costs its replica the in-sync set, and the client nothing',
    async (code) => {
      const [a, b, c] = await threeNodes();
      const writer = await a.attach();
      await write(a, writer, 0, 1);
      c.disk({ writes: code });
      await write(a, writer, 0, 2);
      expect(await cluster.inSync()).toEqual(['a', 'b']);
      expect(await read(a, writer, 0)).toBe(2);
      c.disk({});
      await cluster.until(async () => (await cluster.inSync()).length === 3);
      await expectEqualReplicas(a, b, c);
    },
  );

  it('that is the last one tells the client its own error, and goes on when it can', async () => {
    const { a, writer } = await lastReplica();
    a.disk({ writes: 'no-space' });
    await expect(write(a, writer, 4096, 2)).rejects.toSatisfy((error) => codeOf(error) === 'no-space');
    a.disk({});
    await write(a, writer, 4096, 3);
    expect(await read(a, writer, 0)).toBe(1);
    expect(await read(a, writer, 4096)).toBe(3);
  });

  it('that is the last one, and was removed with its volume, ends the attachment', async () => {
    const { a, writer } = await lastReplica();
    await cluster.store.delete('volume', volumeKey(VOLUME));
    await a.host.remove(VOLUME, 'deleted');
    await expect(write(a, writer, 0, 2)).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
  });

  it('that hangs is dropped, and reads of a hung own replica are served by another', async () => {
    const [a, b] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    a.disk({ hangs: true });
    await write(a, writer, 0, 2);
    expect(await cluster.inSync()).toEqual(['b', 'c']);
    expect(await read(a, writer, 0)).toBe(2);
    a.disk({});
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    await expectEqualReplicas(a, b);
  });

  it('that is made anew in the place of one whose add waits for the store is not taken for it', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    await c.kill();
    await write(a, writer, 4096, 2);
    let addIsUnderWay = false;
    const gate = { open: (): void => undefined };
    const opened = new Promise<void>((resolve) => (gate.open = resolve));
    // The first update of a resync raises the epoch, the second one is the add.
    cluster.faults.next('update', {});
    cluster.faults.next('update', {
      get before() {
        addIsUnderWay = true;
        return opened;
      },
    });
    await c.start();
    await cluster.until(() => addIsUnderWay);
    await cluster.changeReplicas((replicas) => replicas.filter(({ node }) => node !== 'c'));
    await c.host.remove(VOLUME, 'deleted');
    await c.host.create(VOLUME, 'disk-c', CAPACITY);
    await cluster.changeReplicas((replicas) => [
      ...replicas,
      { node: 'c', disk: 'disk-c', inSync: false, placement: 1 },
    ]);
    gate.open();
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    await expectEqualReplicas(a, b, c);
  });

  it('whose flush failed is marked, dropped, and brought back by a resync', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    c.disk({ syncs: 'io-error' });
    await writer.flush();
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    c.disk({});
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    expect(c.host.list()[0]?.crashMark).toBe(false);
    await expectEqualReplicas(a, b, c);
  });

  it('whose flush failed as the last one ends the attachment', async () => {
    cluster = await ReplicationCluster.create({ names: ['a'], capacityBytes: CAPACITY });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    a.disk({ syncs: 'io-error' });
    const flushed = writer.flush();
    flushed.catch(() => undefined);
    await cluster.until(() => a.host.list()[0]?.crashMark === true || writer.status().waitsFor.length > 0);
    a.disk({});
    await writer.lost;
    await expect(flushed).rejects.toThrow();
    await expect(write(a, writer, 0, 2)).rejects.toThrow();
  });
});

describe('a volume of 16 TiB', () => {
  it('is made, trimmed whole, written at its end and taken over', async () => {
    const size = 16 * 1024 ** 4;
    cluster = await ReplicationCluster.create({ names: ['a', 'b'], capacityBytes: size });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await writer.trim(0, size, false);
    await write(a, writer, size - 4096, 1);
    await writer.trim(0, size - 4096, false);
    await a.kill();
    const next = await b.attach({ expired: ['a'] });
    expect(await read(b, next, size - 4096)).toBe(1);
  });
});

describe('a take-over', () => {
  it('is refused while another live node is the writer, and names it', async () => {
    const [a, b] = await threeNodes();
    await a.attach();
    await expect(b.attach({ timeoutMs: 500 })).rejects.toThrow(/attached to node a/);
  });

  it('fences the old writer: it acknowledges nothing and reads nothing more', async () => {
    const [a, b] = await threeNodes();
    const old = await a.attach();
    await write(a, old, 0, 1);
    const writer = await b.attach({ expired: ['a'] });
    await write(b, writer, 0, 2);
    await expect(write(a, old, 0, 3)).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
    await expect(read(a, old, 0)).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
    expect(await read(b, writer, 0)).toBe(2);
  });

  it('silences a writer that is cut off from everybody before the new one serves', async () => {
    const [a, b, c] = await threeNodes();
    const old = await a.attach();
    await write(a, old, 0, 1);
    cluster.cut('a', 'b');
    cluster.cut('a', 'c');
    const late = write(a, old, 0, 9);
    late.catch(() => undefined);
    const writer = await b.attach({ expired: ['a'] });
    let served: number | undefined;
    const stale = read(a, old, 0).then((value) => (served = value));
    stale.catch(() => undefined);
    await write(b, writer, 0, 2);
    cluster.heal();
    await expect(late).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
    expect(served).toBeUndefined();
    expect(await read(b, writer, 0)).toBe(2);
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    await expectEqualReplicas(a, b, c);
  });

  it('makes replicas equal that an interrupted write left different', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    const writes = Array.from({ length: 200 }, (_, index) => write(a, writer, (index % 40) * 40_960, index % 250));
    for (const pending of writes) pending.catch(() => undefined);
    await writes[100];
    await a.kill();
    const next = await b.attach({ expired: ['a'] });
    await cluster.until(() => next.status().regionsToReconcile === 0);
    await expectEqualReplicas(b, c);
    await a.start();
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    await expectEqualReplicas(a, b, c);
  });

  it('goes on on the same node after the process was killed', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    await a.kill();
    await a.start();
    const next = await a.attach({ resume: true });
    expect(await read(a, next, 0)).toBe(1);
    await write(a, next, 0, 2);
    await expectEqualReplicas(a, b, c);
  });

  it('ends an attachment that lived before when another node was writer meanwhile', async () => {
    const [a, b] = await threeNodes();
    await a.attach();
    await a.kill();
    const writer = await b.attach({ expired: ['a'] });
    await a.start();
    const before = await cluster.record();
    await expect(a.attach({ resume: true })).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
    expect((await cluster.record()).writer).toEqual(before.writer);
    await write(b, writer, 0, 1);
  });

  it('ends an attachment that lived before when its volume was deleted meanwhile', async () => {
    const [a] = await threeNodes();
    await a.attach();
    await a.kill();
    await cluster.store.delete('volume', volumeKey(VOLUME));
    await a.start();
    await expect(a.attach({ resume: true })).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
    await expect(a.attach()).rejects.toSatisfy((error) => codeOf(error) === 'not-found');
  });

  it('removes a replica that crashed with open regions, and resyncs it', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    await a.kill();
    await c.reboot();
    const next = await b.attach({ expired: ['a'] });
    expect(await cluster.inSync()).toEqual(['b']);
    expect(await read(b, next, 0)).toBe(1);
    await cluster.until(async () => (await cluster.inSync()).includes('c'));
    await expectEqualReplicas(b, c);
  });

  it('goes on from crashed replicas only for a new attachment, when no other is left', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await write(a, writer, 0, 1);
    for (const node of [a, b, c]) await node.reboot();
    await expect(a.attach({ resume: true })).rejects.toSatisfy((error) => codeOf(error) === 'fenced');
    const next = await a.attach();
    expect(await read(a, next, 0)).toBe(1);
    expect((await cluster.inSync()).length).toBe(3);
    for (const node of [a, b, c]) expect(node.host.list()[0]?.crashMark).toBe(false);
  });

  it('is refused where no in-sync replica can be reached', async () => {
    const [a, b, c] = await threeNodes();
    const writer = await a.attach();
    await b.kill();
    await write(a, writer, 0, 1);
    await cluster.until(async () => !(await cluster.inSync()).includes('b'));
    await a.kill();
    await c.kill();
    await b.start();
    await expect(b.attach({ expired: ['a'], timeoutMs: 1_500 })).rejects.toThrow(/no in-sync replica/);
  });
});
