import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MIB, PAGE, startNbd, type NbdFixture } from '../../support/nbd-fixture.js';
import { contextData, goData, option, request, u16, u32, type RawPeer } from '../../support/raw-nbd.js';

/** The server as other implementations see it, byte for byte. */

const EPERM = 1;
const EINVAL = 22;
const ENOSPC = 28;
const EOVERFLOW = 75;
const ENOTSUP = 95;

let nbd: NbdFixture;

beforeEach(async () => {
  nbd = await startNbd();
});

afterEach(async () => {
  await nbd.end();
  expect(nbd.serverSlab.usedBytes).toBe(0);
});

async function greeted(): Promise<RawPeer> {
  const peer = await nbd.raw();
  await peer.shakeHands();
  return peer;
}

async function structured(): Promise<RawPeer> {
  const peer = await nbd.raw();
  const contexts = option(10, contextData('volume', ['base:allocation']));
  await peer.shakeHands(option(8), contexts, option(7, goData('volume')));
  return peer;
}

async function ask(peer: RawPeer, sent: Buffer): Promise<{ type: number; text: string }> {
  peer.send(sent);
  const { type, data } = await peer.takeOptionReply();
  return { type: type >>> 0, text: data.toString() };
}

describe('the handshake', () => {
  it('greets as a fixed newstyle server', async () => {
    const peer = await nbd.raw();
    expect((await peer.take(18)).toString('latin1')).toBe('NBDMAGICIHAVEOPT\0\x03');
  });

  it('ends where the client sets a flag that there is not', async () => {
    const peer = await nbd.raw();
    await peer.take(18);
    peer.send(u32(0x80000001));
    await peer.closed();
  });

  it('opens by EXPORT_NAME, with padding only for those who need it', async () => {
    for (const [flags, length] of [
      [3, 10],
      [1, 134],
    ] as const) {
      const peer = await nbd.raw();
      await peer.take(18);
      peer.send(u32(flags), option(1, Buffer.from('volume')));
      expect((await peer.take(length)).readBigUInt64BE(0)).toBe(BigInt(16 * MIB));
      peer.send(request({ type: 0, cookie: 0xfedcba9876543210n, offset: PAGE, length: PAGE }));
      expect(await peer.takeSimple()).toEqual({ errno: 0, cookie: 0xfedcba9876543210n });
      expect(await peer.take(PAGE)).toEqual(Buffer.alloc(PAGE));
    }
  });

  it('ends where EXPORT_NAME names nothing', async () => {
    const peer = await greeted();
    peer.send(option(1, Buffer.from('missing')));
    await peer.closed();
  });

  it('answers ABORT and ends', async () => {
    const peer = await greeted();
    expect(await ask(peer, option(2))).toEqual({ type: 1, text: '' });
    await peer.closed();
  });

  it('answers what it does not know or can not read, and goes on', async () => {
    const peer = await greeted();
    expect((await ask(peer, option(5))).type).toBe(0x80000001);
    expect((await ask(peer, option(77, Buffer.alloc(100)))).type).toBe(0x80000001);
    expect((await ask(peer, option(3, Buffer.alloc(1)))).type).toBe(0x80000003);
    expect((await ask(peer, option(8, Buffer.alloc(1)))).type).toBe(0x80000003);
    expect((await ask(peer, option(7, Buffer.alloc(3)))).type).toBe(0x80000003);
    expect((await ask(peer, option(7, Buffer.concat([u32(0xffffffff), u16(0)])))).type).toBe(0x80000003);
    expect((await ask(peer, option(6, goData('a\0b')))).type).toBe(0x80000003);
    expect((await ask(peer, option(6, goData('x'.repeat(4097))))).type).toBe(0x80000003);
    expect(await ask(peer, option(6, goData('missing')))).toEqual({
      type: 0x80000006,
      text: 'no export is named "missing"',
    });
    expect((await ask(peer, option(10, contextData('volume', ['base:allocation'])))).type).toBe(0x80000003);
    expect((await ask(peer, option(7, Buffer.alloc(70_000)))).type).toBe(0x80000009);
    expect((await ask(peer, option(7, goData('volume')))).type).toBe(3);
  });

  it('ends where an option is huge, or options never end', async () => {
    const huge = await greeted();
    huge.send(Buffer.from('IHAVEOPT'), u32(7), u32(0xffffffff));
    await huge.closed();
    const endless = await greeted();
    for (let count = 0; count < 300; count++) endless.send(option(99));
    await endless.closed();
  });

  it('tells the infos that are asked for', async () => {
    const peer = await greeted();
    peer.send(option(6, goData('volume', [1, 2, 3, 99])));
    const infos = new Map<number, Buffer>();
    for (;;) {
      const { type, data } = await peer.takeOptionReply();
      if (type === 1) break;
      infos.set(data.readUInt16BE(0), data.subarray(2));
    }
    expect(infos.get(0)?.readBigUInt64BE(0)).toBe(BigInt(16 * MIB));
    expect(infos.get(1)?.toString()).toBe('volume');
    expect(infos.get(2)?.toString()).toBe('Holdfast volume');
    expect([0, 4, 8].map((at) => infos.get(3)?.readUInt32BE(at))).toEqual([PAGE, PAGE, 4 * MIB]);
    expect(infos.has(99)).toBe(false);
  });

  it('lists the context for a wildcard and selects it by its whole name only', async () => {
    const peer = await greeted();
    peer.send(option(8));
    await peer.takeOptionReply();
    const found = async (number: number, queries: string[]): Promise<string[]> => {
      peer.send(option(number, contextData('volume', queries)));
      const names: string[] = [];
      for (;;) {
        const { type, data } = await peer.takeOptionReply();
        if (type === 1) return names;
        names.push(data.subarray(4).toString());
      }
    };
    expect(await found(9, [])).toEqual(['base:allocation']);
    expect(await found(9, ['base:'])).toEqual(['base:allocation']);
    expect(await found(9, ['qemu:', 'x-other:thing'])).toEqual([]);
    expect(await found(10, ['base:'])).toEqual([]);
    expect(await found(10, ['base:other', 'base:allocation'])).toEqual(['base:allocation']);
    expect(await found(10, [])).toEqual([]);
  });
});

