import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';
import { NbdClient } from '../../../src/nbd/client.js';
import { MIB, PAGE, startNbd, until, type NbdFixture } from '../../support/nbd-fixture.js';
import {
  CLIENT_FLAGS,
  GREETING,
  chunk,
  contextData,
  exportInfo,
  goData,
  option,
  optionReply,
  request,
  simpleReply,
  u16,
  u32,
  u64,
} from '../../support/raw-nbd.js';

/** Whatever comes over the wire: no crash, no hang, no growth, and the next one is served. */

const io = createNodeIo();

interface Mutation {
  at: number;
  kind: 'change' | 'cut' | 'insert';
  bytes: Uint8Array;
}

const mutations = fc.array(
  fc.record({
    at: fc.nat(100_000),
    kind: fc.constantFrom<Mutation['kind']>('change', 'change', 'cut', 'insert'),
    bytes: fc.uint8Array({ minLength: 1, maxLength: 8 }),
  }),
  { maxLength: 4 },
);
const cuts = fc.array(fc.integer({ min: 1, max: 6000 }), { minLength: 1, maxLength: 8 });

function mutate(bytes: Buffer, changes: Mutation[]): Buffer {
  let result = bytes;
  for (const { at, kind, bytes: piece } of changes) {
    const where = at % (result.length + 1);
    const after = kind === 'insert' ? where : where + piece.length;
    result = Buffer.concat([
      result.subarray(0, where),
      kind === 'cut' ? Buffer.alloc(0) : piece,
      result.subarray(after),
    ]);
  }
  return result;
}

/** Writes bytes in pieces of the given sizes, taken in turn. */
async function trickle(socket: Socket, bytes: Buffer, sizes: number[]): Promise<void> {
  let at = 0;
  for (let turn = 0; at < bytes.length && !socket.destroyed; turn++) {
    const piece = bytes.subarray(at, at + (sizes[turn % sizes.length] ?? 1) + (turn > 50 ? 10_000 : 0));
    at += piece.length;
    await new Promise<void>((resolve) => socket.write(piece, () => resolve()));
  }
}

describe('a server', () => {
  let nbd: NbdFixture;

  beforeAll(async () => {
    nbd = await startNbd({ control: (payload) => Promise.resolve(payload) });
  });

  afterAll(async () => {
    await nbd.end();
  });

  const valid = Buffer.concat([
    CLIENT_FLAGS,
    option(8),
    option(3),
    option(9, contextData('volume', ['base:'])),
    option(10, contextData('volume', ['base:allocation'])),
    option(6, goData('volume', [3, 1])),
    option(7, goData('volume', [3])),
    request({ type: 1, cookie: 1, offset: PAGE, length: 2 * PAGE }),
    Buffer.alloc(2 * PAGE, 5),
    request({ type: 0, cookie: 2, offset: 0, length: 4 * PAGE }),
    request({ type: 0x4846, cookie: 3, length: 100 }),
    Buffer.alloc(100, 1),
    request({ type: 3, cookie: 4 }),
    request({ type: 6, flags: 2, cookie: 5, offset: 0, length: PAGE }),
    request({ type: 7, cookie: 6, length: 16 * MIB }),
    request({ type: 4, cookie: 7, length: MIB }),
    request({ type: 2 }),
  ]);

  async function serveBytes(bytes: Buffer, sizes: number[]): Promise<void> {
    const peer = await nbd.raw();
    await trickle(peer.socket, bytes, sizes);
    // A client that ends its side at once would not be answered; this one ends when nothing more comes.
    for (let seen = -1; seen !== peer.received.length && !peer.ended;) {
      seen = peer.received.length;
      await io.clock.sleep(3);
    }
    peer.socket.end();
    await peer.closed();
    await until(() => nbd.server.connectionCount === 0);
    expect(nbd.serverSlab.usedBytes).toBe(0);
    expect(nbd.stage.underWay).toBe(0);
  }

  afterEach(async () => {
    const client = await nbd.connect();
    const data = await nbd.filled(PAGE, 3);
    await client.write(0, data, true);
    data.release();
    (await client.read(0, PAGE, nbd.slab)).release();
    client.close();
    await until(() => nbd.server.connectionCount === 0);
  });

  it('carries out a whole conversation, however it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(cuts, async (sizes) => {
        nbd.stage.calls.length = 0;
        const peer = await nbd.raw();
        await trickle(peer.socket, valid, sizes);
        await peer.closed();
        expect(nbd.stage.calls).toHaveLength(6);
        await until(() => nbd.server.connectionCount === 0);
      }),
      { numRuns: 30 },
    );
  });

  it('outlives conversations that were tampered with', async () => {
    await fc.assert(
      fc.asyncProperty(mutations, cuts, (changes, sizes) => serveBytes(mutate(valid, changes), sizes)),
      { numRuns: 200 },
    );
  });

  it('outlives any bytes, from the first on or after the handshake', async () => {
    const handshake = valid.subarray(0, valid.indexOf(u32(0x25609513)));
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 2000 }), fc.boolean(), cuts, (bytes, shake, sizes) =>
        serveBytes(Buffer.concat([shake ? handshake : Buffer.alloc(0), bytes]), sizes),
      ),
      { numRuns: 100 },
    );
  });

  it('outlives any requests with a right beginning', async () => {
    const handshake = valid.subarray(0, valid.indexOf(u32(0x25609513)));
    const fields = fc.record({
      flags: fc.nat(31),
      type: fc.oneof(fc.nat(8), fc.constant(0x4846)),
      offset: fc.oneof(
        fc.nat(5000).map((page) => page * PAGE),
        fc.bigInt(0n, 2n ** 64n - 1n),
      ),
      length: fc.oneof(
        fc.nat(20).map((page) => page * PAGE),
        fc.nat(0xffffffff),
      ),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(fields, { maxLength: 30 }), cuts, (requests, sizes) =>
        serveBytes(
          Buffer.concat([
            handshake,
            ...requests.map(({ length, ...rest }, index) =>
              Buffer.concat([
                request({ ...rest, length, cookie: index }),
                Buffer.alloc(rest.type === 1 || rest.type === 0x4846 ? Math.min(length, 200_000) : 0),
              ]),
            ),
          ]),
          sizes,
        ),
      ),
      { numRuns: 100 },
    );
  });
});

