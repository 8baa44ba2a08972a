/* Data that rots at rest: read right all the same, mended in place, never spread, and never a reason to drop a replica. */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { codeOf } from '../../../src/base/errors.js';
import { NbdClient } from '../../../src/nbd/client.js';
import type { Timing } from '../../../src/writer/timing.js';
import type { Writer } from '../../../src/writer/writer.js';
import { type ClusterNode, ReplicationCluster, VOLUME } from '../../support/replication-cluster.js';
import { flipBit } from '../replica/checked-replica.js';

const MIB = 1024 * 1024;
const REGION = 4 * MIB;
const CAPACITY = 32 * MIB;
const BLOCK = 4096;
let cluster: ReplicationCluster;
afterEach(() => cluster.close());

/** Nobody is to be given up because the machine is slow. */
const PATIENT = { fenceMs: 5_000, reconnectMs: 1_000, answerMs: 10_000, mendEveryMs: 200 };

async function create(names: string[], timing: Partial<Timing> = {}): Promise<void> {
  cluster = await ReplicationCluster.create({ names, capacityBytes: CAPACITY, timing: { ...PATIENT, ...timing } });
}

async function write(node: ClusterNode, writer: Writer, offset: number, fill: number, length = BLOCK): Promise<void> {
  const lease = await node.slab.take(length);
  lease.bytes.fill(fill);
  await writer.write(offset, lease, false).finally(() => lease.release());
}

/** The values that the range is made of. */
async function read(node: ClusterNode, writer: Writer, offset: number, length = BLOCK): Promise<number[]> {
  const lease = await writer.read(offset, length, node.slab);
  const values = [...new Set(lease.bytes)];
  lease.release();
  return values;
}

function sliceOf(name: string): string {
  return join(cluster.directory, name, 'replicas', VOLUME, 'data', '00000000');
}

/** One bit turns over on the disk of a node. */
function rot(name: string, offset: number): Promise<void> {
  return flipBit(sliceOf(name), offset + 1_234, 3);
}

async function onDisk(name: string, offset: number): Promise<number[]> {
  const file = await open(sliceOf(name), 'r');
  try {
    const { buffer } = await file.read(Buffer.alloc(BLOCK), 0, BLOCK, offset);
    return [...new Set(buffer)];
  } finally {
    await file.close();
  }
}

const closed = (writer: Writer): Promise<void> => cluster.until(() => writer.status().regionsOpen === 0);
const damagedOn = (name: string): number => cluster.node(name).host.list()[0]?.damagedBlocks ?? -1;

describe('a block that has rotted', () => {
  it.each(['closed', 'open'])('is read right, and mended on its disk, in a region that is %s', async (state) => {
    await create(['a', 'b'], { idleCloseMs: state === 'open' ? 60_000 : 100 });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    if (state === 'closed') await closed(writer);
    await rot('a', 5 * BLOCK);
    expect(await read(a, writer, 0, MIB)).toEqual([7]);
    await cluster.until(async () => (await onDisk('a', 5 * BLOCK)).every((value) => value === 7));
    await cluster.until(() => damagedOn('a') === 0);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    expect(writer.status().waitsFor).toEqual([]);
    if (state === 'closed') await closed(writer);
    expect(await a.content()).toBe(await cluster.node('b').content());
  });

  it('is mended on a peer as well, and both where each has its own', async () => {
    await create(['a', 'b'], { idleCloseMs: 100 });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    await closed(writer);
    await rot('a', 5 * BLOCK);
    await rot('a', 6 * BLOCK);
    await rot('b', 9 * BLOCK);
    expect(await read(a, writer, 0, MIB)).toEqual([7]);
    await cluster.until(() => damagedOn('a') === 0 && damagedOn('b') === 0);
    expect(await onDisk('a', 5 * BLOCK)).toEqual([7]);
    expect(await onDisk('b', 9 * BLOCK)).toEqual([7]);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
  });

  it('is found by the scrub where nobody reads it, told, and mended', async () => {
    await create(['a', 'b'], { idleCloseMs: 100, scrubEveryMs: 400, mendEveryMs: 1_500 });
    const a = cluster.node('a');
    const writer = await a.attach();
    for (let region = 0; region < 4; region++) await write(a, writer, region * REGION, 7, MIB);
    await closed(writer);
    await rot('b', 2 * REGION + 3 * BLOCK);
    await cluster.until(() => damagedOn('b') === 1);
    await cluster.until(() => damagedOn('b') === 0);
    expect(await onDisk('b', 2 * REGION + 3 * BLOCK)).toEqual([7]);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
  });

  it('found while nothing was attached is mended by the next writer', async () => {
    await create(['a', 'b'], { idleCloseMs: 100, scrubEveryMs: 400 });
    const a = cluster.node('a');
    const first = await a.attach();
    await write(a, first, 0, 7, MIB);
    await first.release(5_000);
    await rot('b', 3 * BLOCK);
    await cluster.until(() => damagedOn('b') === 1);
    await a.attach();
    await cluster.until(() => damagedOn('b') === 0);
    expect(await onDisk('b', 3 * BLOCK)).toEqual([7]);
  });

  it('is told to a session as such, and to any other client as an I/O error', async () => {
    await create(['a']);
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 7);
    await rot('a', 0);
    if (!a.address) throw new Error('a is down');
    const connect = (exportName: string): Promise<NbdClient> =>
      NbdClient.connect({ io: a.io, address: a.address ?? { kind: 'unix', path: '' }, exportName, timeoutMs: 1_000 });
    const plain = await connect(VOLUME);
    await expect(plain.read(0, BLOCK, a.slab)).rejects.toSatisfy((error) => codeOf(error) === 'io-error');
    plain.close();
    const session = await connect(`${VOLUME}/9/${'5'.repeat(32)}/disk-a`);
    await expect(session.read(0, BLOCK, a.slab)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
    session.close();
  });
});

