import { beforeEach, describe, expect, it } from 'vitest';
import type { SimMachine } from '../../sim/sim-machine.js';
import { SimWorld } from '../../sim/sim-world.js';

const WRITABLE = { write: true, create: true, direct: false };

let world: SimWorld;
let machine: SimMachine;

beforeEach(() => {
  world = new SimWorld(1);
  machine = world.machine('a');
});

describe('a simulated process', () => {
  it('sees nothing happen while it is paused, and then everything, in order', async () => {
    const process = machine.startProcess('p');
    const { clock, files, network } = process.io;
    const seen: string[] = [];
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      await network.listen({ kind: 'unix', path: '/s' }, () => seen.push('accepted'));
      clock.timer(100, () => seen.push('timer'));
      void file.write(new Uint8Array(1), 0).then(() => seen.push('written'));
      process.pause();
    });
    const other = machine.startProcess('other').io;
    await world.run(async () => {
      await other.clock.sleep(1_000);
      // The kernel takes the connection.
      await other.network.connect({ kind: 'unix', path: '/s' }, 100);
      await other.clock.sleep(1_000);
    });
    expect([seen, process.paused, machine.disk.size('/f')]).toEqual([[], true, 1]);
    process.resume();
    await world.pass(1);
    expect(seen).toEqual(['written', 'timer', 'accepted']);
  });

  it('keeps the order when it is paused again while it catches up', async () => {
    const process = machine.startProcess('p');
    const seen: number[] = [];
    for (let count = 1; count <= 6; count++) {
      process.io.clock.timer(count, () => {
        seen.push(count);
        if (count === 2 || count === 4) process.pause();
        // The rest comes after what has been waiting.
        if (count === 5) process.deliver(() => seen.push(7));
      });
    }
    process.pause();
    await world.pass(10);
    expect(seen).toEqual([]);
    process.resume();
    await world.pass(10);
    expect(seen).toEqual([1, 2]);
    process.resume();
    process.pause();
    process.resume();
    await world.pass(10);
    expect(seen).toEqual([1, 2, 3, 4]);
    process.resume();
    await world.pass(10);
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  it('does not fire a timer that was due while it was paused and is cancelled before', async () => {
    const process = machine.startProcess('p');
    const { clock } = process.io;
    const cancels: (() => void)[] = [];
    clock.timer(10, () => cancels.forEach((cancel) => cancel()));
    cancels.push(clock.timer(20, () => world.schedule.fail(new Error('it was cancelled'))));
    process.pause();
    await world.pass(100);
    process.resume();
    await world.pass(100);
  });

  it('never goes on once it is dead, whatever it waited for', async () => {
    for (const end of ['kill', 'crash'] as const) {
      world = new SimWorld(2);
      machine = world.machine('a');
      const process = machine.startProcess('p');
      const { clock, files, network } = process.io;
      const seen: string[] = [];
      const note = (name: string) => (): unknown => seen.push(name);
      await world.run(async () => {
        const file = await files.open('/f', WRITABLE);
        const accepted: { close: () => void }[] = [];
        await network.listen({ kind: 'unix', path: '/s' }, (stream) => accepted.push(stream));
        const stream = await network.connect({ kind: 'unix', path: '/s' }, 100);
        clock.timer(10, note('timer'));
        void clock.sleep(0).then(note('sleep'));
        void file.write(new Uint8Array(1), 0).then(note('write'), note('write failed'));
        void stream.read(new Uint8Array(1)).then(note('read'), note('read failed'));
        void stream.write([new Uint8Array(1_000_000)]).then(note('sent'), note('send failed'));
        void stream.closed.then(note('closed'));
        void process.bring(Promise.resolve()).then(note('brought'));
        process.pause();
      });
      if (end === 'kill') process.kill();
      else machine.crash();
      process.resume();
      void files.open('/f', WRITABLE).then(note('opened'));
      void clock.sleep(1).then(note('slept'));
      void network.connect({ kind: 'unix', path: '/s' }, 10).then(note('connected'), note('not connected'));
      clock.timer(1, note('late timer'));
      machine.startProcess('next');
      await world.pass(10_000);
      expect([process.alive, seen]).toEqual([false, []]);
      expect(world.network.connections()).toBe(0);
    }
  });

  it('leaves nothing planned when it dies', async () => {
    const process = machine.startProcess('p');
    for (let count = 0; count < 10; count++) process.io.clock.timer(1_000, () => undefined);
    process.kill();
    await world.pass(10_000);
    expect(world.schedule.events).toBe(0);
  });

  it('gets results of work outside its machine as everything else', async () => {
    const process = machine.startProcess('p');
    const seen: string[] = [];
    process.pause();
    void process.bring(Promise.resolve('a')).then((value) => seen.push(value));
    void process.bring(Promise.reject(new Error('b'))).catch((error: unknown) => seen.push(String(error)));
    await world.pass(1);
    expect(seen).toEqual([]);
    process.resume();
    await world.pass(1);
    expect(seen).toEqual(['a', 'Error: b']);
  });

  it('lends page-aligned memory and tells pieces of data apart', async () => {
    const { io } = machine.startProcess('p');
    const slab = io.slab(10_000);
    expect(slab.capacityBytes).toBe(12_288);
    await slab.take(1);
    const lease = await slab.take(4096);
    expect(lease.bytes.byteOffset % 4096).toBe(0);
    const digests = [0, 1, 2].map((value) => io.digest(lease.bytes.fill(value)));
    expect(new Set(digests).size).toBe(3);
    expect(io.digest(lease.bytes.fill(1))).toBe(digests[1]);
    expect(io.checksum(new TextEncoder().encode('123456789'))).toBe(0xcbf43926);
  });
});

describe('the clock of a machine', () => {
  it('goes at its own rate, by which its timers go too', async () => {
    const { clock } = machine.startProcess('p').io;
    const start = clock.now();
    const fired: number[] = [];
    machine.clockRate = 2;
    clock.timer(100, () => fired.push(world.schedule.now, clock.now() - start));
    await world.pass(49);
    expect(fired).toEqual([]);
    await world.pass(1);
    expect(fired).toEqual([50, 100]);
    // A timer that runs goes by the new rate from then on.
    clock.timer(100, () => fired.push(world.schedule.now));
    await world.pass(25);
    machine.clockRate = 0.5;
    expect(clock.now() - start).toBe(150);
    await world.pass(1_000);
    expect(fired.at(-1)).toBe(75 + 100);
  });

  it('jumps forward, and what is due by then fires', async () => {
    const { clock } = machine.startProcess('p').io;
    const start = clock.now();
    const fired: string[] = [];
    clock.timer(1_000, () => fired.push('a'));
    clock.timer(5_000, () => fired.push('b'));
    machine.jumpClock(3_000);
    await world.pass(0);
    expect([fired, clock.now() - start]).toEqual([['a'], 3_000]);
    await world.pass(2_000);
    expect(fired).toEqual(['a', 'b']);
    expect(() => machine.jumpClock(-1)).toThrow();
  });

  it("keeps time as Node's timers do: whole milliseconds, one at least, and no more than they can count", async () => {
    const { clock } = machine.startProcess('p').io;
    const fired: [number, number][] = [];
    for (const delay of [0, 0.2, 1.9, -5, Number.NaN, Infinity, 2 ** 31]) {
      clock.timer(delay, () => fired.push([delay, world.schedule.now]));
    }
    clock.timer(2.7, () => fired.push([2.7, world.schedule.now]));
    await world.pass(10);
    expect(fired.map(([, at]) => at)).toEqual([1, 1, 1, 1, 1, 1, 1, 2]);
  });
});
