import { beforeEach, describe, expect, it } from 'vitest';
import { AssertionFailed } from '../../../src/base/assert.js';
import type { Files } from '../../../src/io/io.js';
import type { SimMachine, SimProcess } from '../../sim/sim-machine.js';
import { SimWorld } from '../../sim/sim-world.js';

const PAGE = 4096;
const WRITABLE = { write: true, create: true, direct: false };
const filled = (length: number, value: number): Uint8Array => new Uint8Array(length).fill(value);
const same = (one: Uint8Array | undefined, other: Uint8Array): boolean =>
  one !== undefined && Buffer.compare(one, other) === 0;

let world: SimWorld;
let machine: SimMachine;
let process: SimProcess;
let files: Files;

function begin(seed: number): void {
  world = new SimWorld(seed);
  machine = world.machine('a');
  process = machine.startProcess('p');
  ({ files } = process.io);
}

beforeEach(() => begin(1));

describe('a simulated disk', () => {
  it('lets writes take effect when they complete, in whatever order', async () => {
    const orders = new Set<number | undefined>();
    for (let seed = 1; seed < 30; seed++) {
      begin(seed);
      await world.run(async () => {
        const file = await files.open('/f', WRITABLE);
        const writes = [1, 2, 3].map((value) => file.write(filled(PAGE, value), 0));
        expect(machine.disk.size('/f')).toBe(0);
        await Promise.all(writes);
      });
      orders.add(machine.disk.peek('/f', 0, 1)?.[0]);
    }
    expect(orders).toEqual(new Set([1, 2, 3]));
  });

  it('fails operations as often as it is told, and does nothing then', async () => {
    const { faults } = machine.disk;
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      await file.write(filled(PAGE, 1), 0);
      faults.readErrors = faults.writeErrors = 1;
      await expect(file.read(new Uint8Array(1), 0)).rejects.toMatchObject({ code: 'io-error' });
      await expect(file.write(filled(PAGE, 2), 0)).rejects.toMatchObject({ code: 'io-error' });
      await expect(file.punch(0, PAGE)).rejects.toMatchObject({ code: 'io-error' });
      await expect(files.remove('/f')).rejects.toMatchObject({ code: 'io-error' });
      await expect(files.list('/')).rejects.toMatchObject({ code: 'io-error' });
      await file.sync();
      expect(same(machine.disk.peek('/f', 0, 1), filled(1, 1))).toBe(true);
      faults.readErrors = 0.5;
      const results = await Promise.allSettled(Array.from({ length: 200 }, () => file.size().then(() => file.read(filled(1, 0), 0)))); // prettier-ignore
      const failures = results.filter(({ status }) => status === 'rejected').length;
      expect(failures).toBeGreaterThan(60);
      expect(failures).toBeLessThan(140);
    });
  });

  it('may tear a write that fails', async () => {
    const torn = new Set<string>();
    for (let seed = 1; seed < 30; seed++) {
      begin(seed);
      machine.disk.faults.tornWriteOnError = true;
      await world.run(async () => {
        const file = await files.open('/f', WRITABLE);
        await file.truncate(PAGE);
        machine.disk.faults.writeErrors = 1;
        await expect(file.write(filled(PAGE, 2), 0)).rejects.toMatchObject({ code: 'io-error' });
      });
      torn.add(String(machine.disk.peek('/f', 0, PAGE)?.filter((byte) => byte === 2).length));
    }
    expect(torn.size).toBeGreaterThan(3);
  });

  it('drops writes, at once and visibly, when a sync fails; the next sync succeeds all the same', async () => {
    const outcomes = new Set<string>();
    for (let seed = 1; seed < 100; seed++) {
      begin(seed);
      await world.run(async () => {
        const file = await files.open('/f', WRITABLE);
        await file.write(filled(4 * PAGE, 1), 0);
        await file.sync();
        await file.write(filled(3 * PAGE, 2), 0);
        machine.disk.faults.syncErrors = 1;
        await expect(file.sync()).rejects.toMatchObject({ code: 'io-error' });
        machine.disk.faults.syncErrors = 0;
        const visible = machine.disk.peek('/f', 0, 4 * PAGE) ?? new Uint8Array();
        const kept = visible.filter((byte) => byte === 2).length;
        expect(visible.every((byte, at) => byte === 1 || (byte === 2 && at < 3 * PAGE))).toBe(true);
        outcomes.add(kept === 0 ? 'none' : kept === 3 * PAGE ? 'all' : 'some');
        await file.sync();
        machine.crash();
        expect(same(machine.disk.peek('/f', 0, 4 * PAGE), visible)).toBe(true);
      });
    }
    expect(outcomes).toEqual(new Set(['none', 'all', 'some']));
  });

  it('has no room for new pages and names when it is full, but for what is there', async () => {
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      await file.write(filled(2 * PAGE, 1), 0);
      await file.truncate(10 * PAGE);
      machine.disk.faults.full = true;
      await file.write(filled(2 * PAGE, 2), 0);
      await expect(file.write(filled(3 * PAGE, 3), PAGE)).rejects.toMatchObject({ code: 'no-space' });
      expect(machine.disk.allocatedPages('/f')).toEqual([0, 1]);
      await expect(files.open('/g', WRITABLE)).rejects.toMatchObject({ code: 'no-space' });
      await expect(files.makeDirectory('/d')).rejects.toMatchObject({ code: 'no-space' });
      await file.punch(0, PAGE);
      await files.rename('/f', '/g');
      expect(machine.disk.usedBytes()).toBe(PAGE);
      machine.disk.faults.full = false;
      await file.write(filled(PAGE, 3), 0);
      expect(machine.disk.usedBytes()).toBe(2 * PAGE);
    });
  });

  it('completes nothing while it hangs, and all of it afterwards', async () => {
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      machine.disk.faults.hung = true;
      let done = 0;
      const calls = [file.write(filled(PAGE, 1), 0), file.sync(), files.makeDirectory('/d')].map((call) =>
        call.then(() => done++),
      );
      await process.io.clock.sleep(60_000);
      expect([done, machine.disk.size('/f')]).toEqual([0, 0]);
      machine.disk.faults.hung = false;
      await Promise.all(calls);
      expect(machine.disk.size('/f')).toBe(PAGE);
    });
  });

  it('is slower by its factor', async () => {
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      const timed = async (): Promise<number> => {
        const start = world.schedule.now;
        for (let round = 0; round < 100; round++) await file.write(filled(1, 1), 0);
        return world.schedule.now - start;
      };
      const usual = await timed();
      machine.disk.faults.slowFactor = 100;
      expect((await timed()) / usual).toBeGreaterThan(30);
    });
  });

  it('fails everything once it is dead', async () => {
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      await file.write(filled(PAGE, 1), 0);
      machine.disk.faults.dead = true;
      const calls = [file.read(filled(1, 0), 0), file.sync(), file.size(), files.open('/f', WRITABLE), files.list('/')];
      for (const result of await Promise.allSettled(calls)) {
        expect(result).toMatchObject({ status: 'rejected', reason: { code: 'io-error' } });
      }
      await file.close();
    });
  });

  it('refuses files that were opened before it was mounted anew, and what was under way then', async () => {
    for (const change of ['crash', 'remount', 'wipe'] as const) {
      begin(3);
      const { incarnation } = machine.disk;
      await world.run(async () => {
        const file = await files.open('/f', WRITABLE);
        await file.write(filled(PAGE, 1), 0);
        await file.sync();
        const call = file.write(filled(PAGE, 2), 0).then(
          () => 'done',
          () => 'failed',
        );
        machine.disk[change]();
        expect(await call).toBe(change === 'remount' ? 'done' : 'failed');
        await expect(file.read(filled(1, 0), 0)).rejects.toMatchObject({ code: 'io-error' });
        await expect(file.sync()).rejects.toMatchObject({ code: 'io-error' });
        await file.close();
        if (change === 'remount') expect(same(machine.disk.peek('/f', 0, 1), filled(1, 2))).toBe(true);
        if (change === 'wipe') expect(machine.disk.paths()).toEqual([]);
      });
      expect(machine.disk.incarnation).toBeGreaterThan(incarnation);
    }
  });

  it('loses nothing by a remount, and a crash later changes nothing', async () => {
    for (let seed = 1; seed < 20; seed++) {
      begin(seed);
      await world.run(async () => {
        await files.makeDirectory('/d');
        const file = await files.open('/d/f', WRITABLE);
        await file.write(filled(3 * PAGE, 1), 0);
      });
      machine.disk.remount();
      machine.disk.crash();
      expect(same(machine.disk.peek('/d/f', 0, 3 * PAGE), filled(3 * PAGE, 1))).toBe(true);
    }
  });

  it('comes back as it was durable at an earlier time', async () => {
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      await file.write(filled(2 * PAGE, 1), 0);
      await file.sync();
      await file.write(filled(PAGE, 2), 0);
      await file.truncate(10 * PAGE);
      await files.open('/g', WRITABLE);
      const image = machine.disk.snapshot();
      await file.write(filled(PAGE, 3), PAGE);
      await file.sync();
      for (let round = 0; round < 2; round++) {
        machine.disk.restore(image);
        expect([machine.disk.paths(), machine.disk.size('/f')]).toEqual([['/f'], 2 * PAGE]);
        expect(same(machine.disk.peek('/f', 0, 2 * PAGE), filled(2 * PAGE, 1))).toBe(true);
        // The image is not changed by what is written later.
        const again = await files.open('/f', WRITABLE);
        await again.write(filled(PAGE, 9), 0);
        await again.sync();
      }
    });
  });

  it('flips a bit of what is visible and of what is durable', async () => {
    await world.run(async () => {
      const file = await files.open('/f', WRITABLE);
      await file.write(filled(PAGE, 1), 0);
      await file.sync();
      await file.write(filled(PAGE, 3), 0);
      machine.disk.flipBit('/f', 5, 7);
      expect(same(machine.disk.peek('/f', 4, 3), new Uint8Array([3, 131, 3]))).toBe(true);
      machine.disk.restore(machine.disk.snapshot());
      expect(same(machine.disk.peek('/f', 4, 3), new Uint8Array([1, 129, 1]))).toBe(true);
    });
  });

  it('fails the run where direct I/O is not in whole pages', async () => {
    for (const [offset, bytes] of [
      [1, new Uint8Array(PAGE)],
      [0, new Uint8Array(PAGE - 1)],
      [0, new Uint8Array(2 * PAGE).subarray(8, PAGE + 8)],
    ] as const) {
      begin(1);
      const run = world.run(async () => {
        const file = await files.open('/f', { ...WRITABLE, direct: true });
        await file.write(bytes, offset).catch(() => undefined);
        await process.io.clock.sleep(10);
      });
      await expect(run).rejects.toThrow(AssertionFailed);
    }
  });
});
