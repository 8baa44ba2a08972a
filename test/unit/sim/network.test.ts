import { beforeEach, describe, expect, it } from 'vitest';
import type { Address, Stream } from '../../../src/io/io.js';
import type { SimMachine, SimProcess } from '../../sim/sim-machine.js';
import { SimWorld } from '../../sim/sim-world.js';

const ADDRESS: Address = { kind: 'tcp', host: 'b', port: 10809 };
const SEEDS = Array.from({ length: 40 }, (_, index) => index + 1);

let world: SimWorld;
let a: SimMachine;
let b: SimMachine;
let client: SimProcess;
let server: SimProcess;

function begin(seed: number): void {
  world = new SimWorld(seed);
  a = world.machine('a');
  b = world.machine('b');
  client = a.startProcess('client');
  server = b.startProcess('server');
}

beforeEach(() => begin(1));

/** A connection: the client's end and the server's. */
async function connected(): Promise<[Stream, Stream]> {
  let far: Stream | undefined;
  await server.io.network.listen(ADDRESS, (stream) => (far = stream));
  const near = await client.io.network.connect(ADDRESS, 1_000);
  while (far === undefined) await server.io.clock.sleep(1);
  return [near, far];
}

/** Reads single bytes to the end of the stream into the list. */
async function collect(stream: Stream, into: number[]): Promise<void> {
  const byte = new Uint8Array(1);
  for (;;) {
    await stream.read(byte);
    into.push(byte[0] ?? -1);
  }
}

/** How a call ends: 'waits' while it has not. */
function watch(call: Promise<unknown>): { outcome: string } {
  const watched = { outcome: 'waits' };
  void call.then(
    () => (watched.outcome = 'done'),
    (error: unknown) => (watched.outcome = (error as { code: string }).code),
  );
  return watched;
}

const bytes = (...values: number[]): Uint8Array => new Uint8Array(values);

describe('a cut', () => {
  it('holds bytes in its direction only; at its end they arrive in order, or the connection breaks at both ends', async () => {
    const outcomes = { delivered: 0, broken: 0 };
    for (const seed of SEEDS) {
      begin(seed);
      const there: number[] = [];
      const back: number[] = [];
      await world.run(async () => {
        const [near, far] = await connected();
        const ends = [watch(collect(far, there)), watch(collect(near, back))];
        world.network.cut('a', 'b');
        await near.write([bytes(1)]);
        await far.write([bytes(2)]);
        await client.io.clock.sleep(5_000);
        await near.write([bytes(3)]);
        await client.io.clock.sleep(5_000);
        expect([there, back]).toEqual([[], [2]]);
        world.network.heal('a', 'b');
        const written = watch(near.write([bytes(4)]));
        await client.io.clock.sleep(1_000);
        if (written.outcome === 'done') {
          expect([there, ends.map(({ outcome }) => outcome)]).toEqual([
            [1, 3, 4],
            ['waits', 'waits'],
          ]);
          outcomes.delivered++;
        } else {
          expect([there, ends.map(({ outcome }) => outcome)]).toEqual([[], ['unavailable', 'unavailable']]);
          await Promise.all([near.closed, far.closed]);
          outcomes.broken++;
        }
        near.close();
        far.close();
        await client.io.clock.sleep(10);
      });
      expect(world.network.connections()).toBe(0);
    }
    expect(outcomes.delivered).toBeGreaterThan(8);
    expect(outcomes.broken).toBeGreaterThan(8);
  });

  it('holds the end of a stream too', async () => {
    await world.run(async () => {
      const [near, far] = await connected();
      world.network.cut('a', 'b');
      near.close();
      await near.closed;
      const read = watch(far.read(bytes(0)));
      await client.io.clock.sleep(60_000);
      expect([read.outcome, world.network.connections()]).toEqual(['waits', 1]);
      world.network.healAll();
      await far.closed;
      expect([read.outcome, world.network.connections()]).toEqual(['unavailable', 0]);
    });
  });

  it('stops a sender whom no acknowledgements reach, once its buffer is full', async () => {
    await world.run(async () => {
      const [near, far] = await connected();
      const piece = new Uint8Array(64 * 1024);
      let sent = 0;
      void (async () => {
        for (; ; sent++) await near.write([piece]);
      })();
      let received = 0;
      void (async () => {
        for (; ; received++) await far.read(new Uint8Array(piece.length));
      })();
      await client.io.clock.sleep(50);
      expect(received).toBeGreaterThan(20);
      for (let round = 0; round < 3; round++) {
        world.network.cut('b', 'a');
        const before = received;
        await client.io.clock.sleep(1_000);
        expect(received - before).toBeLessThanOrEqual(4);
        const stuck = received;
        await client.io.clock.sleep(1_000);
        expect(received).toBe(stuck);
        world.network.heal('b', 'a');
        await client.io.clock.sleep(50);
        expect(received).toBeGreaterThan(stuck + 20);
      }
    });
  });

  it('lets no connection come about in either direction, unless it ends in time', async () => {
    for (const [from, to] of [
      ['a', 'b'],
      ['b', 'a'],
    ] as const) {
      begin(1);
      await world.run(async () => {
        let accepted = 0;
        await server.io.network.listen(ADDRESS, () => accepted++);
        world.network.cut(from, to);
        a.clockRate = 2;
        const start = world.schedule.now;
        await expect(client.io.network.connect(ADDRESS, 5_000)).rejects.toMatchObject({ code: 'unavailable' });
        expect(world.schedule.now - start).toBeCloseTo(2_500, 0);
        const late = watch(client.io.network.connect(ADDRESS, 5_000));
        await client.io.clock.sleep(500);
        world.network.heal(from, to);
        await client.io.clock.sleep(4_000);
        expect([late.outcome, accepted]).toEqual(['done', 1]);
      });
    }
  });

  it('is none within a machine', async () => {
    world.network.cut('a', 'a');
    const other = a.startProcess('other');
    await world.run(async () => {
      for (const address of [
        { kind: 'unix', path: '/s' },
        { kind: 'tcp', host: 'a', port: 1 },
        { kind: 'tcp', host: '127.0.0.1', port: 2 },
      ] as const) {
        await other.io.network.listen(address, () => undefined);
        (await client.io.network.connect(address, 1_000)).close();
      }
      const elsewhere = watch(server.io.network.connect({ kind: 'unix', path: '/s' }, 1_000));
      await server.io.clock.sleep(1);
      expect(elsewhere.outcome).toBe('unavailable');
    });
  });
});

