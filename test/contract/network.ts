import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Address, Io, Listener, Stream } from '../../src/io/io.js';

/** A network under test, as seen by two processes. */
export interface NetworkUnderTest {
  readonly client: Io;
  readonly server: Io;
  /** What the client calls the server's machine. */
  readonly serverHost: string;
  /** A directory for unix sockets; the two have it in common where they are on one machine. */
  readonly directory: string;
  /** Lets `body` go on until it is through. */
  readonly run: (body: () => Promise<void>) => Promise<void>;
  readonly end: () => void;
}

/** What the network of every I/O implementation does. `start` is told whether both must be on one machine. */
export function networkContract(name: string, start: (sameMachine: boolean) => NetworkUnderTest): void {
  describe.each([{ kind: 'unix' }, { kind: 'tcp' }] as const)(`network: ${name}, $kind`, ({ kind }) => {
    let tested: NetworkUnderTest;
    let client: Io;
    let server: Io;
    let address: Address;
    const listeners: Listener[] = [];

    beforeEach(() => {
      tested = start(kind === 'unix');
      ({ client, server } = tested);
      address = kind === 'unix' ? { kind, path: `${tested.directory}/s` } : { kind, host: tested.serverHost, port: 0 };
    });
    afterEach(() => tested.end());

    const test = (claim: string, body: () => Promise<void>): void =>
      it(claim, () =>
        tested.run(async () => {
          try {
            await body();
          } finally {
            for (const listener of listeners.splice(0)) await listener.close();
          }
        }),
      );

    /** Both ends of a connection. */
    const pair = async (): Promise<[Stream, Stream]> => {
      const accepted: Stream[] = [];
      const listener = await server.network.listen(address, (stream) => accepted.push(stream));
      listeners.push(listener);
      const near = await client.network.connect(listener.address, 2_000);
      while (accepted.length === 0) await server.clock.sleep(1);
      const [far] = accepted;
      if (far === undefined) throw new Error('nothing was accepted');
      return [near, far];
    };

    test('carries bytes in order, however they are cut into parts and reads', async () => {
      const [near, far] = await pair();
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(fc.uint8Array({ maxLength: 3000 }), { maxLength: 5 }), { maxLength: 20 }),
          fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 1 }),
          async (writes, reads) => {
            const sent = Buffer.concat(writes.flat());
            const done = Promise.all(writes.map((parts) => near.write(parts)));
            const got = Buffer.alloc(sent.length);
            for (let at = 0, turn = 0; at < got.length; turn++) {
              const piece = got.subarray(at, at + (reads[turn % reads.length] ?? 1));
              await far.read(piece);
              at += piece.length;
            }
            await done;
            expect(got.equals(sent)).toBe(true);
          },
        ),
        { numRuns: 50 },
      );
      near.close();
      await far.closed;
    });

    test('lets memory be used again once a write has resolved', async () => {
      const [near, far] = await pair();
      const piece = new Uint8Array(50_000);
      const sender = (async () => {
        for (let turn = 0; turn < 40; turn++) await near.write([piece.fill(turn)]);
      })();
      const into = new Uint8Array(piece.length);
      for (let turn = 0; turn < 40; turn++) {
        await far.read(into);
        expect(into.every((byte) => byte === turn)).toBe(true);
      }
      await sender;
      near.close();
    });

    test('holds a fast sender back while nobody reads, and goes on when somebody does', async () => {
      const [near, far] = await pair();
      const piece = new Uint8Array(64 * 1024).fill(5);
      let sent = 0;
      const sender = (async () => {
        for (; sent < 400; sent++) await near.write([piece]);
      })();
      await client.clock.sleep(100);
      expect(sent).toBeLessThan(400);
      const into = new Uint8Array(400 * piece.length);
      await far.read(into);
      await sender;
      expect(into.every((byte) => byte === 5)).toBe(true);
      near.close();
      await far.closed;
    });

    test('ends at both ends, and every read and write under way or later fails with unavailable', async () => {
      const [near, far] = await pair();
      const big = new Uint8Array(32 * 1024 * 1024);
      const results = Promise.allSettled([near.read(new Uint8Array(1)), near.write([big]), near.write([big])]);
      await client.clock.sleep(20);
      near.close();
      near.close();
      for (const result of await results) {
        expect(result).toMatchObject({ status: 'rejected', reason: { code: 'unavailable' } });
      }
      await near.closed;
      // What had come before the end may still be read; then it ends.
      await expect(far.read(new Uint8Array(big.length * 2))).rejects.toMatchObject({ code: 'unavailable' });
      await far.closed;
      for (const stream of [near, far]) {
        await expect(stream.read(new Uint8Array(1))).rejects.toMatchObject({ code: 'unavailable' });
        await expect(stream.write([new Uint8Array(1)])).rejects.toMatchObject({ code: 'unavailable' });
      }
    });

    test('hands out what the peer sent before it ended', async () => {
      const [near, far] = await pair();
      await near.write([new Uint8Array([1, 2, 3])]);
      await client.clock.sleep(10);
      near.close();
      await far.closed;
      const into = new Uint8Array(3);
      await far.read(into);
      expect([...into]).toEqual([1, 2, 3]);
      await expect(far.read(into)).rejects.toMatchObject({ code: 'unavailable' });
    });

    test('refuses an address that somebody listens on, gives it back when that ends, and keeps the connections', async () => {
      const [near, far] = await pair();
      const [first] = listeners;
      if (first === undefined) throw new Error('nobody listens');
      await expect(server.network.listen(first.address, () => undefined)).rejects.toMatchObject({
        code: 'already-exists',
      });
      await listeners.splice(0)[0]?.close();
      await expect(client.network.connect(first.address, 1_000)).rejects.toMatchObject({ code: 'unavailable' });
      const again = await server.network.listen(first.address, () => undefined);
      await again.close();
      await near.write([new Uint8Array([7])]);
      const into = new Uint8Array(1);
      await far.read(into);
      expect(into[0]).toBe(7);
      near.close();
    });
  });

  describe(`network: ${name}, addresses`, () => {
    it('refuses a unix path that is a file, too long, or has nobody', async () => {
      const tested = start(true);
      const { server, directory } = tested;
      try {
        await tested.run(async () => {
          const file = await server.files.open(`${directory}/file`, { write: true, create: true, direct: false });
          await file.close();
          const listen = (path: string): Promise<Listener> =>
            server.network.listen({ kind: 'unix', path }, () => undefined);
          await expect(listen(`${directory}/file`)).rejects.toMatchObject({ code: 'already-exists' });
          await expect(listen(`${directory}/${'x'.repeat(108)}`)).rejects.toMatchObject({ code: 'invalid-argument' });
          await expect(
            server.network.connect({ kind: 'unix', path: `${directory}/none` }, 1_000),
          ).rejects.toMatchObject({ code: 'unavailable' });
        });
      } finally {
        tested.end();
      }
    });
  });
}
