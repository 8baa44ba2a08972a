import { describe, expect, it } from 'vitest';
import type { File, Files } from '../../../src/io/io.js';
import { Prng } from '../../sim/prng.js';
import type { SimMachine } from '../../sim/sim-machine.js';
import { SimWorld } from '../../sim/sim-world.js';

const PAGE = 4096;
const SECTOR = 512;
const SEEDS = Array.from({ length: 60 }, (_, index) => index + 1);
const WRITABLE = { write: true, create: true, direct: false };

interface Tested {
  readonly world: SimWorld;
  readonly machine: SimMachine;
  /** Those of a process on it. */
  readonly files: Files;
  readonly open: (path: string) => Promise<File>;
}

/** Runs `before` in a process of a machine, cuts its power at once, and hands out the machine. */
async function crashAfter(seed: number, before: (tested: Tested) => Promise<void>): Promise<Tested> {
  const world = new SimWorld(seed);
  const machine = world.machine('a');
  return runAndCrash(world, machine, before);
}

async function runAndCrash(
  world: SimWorld,
  machine: SimMachine,
  before: (tested: Tested) => Promise<void>,
): Promise<Tested> {
  const { files } = machine.startProcess('p').io;
  const tested: Tested = { world, machine, files, open: (path) => files.open(path, WRITABLE) };
  await world.run(() => before(tested));
  machine.crash();
  return tested;
}

const filled = (length: number, value: number): Uint8Array => new Uint8Array(length).fill(value);
const same = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one !== undefined && other !== undefined && Buffer.compare(one, other) === 0;
const text = (machine: SimMachine, path: string): string | undefined => {
  const bytes = machine.disk.peek(path, 0, 100);
  return bytes && new TextDecoder().decode(bytes);
};