describe('a peer that ends', () => {
  it('by being killed is noticed soon, at any place of what it sent, and its address is free', async () => {
    const counts = new Set<number>();
    for (const seed of SEEDS) {
      begin(seed);
      const got: number[] = [];
      await world.run(async () => {
        const [near, far] = await connected();
        const end = watch(collect(near, got));
        await far.write([bytes(0, 1, 2, 3, 4, 5, 6, 7)]);
        const start = world.schedule.now;
        server.kill();
        await near.closed;
        expect(world.schedule.now - start).toBeLessThan(2);
        await client.io.clock.sleep(1);
        expect(end.outcome).toBe('unavailable');
        expect(got).toEqual([0, 1, 2, 3, 4, 5, 6, 7].slice(0, got.length));
        await expect(client.io.network.connect(ADDRESS, 1_000)).rejects.toMatchObject({ code: 'unavailable' });
        expect(world.schedule.now - start).toBeLessThan(5);
        const next = b.startProcess('next');
        await next.io.network.listen(ADDRESS, () => undefined);
        (await client.io.network.connect(ADDRESS, 1_000)).close();
      });
      counts.add(got.length);
    }
    expect(counts.size).toBeGreaterThan(3);
  });

  it('with its machine is not noticed, until the machine is up again and gets something', async () => {
    for (const speaks of ['before the start', 'after the start', 'never']) {
      begin(1);
      await world.run(async () => {
        const [near] = await connected();
        const read = watch(near.read(bytes(0)));
        await client.io.clock.sleep(10);
        b.crash();
        if (speaks === 'before the start') await near.write([bytes(1)]);
        const start = world.schedule.now;
        await expect(client.io.network.connect(ADDRESS, 3_000)).rejects.toMatchObject({ code: 'unavailable' });
        expect(world.schedule.now - start).toBeCloseTo(3_000, 0);
        await client.io.clock.sleep(60_000);
        expect(read.outcome).toBe('waits');
        b.startProcess('next');
        if (speaks === 'after the start') await near.write([bytes(1)]);
        await client.io.clock.sleep(1_000);
        expect(read.outcome).toBe(speaks === 'never' ? 'waits' : 'unavailable');
        expect(world.network.connections()).toBe(speaks === 'never' ? 1 : 0);
      });
    }
  });

  it('with its machine sends nothing again of what a cut has held', async () => {
    for (const seed of SEEDS) {
      begin(seed);
      await world.run(async () => {
        const [near, far] = await connected();
        const read = watch(near.read(bytes(0)));
        // Half of the times the bytes are on their way when the power fails.
        if (seed % 2 === 0) world.network.cut('b', 'a');
        await far.write([bytes(1)]);
        if (seed % 2 === 0) await client.io.clock.sleep(10);
        b.crash();
        world.network.cut('b', 'a');
        b.startProcess('next');
        await client.io.clock.sleep(10);
        world.network.healAll();
        await client.io.clock.sleep(10_000);
        expect(read.outcome).toBe('waits');
        await near.write([bytes(1)]);
        await near.closed;
        expect(world.network.connections()).toBe(0);
      });
    }
  });

  it('while the other is paused is noticed when that goes on, after what came before', async () => {
    await world.run(async () => {
      const [near, far] = await connected();
      const got: number[] = [];
      const end = watch(collect(near, got));
      client.pause();
      await far.write([bytes(1, 2, 3)]);
      await server.io.clock.sleep(5);
      server.kill();
      const other = b.startProcess('other');
      await other.io.clock.sleep(1_000);
      expect([got, end.outcome]).toEqual([[], 'waits']);
      client.resume();
      await other.io.clock.sleep(1_000);
      expect([got, end.outcome]).toEqual([[1, 2, 3], 'unavailable']);
    });
  });

  it('listening only, keeps no one who has not been accepted', async () => {
    await world.run(async () => {
      const accepted: Stream[] = [];
      const listener = await server.io.network.listen(ADDRESS, (stream) => accepted.push(stream));
      server.pause();
      const waiting = await client.io.network.connect(ADDRESS, 1_000);
      await client.io.clock.sleep(10);
      server.kill();
      await waiting.closed;
      expect([accepted.length, world.network.connections()]).toEqual([0, 0]);
      expect(listener.address).toEqual(ADDRESS);
    });
  });

  it('listening, ends whoever has not been accepted yet', async () => {
    world.network.latencyMs = [10, 10];
    await world.run(async () => {
      let accepted = 0;
      const listener = await server.io.network.listen(ADDRESS, () => accepted++);
      server.io.clock.timer(25, () => void listener.close());
      // The server's answer has come by then, and this side's last packet has not.
      const near = await client.io.network.connect(ADDRESS, 1_000);
      await near.closed;
      expect([accepted, world.network.connections()]).toEqual([0, 0]);
    });
  });
});