describe('requests', () => {
  /** Error of one request on a fresh structured connection, which must go on afterwards. */
  async function errorOf(fields: Parameters<typeof request>[0], payload = Buffer.alloc(0)): Promise<number> {
    const peer = await structured();
    peer.send(request({ ...fields, cookie: 7 }), payload);
    const reply = await peer.takeChunk();
    peer.send(request({ type: 3, cookie: 8 }));
    expect(await peer.takeChunk()).toMatchObject({ type: 0, cookie: 8n, done: true });
    peer.close();
    expect(reply).toMatchObject({ cookie: 7n, done: true });
    return reply.type === 0x8001 ? reply.data.readUInt32BE(0) : 0;
  }

  it('beyond the end, unaligned or with foreign flags are refused', async () => {
    expect(await errorOf({ type: 0, offset: 16 * MIB, length: PAGE })).toBe(EINVAL);
    expect(await errorOf({ type: 0, offset: 0xffffffffffffffffn, length: PAGE })).toBe(EINVAL);
    expect(await errorOf({ type: 0, offset: 512, length: 512 })).toBe(EINVAL);
    expect(await errorOf({ type: 1, offset: 512, length: 512 }, Buffer.alloc(512))).toBe(EINVAL);
    expect(await errorOf({ type: 1, offset: 16 * MIB, length: PAGE }, Buffer.alloc(PAGE))).toBe(ENOSPC);
    expect(await errorOf({ type: 6, offset: 0, length: 0xfffff000 })).toBe(ENOSPC);
    expect(await errorOf({ type: 4, offset: 0, length: 0xfffff000 })).toBe(EINVAL);
    expect(await errorOf({ type: 7, offset: 16 * MIB, length: PAGE })).toBe(EINVAL);
    expect(await errorOf({ type: 3, flags: 0x8000 })).toBe(EINVAL);
    expect(await errorOf({ type: 4, flags: 2, length: PAGE })).toBe(EINVAL);
    expect(await errorOf({ type: 5, length: PAGE })).toBe(EINVAL);
    expect(await errorOf({ type: 999 })).toBe(EINVAL);
    expect(nbd.stage.calls.filter((call) => call !== 'flush')).toEqual([]);
  });

  it('above 4 MiB are refused, and their payload is thrown away', async () => {
    expect(await errorOf({ type: 0, length: 8 * MIB })).toBe(EOVERFLOW);
    expect(await errorOf({ type: 1, length: 8 * MIB }, Buffer.alloc(8 * MIB))).toBe(EINVAL);
    const peer = await structured();
    peer.send(request({ type: 1, length: 65 * MIB }));
    await peer.closed();
  });

  it('may be empty, and then do nothing', async () => {
    for (const type of [0, 1, 4, 6]) expect(await errorOf({ type })).toBe(0);
    expect(await errorOf({ type: 7 })).toBe(EINVAL);
    expect(nbd.stage.calls.filter((call) => call !== 'flush')).toEqual([]);
  });

  it('for fast zeroes are carried out as holes, and refused without', async () => {
    expect(await errorOf({ type: 6, flags: 16, length: PAGE })).toBe(0);
    expect(await errorOf({ type: 6, flags: 18, length: PAGE })).toBe(ENOTSUP);
    expect(await errorOf({ type: 6, flags: 3, length: PAGE })).toBe(0);
    expect(nbd.stage.calls.filter((call) => call !== 'flush')).toEqual([
      `zero 0 ${PAGE}`,
      `zero 0 ${PAGE} fua allocate`,
    ]);
  });

  it('for a block status tell the flags, one extent or many', async () => {
    nbd.stage.bytes.fill(1, PAGE, 2 * PAGE);
    const peer = await structured();
    peer.send(request({ type: 7, length: 3 * PAGE }));
    const all = [u32(1), u32(PAGE), u32(3), u32(PAGE), u32(0), u32(PAGE), u32(3)];
    expect(await peer.takeChunk()).toMatchObject({ type: 5, data: Buffer.concat(all) });
    peer.send(request({ type: 7, flags: 8, offset: PAGE, length: 2 * PAGE }));
    expect(await peer.takeChunk()).toMatchObject({ type: 5, data: Buffer.concat([u32(1), u32(PAGE), u32(0)]) });
  });

  it('for what was not negotiated are refused', async () => {
    const peer = await greeted();
    peer.send(option(7, goData('volume')));
    for (let type = 0; type !== 1; type = (await peer.takeOptionReply()).type);
    for (const [type, flags, length] of [
      [7, 0, PAGE],
      [0x4846, 0, 0],
      [0, 4, PAGE],
      [0, 0, 8 * MIB],
    ] as const) {
      peer.send(request({ type, flags, length, cookie: type }));
      expect(await peer.takeSimple()).toEqual({ errno: EINVAL, cookie: BigInt(type) });
    }
  });

  it('of a private kind are refused where the export takes none, payload and all', async () => {
    expect(await errorOf({ type: 0x4846, length: 5 }, Buffer.from('hello'))).toBe(EINVAL);
    expect(await errorOf({ type: 0x4846, length: 2 * MIB }, Buffer.alloc(2 * MIB))).toBe(EINVAL);
  });

  it('out of step end the connection', async () => {
    const peer = await structured();
    peer.send(Buffer.alloc(28, 1));
    await peer.closed();
  });
});

describe('a read-only export', () => {
  it('says so and refuses every change', async () => {
    await nbd.end();
    nbd = await startNbd({ readOnly: true });
    const client = await nbd.connect();
    expect(client.readOnly).toBe(true);
    const data = await nbd.filled(PAGE, 1);
    const refused = { code: 'failed-precondition', message: 'the export is read-only' };
    await expect(client.write(0, data, false)).rejects.toMatchObject(refused);
    await expect(client.trim(0, PAGE, false)).rejects.toMatchObject(refused);
    await expect(client.zero(0, PAGE, false, false)).rejects.toMatchObject(refused);
    data.release();
    (await client.read(0, PAGE, nbd.slab)).release();
    await client.flush();
    const peer = await structured();
    peer.send(request({ type: 4, length: PAGE }));
    expect((await peer.takeChunk()).data.readUInt32BE(0)).toBe(EPERM);
  });
});