describe('after a crash', () => {
  it('every sector holds what was synced or something written later', async () => {
    const pages = 6;
    for (const seed of SEEDS) {
      const world = new SimWorld(seed);
      const random = new Prng(seed);
      const machine = world.machine('a');
      const { files } = machine.startProcess('p').io;
      /** For each sector its contents so far; what stands before `durable` may not come back. */
      const sectors = Array.from({ length: (pages * PAGE) / SECTOR }, () => ({ contents: [0], durable: 0 }));
      const note = (offset: number, length: number, value: number): void => {
        for (const sector of sectors.slice(offset / SECTOR, (offset + length) / SECTOR)) sector.contents.push(value);
      };
      await world.run(async () => {
        const file = await files.open('/f', WRITABLE);
        await file.truncate(pages * PAGE);
        await file.sync();
        const syncs: Promise<void>[] = [];
        for (let step = 1; step < 60; step++) {
          const offset = random.below(pages) * PAGE;
          const length = PAGE * (1 + random.below(pages - offset / PAGE));
          const kind = random.pick(['sync', 'punch', 'write sector', 'write', 'write'] as const);
          if (kind === 'sync') {
            const marks = sectors.map(({ contents }) => contents.length - 1);
            const sync = file
              .sync()
              .then(() =>
                sectors.forEach((sector, index) => (sector.durable = Math.max(sector.durable, marks[index] ?? 0))),
              );
            syncs.push(sync);
            if (random.chance(0.5)) await sync;
          } else if (kind === 'punch') {
            await file.punch(offset, length);
            note(offset, length, 0);
          } else if (kind === 'write sector') {
            await file.write(filled(SECTOR, step), offset);
            note(offset, SECTOR, step);
          } else {
            await file.write(filled(length, step), offset);
            note(offset, length, step);
          }
        }
        if (random.chance(0.5)) await Promise.all(syncs);
      });
      machine.crash();
      sectors.forEach(({ contents, durable }, index) => {
        const found = machine.disk.peek('/f', index * SECTOR, SECTOR) ?? new Uint8Array();
        expect(new Set(found).size).toBe(1);
        expect(contents.slice(durable)).toContain(found[0]);
      });
      expect(machine.disk.size('/f')).toBe(pages * PAGE);
    }
  });

  it('what was written while a sync was under way may be lost, though the sync has succeeded', async () => {
    const kept = new Set<number | undefined>();
    for (const seed of SEEDS) {
      const ended: string[] = [];
      const { machine } = await crashAfter(seed, async ({ open }) => {
        const file = await open('/f');
        await file.write(filled(PAGE, 1), 0);
        const sync = file.sync().then(() => ended.push('sync'));
        await file.write(filled(PAGE, 2), 0);
        ended.push('write');
        await sync;
      });
      if (ended[0] === 'write') kept.add(machine.disk.peek('/f', 0, 1)?.[0]);
    }
    expect(kept).toEqual(new Set([1, 2]));
  });

  it('all, nothing, or any part of what was not synced is there', async () => {
    const outcomes = { all: 0, nothing: 0, part: 0, torn: 0, between: 0, laterOnly: 0 };
    for (const seed of SEEDS) {
      const { machine } = await crashAfter(seed, async ({ open }) => {
        const file = await open('/f');
        await file.truncate(8 * PAGE);
        await file.sync();
        await file.write(filled(8 * PAGE, 1), 0);
        await file.write(filled(4 * PAGE, 2), 4 * PAGE);
      });
      const found = [...(machine.disk.peek('/f', 0, 8 * PAGE) ?? [])].filter((_, at) => at % SECTOR === 0);
      const newest = (value: number, at: number): boolean => value === (at < 32 ? 1 : 2);
      if (found.every(newest)) outcomes.all++;
      else if (found.every((value) => value === 0)) outcomes.nothing++;
      else outcomes.part++;
      if (new Set(found.slice(0, 8)).size > 1) outcomes.torn++;
      if (found.slice(32).includes(1)) outcomes.between++;
      if (found.slice(0, 32).includes(0) && found.slice(32).includes(2)) outcomes.laterOnly++;
    }
    for (const count of Object.values(outcomes)) expect(count).toBeGreaterThan(SEEDS.length / 12);
  });

  it('names are those of some moment after the last sync of them', async () => {
    const names = (machine: SimMachine): string => machine.disk.paths().sort().join(' ');
    const seen = new Set<string>();
    const moments: string[] = [];
    for (const seed of SEEDS) {
      const { machine } = await crashAfter(seed, async ({ machine, files, open }) => {
        moments.length = 0;
        const moment = (): unknown => moments.push(names(machine));
        await files.makeDirectory('/d/e');
        await open('/d/lost');
        await files.remove('/d/lost');
        await open('/d/one');
        await files.syncDirectory('/d');
        moment();
        await open('/d/two');
        moment();
        await files.rename('/d/two', '/d/e/three');
        moment();
        await files.rename('/d/one', '/d/e/three');
        moment();
        await files.rename('/d/e', '/f');
        moment();
        await files.remove('/f');
        moments.push('');
      });
      expect(moments).toContain(names(machine));
      seen.add(names(machine));
    }
    expect(seen.size).toBe(new Set(moments).size);
  });

  it('a new file is there with its data once it was synced, though its directory was not', async () => {
    for (const seed of SEEDS) {
      const { machine } = await crashAfter(seed, async ({ files, open }) => {
        await files.makeDirectory('/d');
        const file = await open('/d/new');
        await file.write(filled(3, 65), 0);
        await file.sync();
      });
      expect(text(machine, '/d/new')).toBe('AAA');
    }
  });

  it('a sync of an older file has not made a new name durable', async () => {
    const kept = new Set<boolean>();
    for (const seed of SEEDS) {
      const { machine } = await crashAfter(seed, async ({ machine, open }) => {
        const older = await open('/older');
        await older.truncate(PAGE);
        await older.sync();
        await open('/newer');
        await older.write(filled(10, 1), 0);
        await older.sync();
        expect(machine.disk.list('/')).toEqual(['older', 'newer']);
      });
      kept.add(machine.disk.list('/').includes('newer'));
    }
    expect(kept).toEqual(new Set([true, false]));
  });

  it('a file that replaced another is the new one whole, or the old one', async () => {
    const seen = new Set<string | undefined>();
    for (const seed of SEEDS) {
      const { machine } = await crashAfter(seed, async ({ files, open }) => {
        const old = await open('/f');
        await old.write(filled(3, 65), 0);
        await old.sync();
        const next = await open('/f.new');
        await next.write(filled(4, 66), 0);
        await next.sync();
        await files.rename('/f.new', '/f');
      });
      seen.add(text(machine, '/f'));
      if (text(machine, '/f') === 'BBBB') expect(machine.disk.list('/')).toEqual(['f']);
    }
    expect(seen).toEqual(new Set(['AAA', 'BBBB']));
  });

  it('a file that had grown has its old size, or a new one with data or zeros, and no leftovers beyond', async () => {
    const seen = new Set<string | undefined>();
    for (const seed of SEEDS) {
      const { world, machine } = await crashAfter(seed, async ({ open }) => {
        const file = await open('/f');
        await file.write(filled(2, 65), 0);
        await file.sync();
        await file.write(filled(2, 66), SECTOR);
        await file.write(filled(2, 67), PAGE);
        expect(await file.size()).toBe(PAGE + 2);
      });
      const bytes = machine.disk.peek('/f', 0, 2 * PAGE) ?? new Uint8Array();
      seen.add([bytes.length, bytes[SECTOR] ?? '', bytes[PAGE] ?? ''].join(' '));
      expect([...bytes.subarray(0, 2)]).toEqual([65, 65]);
      expect(bytes.subarray(2, SECTOR).every((byte) => byte === 0)).toBe(true);
      await runAndCrash(world, machine, async ({ open }) => {
        const file = await open('/f');
        await file.truncate(2 * PAGE);
        await file.sync();
      });
      const grown = machine.disk.peek('/f', bytes.length, 2 * PAGE) ?? filled(1, 1);
      expect(grown.every((byte) => byte === 0)).toBe(true);
    }
    const sizes = new Set([...seen].map((found) => found?.split(' ')[0]));
    expect(sizes).toEqual(new Set(['2', '514', '4098']));
    expect(seen.size).toBeGreaterThan(5);
  });

  it('what is done later can be lost by the next crash', async () => {
    const names = new Set<string>();
    for (const seed of SEEDS) {
      const { world, machine } = await crashAfter(seed, async ({ files, open }) => {
        await open('/f');
        await files.syncDirectory('/');
      });
      await runAndCrash(world, machine, async ({ open }) => {
        await open('/g');
      });
      names.add(machine.disk.list('/').join(' '));
    }
    expect(names).toEqual(new Set(['f', 'f g']));
  });

  it('nothing changes any more without a writer', async () => {
    const { machine } = await crashAfter(7, async ({ open }) => {
      const file = await open('/f');
      await file.write(filled(10 * PAGE, 1), 0);
    });
    const before = machine.disk.peek('/f', 0, 10 * PAGE);
    for (let round = 0; round < 10; round++) machine.crash();
    expect(same(machine.disk.peek('/f', 0, 10 * PAGE), before)).toBe(true);
  });
});