describe('a reset', () => {
  it('breaks every connection between the two, at both ends', async () => {
    await world.run(async () => {
      const [near, far] = await connected();
      const more = await client.io.network.connect(ADDRESS, 1_000);
      const local = a.startProcess('other');
      await local.io.network.listen({ kind: 'unix', path: '/s' }, () => undefined);
      const apart = await client.io.network.connect({ kind: 'unix', path: '/s' }, 1_000);
      const reads = [near, far, more, apart].map((stream) => watch(stream.read(bytes(0))));
      world.network.reset('b', 'a');
      await client.io.clock.sleep(1);
      const ended = 'unavailable';
      expect(reads.map(({ outcome }) => outcome)).toEqual([ended, ended, ended, 'waits']);
    });
  });

  it('is not seen by the side that nothing reaches, until that sends and hears', async () => {
    await world.run(async () => {
      const [near, far] = await connected();
      const reads = [near, far].map((stream) => watch(stream.read(bytes(0))));
      world.network.cut('a', 'b');
      world.network.reset('a', 'b');
      await client.io.clock.sleep(1_000);
      expect(reads.map(({ outcome }) => outcome)).toEqual(['unavailable', 'waits']);
      await far.write([bytes(1)]);
      await client.io.clock.sleep(1_000);
      expect(reads[1]?.outcome).toBe('waits');
      world.network.heal('a', 'b');
      await client.io.clock.sleep(1_000);
      expect(reads[1]?.outcome).toBe('unavailable');
      expect(world.network.connections()).toBe(0);
    });
  });
});

describe('latency', () => {
  it('is that of the network and of the direction', async () => {
    world.network.latencyMs = [10, 12];
    await world.run(async () => {
      const [near, far] = await connected();
      const oneWay = async (from: Stream, to: Stream): Promise<number> => {
        const start = world.schedule.now;
        void from.write([bytes(1)]);
        await to.read(bytes(0));
        return world.schedule.now - start;
      };
      world.network.slow('b', 'a', 100);
      expect(Math.abs((await oneWay(near, far)) - 11)).toBeLessThan(1.1);
      expect(Math.abs((await oneWay(far, near)) - 111)).toBeLessThan(1.1);
      world.network.slow('b', 'a', 0);
      expect(Math.abs((await oneWay(far, near)) - 11)).toBeLessThan(1.1);
    });
  });

  it('never lets bytes overtake each other', async () => {
    await world.run(async () => {
      const [near, far] = await connected();
      const got: number[] = [];
      void collect(far, got).catch(() => undefined);
      for (let value = 0; value < 200; value++) {
        world.network.slow('a', 'b', value % 2 === 0 ? 20 : 0);
        void near.write([bytes(value)]);
        await client.io.clock.sleep(1);
      }
      await client.io.clock.sleep(100);
      expect(got).toEqual(Array.from({ length: 200 }, (_, value) => value));
    });
  });
});
