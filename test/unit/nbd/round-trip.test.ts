import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { NbdClient } from '../../../src/nbd/client.js';
import { MIB, PAGE, startNbd, until, type NbdFixture } from '../../support/nbd-fixture.js';

let nbd: NbdFixture;

beforeEach(async () => {
  nbd = await startNbd({ control: (payload) => Promise.resolve(payload.slice().reverse()) });
});

afterEach(async () => {
  await nbd.end();
  expect(nbd.server.connectionCount).toBe(0);
  expect(nbd.slab.usedBytes).toBe(0);
  expect(nbd.serverSlab.usedBytes).toBe(0);
});

describe('a client of a server', () => {
  it('reads what it wrote, in any order and many at once', async () => {
    const client = await nbd.connect();
    expect(client).toMatchObject({ sizeBytes: 16 * MIB, readOnly: false });
    await Promise.all(
      Array.from({ length: 300 }, async (_, index) => {
        const data = await nbd.filled(PAGE, index % 251);
        await client.write(index * PAGE, data, index % 2 === 0);
        data.release();
        const back = await client.read(index * PAGE, PAGE, nbd.slab);
        expect(back.bytes.every((byte) => byte === index % 251)).toBe(true);
        back.release();
      }),
    );
    expect(nbd.stage.bytes[PAGE * 7]).toBe(7);
  });

  it('moves the greatest payload both ways', async () => {
    const client = await nbd.connect();
    const data = await nbd.filled(4 * MIB, 9);
    await client.write(0, data, false);
    data.release();
    const back = await client.read(0, 4 * MIB, nbd.slab);
    expect(back.bytes.every((byte) => byte === 9)).toBe(true);
    back.release();
  });

  it('passes on flush, trim, zero and extents', async () => {
    const client = await nbd.connect();
    const data = await nbd.filled(3 * PAGE, 1);
    await client.write(PAGE, data, true);
    data.release();
    await client.flush();
    await client.trim(PAGE, PAGE, true);
    await client.zero(0, 16 * MIB, false, true);
    nbd.stage.bytes.fill(5, PAGE, 2 * PAGE);
    expect(await client.extents(0, 4 * PAGE)).toEqual([
      { length: PAGE, hole: true },
      { length: PAGE, hole: false },
      { length: 2 * PAGE, hole: true },
    ]);
    expect(nbd.stage.calls).toEqual([
      `write ${PAGE} ${3 * PAGE} fua`,
      'flush',
      `trim ${PAGE} ${PAGE} fua`,
      `zero 0 ${16 * MIB} allocate`,
      `extents 0 ${4 * PAGE}`,
    ]);
  });

  it.each([
    ['io-error', 'io-error'],
    ['no-space', 'no-space'],
    ['fenced', 'fenced'],
    ['invalid-argument', 'invalid-argument'],
    ['unimplemented', 'unimplemented'],
    // The server's export has private commands: it is a replica for its writer.
    ['corrupt', 'corrupt'],
  ] as const)('hears the failure %s as %s with its message, and goes on', async (code, heard) => {
    const client = await nbd.connect();
    nbd.stage.failure = new HoldfastError(code, `disk says ${code} – ✗`);
    const data = await nbd.filled(PAGE, 1);
    const told = { code: heard, message: `disk says ${code} – ✗` };
    await expect(client.flush()).rejects.toMatchObject(told);
    await expect(client.read(0, PAGE, nbd.slab)).rejects.toMatchObject(told);
    await expect(client.write(0, data, true)).rejects.toMatchObject(told);
    await expect(client.trim(0, PAGE, true)).rejects.toMatchObject(told);
    await expect(client.extents(0, PAGE)).rejects.toMatchObject(told);
    data.release();
    nbd.stage.failure = undefined;
    await client.flush();
  });

  it('hears a defect of the server as an I/O error', async () => {
    const client = await nbd.connect();
    nbd.stage.failure = new TypeError('undefined is not a function');
    await expect(client.flush()).rejects.toMatchObject({ code: 'io-error' });
  });

  it('exchanges private commands of up to 1 MiB', async () => {
    const client = await nbd.connect();
    expect([...(await client.control(new Uint8Array([1, 2, 3])))]).toEqual([3, 2, 1]);
    expect(await client.control(new Uint8Array(0))).toHaveLength(0);
    expect(Buffer.alloc(MIB, 7).equals(await client.control(new Uint8Array(MIB).fill(7)))).toBe(true);
    await expect(client.control(new Uint8Array(MIB + 1))).rejects.toMatchObject({ code: 'invalid-argument' });
    const many = await Promise.all(Array.from({ length: 40 }, () => client.control(new Uint8Array(MIB))));
    expect(many).toHaveLength(40);
  });

  it('is refused an export by the code that opening failed with, and its message', async () => {
    await expect(nbd.connect('other')).rejects.toMatchObject({
      code: 'not-found',
      message: 'no export is named "other"',
    });
    for (const code of ['fenced', 'unavailable'] as const) {
      nbd.exports.open = () => Promise.reject(new HoldfastError(code, `because ${code}`));
      await expect(nbd.connect()).rejects.toMatchObject({ code, message: `because ${code}` });
    }
    nbd.exports.open = () => Promise.reject(new TypeError('a defect'));
    await expect(nbd.connect()).rejects.toMatchObject({ code: 'unavailable' });
    await expect(nbd.connect('x'.repeat(5000))).rejects.toMatchObject({ code: 'invalid-argument' });
  });

  it('that closes leaves nothing behind, and every later request fails', async () => {
    const client = await nbd.connect();
    client.close();
    client.close();
    await expect(client.flush()).rejects.toMatchObject({ code: 'unavailable' });
    await expect(client.read(0, PAGE, nbd.slab)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await client.lost).toMatchObject({ code: 'unavailable' });
    await until(() => nbd.server.connectionCount === 0);
  });

  it('hears of every unanswered request when the server goes', async () => {
    const client = await nbd.connect();
    const release = nbd.stage.hold();
    const data = await nbd.filled(PAGE, 1);
    const requests = [
      client.flush(),
      client.read(0, PAGE, nbd.slab),
      client.write(0, data, false),
      client.control(new Uint8Array(3)),
      client.extents(0, PAGE),
    ];
    const settled = Promise.allSettled(requests.filter((_, index) => index !== 3));
    await until(() => nbd.stage.underWay === 4);
    const closing = nbd.server.close();
    for (const result of await settled) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'unavailable' } });
    }
    expect((await client.lost).code).toBe('unavailable');
    data.release();
    release();
    await closing;
  });

  it('waits for a connection no longer than it was told', async () => {
    let give: () => void = () => undefined;
    nbd.exports.open = () =>
      new Promise((resolve) => {
        give = () => resolve({ stage: nbd.stage, readOnly: true });
      });
    const connecting = NbdClient.connect({ io: nbd.io, address: nbd.address, exportName: 'volume', timeoutMs: 50 });
    await expect(connecting).rejects.toMatchObject({ code: 'unavailable' });
    // The server still waits for what it asked for.
    expect(nbd.server.connectionCount).toBe(1);
    give();
    await until(() => nbd.server.connectionCount === 0);
  });
});