describe('a killed process', () => {
  it('leaves what it had written, unsynced, and nothing of it happens later', async () => {
    const outcomes = { all: 0, nothing: 0, part: 0, lost: 0 };
    for (const seed of SEEDS) {
      const world = new SimWorld(seed);
      const machine = world.machine('a');
      const process = machine.startProcess('p');
      await world.run(async () => {
        const file = await process.io.files.open('/f', WRITABLE);
        await file.truncate(8 * PAGE);
        await file.sync();
        await file.write(filled(PAGE, 1), 0);
        void file.write(filled(7 * PAGE, 2), PAGE);
      });
      process.kill();
      const after = machine.disk.peek('/f', 0, 8 * PAGE) ?? new Uint8Array();
      expect(after.subarray(0, PAGE).every((byte) => byte === 1)).toBe(true);
      const written = after.subarray(PAGE).filter((byte) => byte === 2).length;
      if (written === 7 * PAGE) outcomes.all++;
      else if (written === 0) outcomes.nothing++;
      else outcomes.part++;
      await world.pass(1000);
      expect(same(machine.disk.peek('/f', 0, 8 * PAGE), after)).toBe(true);
      machine.crash();
      if (machine.disk.peek('/f', 0, 1)?.[0] === 0) outcomes.lost++;
    }
    for (const count of Object.values(outcomes)) expect(count).toBeGreaterThan(SEEDS.length / 6);
  });

  it('has its names made, changed or removed in part at most, in order', async () => {
    const seen = new Set<string>();
    for (const seed of SEEDS) {
      const world = new SimWorld(seed);
      const machine = world.machine('a');
      const process = machine.startProcess('p');
      await world.run(async () => {
        await process.io.files.makeDirectory('/d');
        for (const name of ['a', 'b']) await process.io.files.open(`/d/${name}`, WRITABLE);
        void process.io.files.remove('/d');
      });
      process.kill();
      seen.add(machine.disk.paths().join(' '));
    }
    expect(seen).toEqual(new Set(['/d/a /d/b', '/d/b', '']));
  });
});