describe('a client', () => {
  const directory = mkdtempSync('/tmp/holdfast-fuzz-');
  const path = `${directory}/nbd`;
  const slab = io.slab(8 * MIB);
  let server: Server;
  let serve: (socket: Socket) => void = () => undefined;

  beforeAll(async () => {
    server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.resume();
      serve(socket);
    }).listen(path);
    await new Promise((resolve) => server.once('listening', resolve));
  });

  afterAll(() => {
    server.close();
    rmSync(directory, { recursive: true, force: true });
  });

  const greetings = Buffer.concat([
    GREETING,
    optionReply(8, 1),
    optionReply(10, 4, Buffer.concat([u32(1), Buffer.from('base:allocation')])),
    optionReply(10, 1),
    optionReply(7, 3, exportInfo(MIB, 0xed)),
    optionReply(7, 1),
  ]);
  // Cookies are counted from 1: read, write, extents, control, flush.
  const replies = [
    chunk(1, 1, Buffer.concat([u64(0), Buffer.alloc(2 * PAGE, 7)])),
    chunk(2, 0),
    chunk(3, 5, Buffer.concat([u32(1), u32(PAGE), u32(3)])),
    chunk(4, 0x4846, Buffer.from('hello')),
    chunk(5, 0x8001, Buffer.concat([u32(28), u16(4), Buffer.from('full')])),
  ];

  /** Plays a server that says just these bytes and ends; all that the client asked must settle. */
  async function play(bytes: Buffer, sizes: number[]): Promise<PromiseSettledResult<unknown>[]> {
    let asked: () => void = () => undefined;
    const questions = new Promise<void>((resolve) => (asked = resolve));
    serve = (socket) => {
      void (async () => {
        await trickle(socket, bytes.subarray(0, greetings.length), sizes);
        await Promise.race([questions, io.clock.sleep(20)]);
        await trickle(socket, bytes.subarray(greetings.length), sizes);
        socket.end();
      })();
    };
    let client: NbdClient;
    try {
      client = await NbdClient.connect({
        io,
        address: { kind: 'unix', path },
        exportName: 'volume',
        timeoutMs: 10_000,
      });
    } catch (error) {
      expect(error).toHaveProperty('name', 'HoldfastError');
      return [];
    }
    const data = await slab.take(PAGE);
    setImmediate(asked);
    const settled = await Promise.allSettled([
      client.read(0, 2 * PAGE, slab).then((lease) => {
        const first = lease.bytes[0];
        lease.release();
        return first;
      }),
      Promise.resolve().then(() => client.write(0, data, false)),
      Promise.resolve().then(() => client.extents(0, 2 * PAGE)),
      Promise.resolve().then(() => client.control(new Uint8Array(5))),
      Promise.resolve().then(() => client.flush()),
    ]);
    expect((await client.lost).code).toBe('unavailable');
    data.release();
    expect(slab.usedBytes).toBe(0);
    for (const result of settled) {
      if (result.status === 'rejected') expect(result.reason).toHaveProperty('name', 'HoldfastError');
    }
    return settled;
  }

  it('takes the answers of a server in whatever pieces they come', async () => {
    await fc.assert(
      fc.asyncProperty(fc.shuffledSubarray(replies, { minLength: 5 }), cuts, async (order, sizes) => {
        serve = () => undefined;
        const settled = await play(Buffer.concat([greetings, ...order]), sizes);
        expect(settled.map((result) => result.status)).toEqual([
          'fulfilled',
          'fulfilled',
          'fulfilled',
          'fulfilled',
          'rejected',
        ]);
        expect(settled[4]).toMatchObject({ reason: { code: 'no-space', message: 'full' } });
      }),
      { numRuns: 30 },
    );
  });

  it('outlives a server that was tampered with', async () => {
    const valid = Buffer.concat([greetings, ...replies]);
    await fc.assert(
      fc.asyncProperty(mutations, cuts, async (changes, sizes) => {
        await play(mutate(valid, changes), sizes);
      }),
      { numRuns: 200 },
    );
  });

  it.each([
    ['a reply to nothing', chunk(99, 0)],
    ['a reply with a high cookie', chunk(0x100000001n, 0)],
    ['a simple reply to a read', Buffer.concat([simpleReply(1), Buffer.alloc(2 * PAGE)])],
    ['more data than was asked for', chunk(1, 1, Buffer.concat([u64(0), Buffer.alloc(3 * PAGE)]))],
    ['data at another place', chunk(1, 1, Buffer.concat([u64(PAGE), Buffer.alloc(2 * PAGE)]))],
    ['less data than was asked for', chunk(1, 1, Buffer.concat([u64(0), Buffer.alloc(PAGE)]))],
    ['success without data', chunk(1, 0)],
    ['data twice', Buffer.concat([0, 0].map(() => chunk(1, 1, Buffer.concat([u64(0), Buffer.alloc(PAGE)]), false)))],
    ['data for a flush', chunk(5, 1, Buffer.concat([u64(0), Buffer.alloc(PAGE)]))],
    ['an empty hole', chunk(1, 2, Buffer.concat([u64(0), u32(0)]))],
    ['a huge chunk', Buffer.concat([chunk(4, 0x4846).subarray(0, 16), u32(0xffffffff)])],
    ['a huge error', Buffer.concat([chunk(4, 0x8001).subarray(0, 16), u32(0xffffffff)])],
    ['an error of no kind', chunk(5, 0x8001, Buffer.concat([u32(0), u16(0)]))],
    ['a text longer than its chunk', chunk(5, 0x8001, Buffer.concat([u32(5), u16(10)]))],
    ['a status of another context', chunk(3, 5, Buffer.concat([u32(2), u32(PAGE), u32(0)]))],
    ['a status of nothing', chunk(3, 5, Buffer.concat([u32(1), u32(0), u32(0)]))],
    ['no status', chunk(3, 0)],
    ['no control answer', chunk(4, 0)],
    ['a chunk of an unknown type', chunk(5, 77)],
    ['other bytes', Buffer.alloc(64, 0x55)],
  ])('gives up a server that sends %s', async (_, bytes) => {
    const settled = await play(Buffer.concat([greetings, bytes, ...replies]), [100_000]);
    expect(settled.every((result) => result.status === 'rejected')).toBe(true);
  });

  it('puts together a read that comes in pieces and holes', async () => {
    const pieces = [
      chunk(1, 2, Buffer.concat([u64(PAGE), u32(PAGE)]), false),
      chunk(1, 1, Buffer.concat([u64(0), Buffer.alloc(PAGE, 9)]), false),
      chunk(1, 0),
    ];
    const [read] = await play(Buffer.concat([greetings, ...pieces]), [1000]);
    expect(read).toMatchObject({ status: 'fulfilled', value: 9 });
  });

  it('takes an error of an unknown kind for the failure of that request alone', async () => {
    const unknown = chunk(5, 0x8fff, Buffer.concat([u32(5), u16(2), Buffer.from('no'), Buffer.alloc(9)]));
    const settled = await play(Buffer.concat([greetings, ...replies.slice(0, 4), unknown]), [100_000]);
    expect(settled[4]).toMatchObject({ reason: { code: 'io-error', message: 'no' } });
    expect(settled[0]?.status).toBe('fulfilled');
  });
});