describe('a block that is good nowhere', () => {
  it.each([['a'], ['a', 'b']])('fails reads of it and nothing else, until it is written (%s %s)', async (...names) => {
    const replicas = names.filter((name) => name);
    await create(replicas, { idleCloseMs: 100 });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    await closed(writer);
    const { epoch } = await cluster.record();
    for (const name of replicas) await rot(name, 5 * BLOCK);
    await expect(read(a, writer, 0, MIB)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
    await expect(read(a, writer, 5 * BLOCK)).rejects.toThrow(/at offset 20480 on disk disk-/);
    expect(await read(a, writer, 0, 5 * BLOCK)).toEqual([7]);
    expect(await read(a, writer, 6 * BLOCK, 10 * BLOCK)).toEqual([7]);
    await cluster.until(() => writer.status().waitsFor.some((wait) => /a good copy of 1 blocks.* 20480/.test(wait)));
    expect(await cluster.inSync()).toEqual(replicas);
    expect((await cluster.record()).epoch).toBe(epoch);
    expect((await onDisk('a', 5 * BLOCK)).length).toBe(2);
    await write(a, writer, 5 * BLOCK, 9);
    expect(await read(a, writer, 5 * BLOCK)).toEqual([9]);
    await cluster.until(() => writer.status().waitsFor.length === 0);
  });

  it('fails reads on the last replica at once while the other is away, and is mended when that is back', async () => {
    await create(['a', 'b'], { idleCloseMs: 100 });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    await closed(writer);
    await b.kill();
    await write(a, writer, REGION, 8, MIB);
    await closed(writer);
    await rot('a', 5 * BLOCK);
    await expect(read(a, writer, 5 * BLOCK)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
    await b.start();
    // Its region is closed with one stamp on both: nothing is copied, so b has the good block still.
    await cluster.until(async () => (await cluster.inSync()).length === 2);
    await cluster.until(() => damagedOn('a') === 0);
    expect(await read(a, writer, 0, MIB)).toEqual([7]);
    expect(await a.content()).toBe(await b.content());
  });

  it('is not forgotten by a kill while its region is open', async () => {
    await create(['a'], { idleCloseMs: 60_000 });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    await rot('a', 5 * BLOCK);
    await expect(read(a, writer, 5 * BLOCK)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
    await a.kill();
    await a.start();
    const next = await a.attach({ resume: true });
    await expect(read(a, next, 5 * BLOCK)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
  });
});

describe('a take-over', () => {
  it('reconciles a region from whichever replica has each block good', async () => {
    await create(['a', 'b'], { idleCloseMs: 60_000 });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await write(a, writer, 0, 7, REGION);
    await rot('a', 5 * BLOCK);
    await rot('a', 700 * BLOCK);
    await rot('b', 9 * BLOCK);
    // The replicas' processes live on, and with them what they know of the open region.
    writer.stop();
    const next = await a.attach();
    expect(await read(a, next, 0, REGION)).toEqual([7]);
    await cluster.until(() => next.status().regionsToReconcile === 0);
    expect(await onDisk('b', 9 * BLOCK)).toEqual([7]);
    expect(await onDisk('a', 5 * BLOCK)).toEqual([7]);
    expect(await a.content()).toBe(await b.content());
    expect(await cluster.inSync()).toEqual(['a', 'b']);
  });

  it('trusts the replica whose checksums outlived the crash, whichever is near', async () => {
    await create(['a', 'b'], { idleCloseMs: 60_000 });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    await a.kill();
    await rot('a', 5 * BLOCK);
    await a.start();
    const next = await a.attach({ resume: true });
    expect(await read(a, next, 0, MIB)).toEqual([7]);
    expect(await onDisk('a', 5 * BLOCK)).toEqual([7]);
    expect(await b.content()).toBe(await a.content());
  });

  it('leaves a block that is good nowhere as it is, and serves the rest', async () => {
    await create(['a', 'b'], { idleCloseMs: 60_000 });
    const a = cluster.node('a');
    const writer = await a.attach();
    await write(a, writer, 0, 7, MIB);
    for (const name of ['a', 'b']) await rot(name, 5 * BLOCK);
    writer.stop();
    const next = await a.attach();
    expect(await read(a, next, 6 * BLOCK, 50 * BLOCK)).toEqual([7]);
    await expect(read(a, next, 5 * BLOCK)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
    await cluster.until(() => next.status().regionsToReconcile === 0);
    expect(await cluster.inSync()).toEqual(['a', 'b']);
    await next.release(5_000);
    const last = await a.attach();
    await expect(read(a, last, 5 * BLOCK)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
  });
});

describe('a resync', () => {
  it('has a block that is bad on its source mended first', async () => {
    await create(['a', 'b', 'c'], { idleCloseMs: 100 });
    const [a, b, c] = [cluster.node('a'), cluster.node('b'), cluster.node('c')];
    const writer = await a.attach();
    await c.kill();
    await write(a, writer, 0, 7, REGION);
    await cluster.until(async () => (await cluster.inSync()).length === 2);
    await closed(writer);
    await rot('a', 5 * BLOCK);
    await rot('a', 999 * BLOCK);
    await c.start();
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    await cluster.until(() => damagedOn('a') === 0);
    await closed(writer);
    expect(new Set([await a.content(), await b.content(), await c.content()]).size).toBe(1);
    expect(await onDisk('c', 5 * BLOCK)).toEqual([7]);
  });

  it('copies what is good and waits for the rest where its only source is bad', async () => {
    await create(['a', 'b'], { idleCloseMs: 100 });
    const [a, b] = [cluster.node('a'), cluster.node('b')];
    const writer = await a.attach();
    await b.kill();
    for (let region = 0; region < 3; region++) await write(a, writer, region * REGION, 7, MIB);
    await cluster.until(async () => (await cluster.inSync()).length === 1);
    await closed(writer);
    await rot('a', 5 * BLOCK);
    await b.start();
    await cluster.until(() => writer.status().waitsFor.some((wait) => /b to be resynced.*at offset 20480/.test(wait)));
    expect(await onDisk('b', 2 * REGION)).toEqual([7]);
    expect(await onDisk('b', 5 * BLOCK)).not.toEqual(await onDisk('a', 5 * BLOCK));
    expect(await cluster.inSync()).toEqual(['a']);
    await write(a, writer, 5 * BLOCK, 9);
    await cluster.until(async () => (await cluster.inSync()).length === 2);
    await closed(writer);
    expect(await b.content()).toBe(await a.content());
  });

  it('makes no hole on its target of what its source has lost', async () => {
    await create(['a', 'b', 'c'], { idleCloseMs: 100 });
    const [a, b, c] = [cluster.node('a'), cluster.node('b'), cluster.node('c')];
    const writer = await a.attach();
    await c.kill();
    await write(a, writer, 0, 7, MIB);
    await cluster.until(async () => (await cluster.inSync()).length === 2);
    await closed(writer);
    const file = await a.io.files.open(sliceOf('a'), { write: true, create: false, direct: false });
    await file.punch(0, MIB);
    await file.close();
    await c.start();
    await cluster.until(async () => (await cluster.inSync()).length === 3);
    expect(await read(a, writer, 0, MIB)).toEqual([7]);
    expect(await onDisk('c', 0)).toEqual([7]);
    expect(await b.content()).toBe(await c.content());
  });
});
