import fc from 'fast-check';
import { stat, truncate, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { codeOf, HoldfastError } from '../../../src/base/errors.js';
import type { FileOperation } from '../../support/faulty-files.js';
import { BLOCK, BLOCKS, BLOCKS_PER_REGION, CheckedReplica, flipBit, REGIONS } from './checked-replica.js';

let made: CheckedReplica | undefined;
afterEach(async () => {
  await made?.remove();
  made = undefined;
});

async function create(rows: number): Promise<CheckedReplica> {
  await made?.remove();
  return (made = await CheckedReplica.create(rows));
}

const range = fc
  .record({ first: fc.nat(BLOCKS - 1), count: fc.integer({ min: 1, max: 12 }) })
  .map(({ first, count }) => ({ first, count: Math.min(count, BLOCKS - first) }));
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('write' as const), at: range, value: fc.integer({ min: 1, max: 255 }) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('trim' as const), at: range }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('read' as const), at: range }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('close' as const), regions: fc.subarray([...Array(REGIONS).keys()]) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('scrub' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('stop' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('kill' as const) }) },
);

async function take(
  checked: CheckedReplica,
  next: typeof step extends fc.Arbitrary<infer T> ? T : never,
): Promise<void> {
  switch (next.do) {
    case 'write':
      return checked.write(next.at.first, next.at.count, next.value);
    case 'trim':
      return checked.trim(next.at.first, next.at.count);
    case 'read': {
      const { first, count } = next.at;
      expect(await checked.read(first, count)).toEqual(checked.model.slice(first, first + count));
      return;
    }
    case 'close':
      return checked.closeRegions(next.regions);
    case 'scrub':
      return checked.scrub();
    case 'stop':
      await checked.stop();
      return checked.start();
    case 'kill':
      await checked.kill();
      return checked.start();
  }
}

const steps = fc.array(step, { minLength: 5, maxLength: 40 });
const memory = fc.constantFrom(1, 3, 100);
const ALL = [...Array(BLOCKS).keys()];

async function isCorrupt(checked: CheckedReplica, block: number): Promise<boolean> {
  return checked.read(block, 1).then(
    () => false,
    (error: unknown) => {
      if (codeOf(error) !== 'corrupt') throw error;
      return true;
    },
  );
}

describe('the checksums of a replica', () => {
  it('call nothing bad that was written, whatever order things come in', async () => {
    await fc.assert(
      fc.asyncProperty(memory, steps, async (rows, list) => {
        const checked = await create(rows);
        for (const next of list) await take(checked, next);
        expect(await checked.read(0, BLOCKS)).toEqual(checked.model);
        await checked.scrub();
        expect(checked.damaged()).toEqual([]);
      }),
      { numRuns: 40 },
    );
  }, 120_000);

  it('find every bit that turns over in a closed region, by a read and by the scrub, and nothing else', async () => {
    const flips = fc.uniqueArray(fc.record({ block: fc.nat(BLOCKS - 1), bit: fc.nat(BLOCK * 8 - 1) }), {
      selector: ({ block }) => block,
      minLength: 1,
      maxLength: 5,
    });
    const after = fc.constantFrom('stay', 'stop', 'kill');
    await fc.assert(
      fc.asyncProperty(memory, steps, flips, after, fc.boolean(), async (rows, list, places, then, byScrub) => {
        const checked = await create(rows);
        await checked.write(0, BLOCKS, 1);
        for (const next of list) await take(checked, next);
        await checked.closeRegions();
        if (then === 'stop') await checked.stop();
        if (then === 'kill') await checked.kill();
        for (const { block, bit } of places) await checked.rot(block, bit);
        if (then !== 'stay') await checked.start();
        const bad = places.map(({ block }) => block).sort((one, other) => one - other);
        if (byScrub) {
          await checked.scrub();
          expect(checked.damaged()).toEqual(bad);
        }
        const found: number[] = [];
        for (const block of ALL) if (await isCorrupt(checked, block)) found.push(block);
        expect(found).toEqual(bad);
        expect(checked.damaged()).toEqual(bad);
        // A write mends it, for good.
        for (const block of bad) await checked.write(block, 1, 200);
        expect(checked.damaged()).toEqual([]);
        await checked.kill();
        await checked.start();
        expect(await checked.read(0, BLOCKS)).toEqual(checked.model);
        expect(checked.damaged()).toEqual([]);
      }),
      { numRuns: 30 },
    );
  }, 120_000);

  it('know everything again after a close, so that a later flip is found, though a process was killed before', async () => {
    const checked = await create(100);
    await checked.write(0, BLOCKS, 7);
    await checked.kill();
    await checked.start();
    await checked.closeRegions();
    expect(new Set(await checked.digestStates(0, BLOCKS))).toEqual(new Set(['verified']));
    await checked.rot(11, 5);
    expect(await isCorrupt(checked, 11)).toBe(true);
  });

  it('are not learned anew by a close from data that has rotted, though the row had to leave the memory', async () => {
    const checked = (made = await CheckedReplica.create(1, async (operation, path) => {
      if (operation === 'read' && path.endsWith('/checksums')) await new Promise((resolve) => setTimeout(resolve, 10));
    }));
    for (let region = 0; region < REGIONS; region++) await checked.write(region * BLOCKS_PER_REGION, 8, region + 1);
    for (let region = 0; region < REGIONS; region++) await checked.rot(region * BLOCKS_PER_REGION + 3, 7);
    await checked.closeRegions();
    const found: number[] = [];
    for (const block of ALL) if (await isCorrupt(checked, block)) found.push(block);
    expect(found).toEqual(ALL.filter((block) => block % BLOCKS_PER_REGION === 3));
  });

  it('are kept for open regions over an orderly stop', async () => {
    const checked = await create(100);
    await checked.write(0, 20, 7);
    await checked.stop();
    await checked.rot(3, 99);
    await checked.start();
    expect(await isCorrupt(checked, 3)).toBe(true);
    expect(await checked.digestStates(4, 16)).toEqual(Array.from({ length: 16 }, () => 'verified'));
  });

  it('know nothing of open regions after a kill, and learn it from what is read', async () => {
    const checked = await create(100);
    await checked.write(0, 8, 7);
    await checked.closeRegions();
    await checked.write(0, 1, 8);
    await checked.kill();
    await checked.start();
    expect(await checked.digestStates(0, 8)).toEqual(Array.from({ length: 8 }, () => 'unverified'));
    expect(await checked.digestStates(0, 8)).toEqual(Array.from({ length: 8 }, () => 'verified'));
  });

  it('keep calling bad what was found bad in an open region, though its row is lost in a kill', async () => {
    const checked = await create(100);
    await checked.write(0, 8, 7);
    await checked.rot(2, 1);
    expect(await isCorrupt(checked, 2)).toBe(true);
    await checked.kill();
    await checked.start();
    expect(await isCorrupt(checked, 2)).toBe(true);
    await checked.closeRegions();
    await checked.scrub();
    expect(await isCorrupt(checked, 2)).toBe(true);
    expect(checked.damaged()).toEqual([2]);
    await checked.trim(2, 1);
    expect(await checked.read(0, 8)).toEqual([7, 7, 0, 7, 7, 7, 7, 7]);
  });

  it('tell no hole where data was written and a slice has lost it', async () => {
    const checked = await create(100);
    await checked.write(0, BLOCKS, 9);
    await checked.trim(4, 2);
    await checked.closeRegions();
    await checked.stop();
    await truncate(join(checked.path, 'data', '00000000'), 0);
    await checked.start();
    const extents = await checked.replica.extents(0, 8 * BLOCK);
    expect(extents).toEqual([
      { length: 4 * BLOCK, hole: false },
      { length: 2 * BLOCK, hole: true },
      { length: 2 * BLOCK, hole: false },
    ]);
    expect(await isCorrupt(checked, 0)).toBe(true);
  });

  it('name volume, offset and disk', async () => {
    const checked = await create(100);
    await checked.write(0, 8, 7);
    await checked.rot(2, 1);
    await expect(checked.read(0, 8)).rejects.toThrow(/vol-c{32} at offset 8192 on disk disk-1/);
  });
});

describe('rot of the checksums themselves', () => {
  it('makes no good data unreadable, and the scrub puts them right', async () => {
    const place = fc.record({ at: fc.nat(REGIONS * 4096 - 1), bit: fc.nat(7) });
    await fc.assert(
      fc.asyncProperty(memory, fc.array(place, { minLength: 1, maxLength: 6 }), steps, async (rows, places, list) => {
        const checked = await create(rows);
        await checked.write(0, BLOCKS, 3);
        await checked.closeRegions();
        await checked.kill();
        for (const { at, bit } of places) await flipBit(join(checked.path, 'checksums'), at, bit);
        await checked.start();
        expect(await checked.read(0, BLOCKS)).toEqual(checked.model);
        for (const next of list) await take(checked, next);
        await checked.scrub();
        await checked.closeRegions();
        await checked.kill();
        await checked.start();
        expect(new Set(await checked.digestStates(0, BLOCKS))).toEqual(new Set(['verified']));
        expect(checked.damaged()).toEqual([]);
      }),
      { numRuns: 25 },
    );
  }, 120_000);

  it.each(['missing', 'empty', 'cut off', 'of another replica'])('does no harm where the file is %s', async (how) => {
    const checked = await create(100);
    await checked.write(0, BLOCKS, 3);
    await checked.closeRegions();
    await checked.kill();
    const path = join(checked.path, 'checksums');
    if (how === 'missing') await unlink(path);
    else if (how === 'empty') await truncate(path, 0);
    else if (how === 'cut off') await truncate(path, 10_000);
    else await writeFile(path, Buffer.alloc((await stat(path)).size, 0x55));
    await checked.start();
    expect(await checked.read(0, BLOCKS)).toEqual(checked.model);
    await checked.scrub();
    await checked.kill();
    await checked.start();
    expect(new Set(await checked.digestStates(0, BLOCKS))).toEqual(new Set(['verified']));
    await checked.rot(50, 50);
    expect(await isCorrupt(checked, 50)).toBe(true);
  });

  it('makes no good data unreadable where the disk refuses to read them', async () => {
    let refuses = false;
    made = await CheckedReplica.create(1, (operation, path) => {
      if (refuses && operation === 'read' && path.endsWith('/checksums')) {
        throw new HoldfastError('io-error', 'a sector can not be read');
      }
    });
    await made.write(0, BLOCKS, 3);
    await made.closeRegions();
    refuses = true;
    expect(await made.read(0, BLOCKS)).toEqual(made.model);
    await made.write(5, 1, 9);
    refuses = false;
    expect(await made.read(0, BLOCKS)).toEqual(made.model);
    await made.closeRegions();
    await made.scrub();
    expect(made.damaged()).toEqual([]);
    expect(new Set(await made.digestStates(0, BLOCKS))).toEqual(new Set(['verified']));
  });
});

describe('a process that dies', () => {
  /** Everything on the replica's files from the n-th operation on comes to nothing. */
  async function dyingAfter(
    rows: number,
    wanted: FileOperation[],
    files: RegExp,
  ): Promise<CheckedReplica & { dieIn(count: number): void; dead(): boolean }> {
    let left = Infinity;
    const checked = await CheckedReplica.create(rows, (operation, path) => {
      if (left > 0 && wanted.includes(operation) && files.test(path)) left--;
      if (left <= 0) throw new HoldfastError('unavailable', 'the process is dead');
    });
    made = checked;
    return Object.assign(checked, { dieIn: (count: number) => (left = count), dead: () => left <= 0 });
  }

  it('at any step of a close leaves no good data bad', async () => {
    for (let count = 1; count < 20; count++) {
      await made?.remove();
      const checked = await dyingAfter(2, ['write', 'sync', 'open'], /checksums|regions|header/);
      await checked.write(0, BLOCKS, 1);
      await checked.closeRegions();
      await checked.write(3, 30, 2);
      await checked.trim(20, 9);
      await checked.write(60, 3, 4);
      checked.dieIn(count);
      const closing = await checked.closeRegions([0, 1, 2, 3, 7]).then(
        () => 'closed',
        () => 'died',
      );
      const died = checked.dead();
      if (!died) expect(closing).toBe('closed');
      checked.dieIn(Infinity);
      await checked.kill();
      await checked.start();
      expect(await checked.read(0, BLOCKS)).toEqual(checked.model);
      await checked.scrub();
      expect(checked.damaged()).toEqual([]);
      if (!died) return;
    }
    expect.fail('the close never came to an end');
  });

  it('at any step of writes, spills and an orderly stop leaves no good data bad', async () => {
    for (let count = 1; count < 80; count++) {
      await made?.remove();
      const checked = await dyingAfter(1, ['write', 'sync', 'read'], /checksums|regions|header/);
      await checked.write(0, BLOCKS, 1);
      await checked.closeRegions();
      checked.dieIn(count);
      const died = await (async () => {
        for (let region = 0; region < REGIONS; region++) await checked.write(region * BLOCKS_PER_REGION, 3, region + 2);
        await checked.read(0, BLOCKS);
        for (let region = 0; region < REGIONS; region++)
          await checked.write(region * BLOCKS_PER_REGION + 1, 1, region + 50);
        await checked.replica.close();
      })().then(
        () => checked.dead(),
        () => true,
      );
      checked.dieIn(Infinity);
      await checked.kill();
      await checked.start(100);
      // A write that failed may or may not be there.
      for (const block of ALL) {
        const [value = -1] = await checked.read(block, 1);
        const index = block % BLOCKS_PER_REGION;
        if (index > 2) expect(value).toBe(1);
      }
      await checked.scrub();
      expect(checked.damaged()).toEqual([]);
      if (!died) return;
    }
    expect.fail('the stop never came to an end');
  });
});

describe('a failing disk', () => {
  it.each(['write', 'sync'] as const)(
    'fails the close where it can not %s the rows, which may be repeated',
    async (wanted) => {
      let fails = false;
      made = await CheckedReplica.create(100, (operation, path) => {
        if (fails && operation === wanted && path.endsWith('/checksums'))
          throw new HoldfastError('io-error', 'refused');
      });
      await made.write(0, 20, 5);
      fails = true;
      await expect(made.closeRegions()).rejects.toThrow('refused');
      expect(made.replica.openRegions).toBe(3);
      fails = false;
      await made.closeRegions();
      await made.kill();
      await made.start();
      expect(new Set(await made.digestStates(0, BLOCKS))).toEqual(new Set(['verified']));
    },
  );

  it('leaves a block unknown whose write has failed, and calls it bad neither as it was nor as it is', async () => {
    let fails = false;
    made = await CheckedReplica.create(100, (operation, path) => {
      if (fails && operation === 'write' && path.includes('/data/')) throw new HoldfastError('io-error', 'refused');
    });
    await made.write(0, 8, 5);
    fails = true;
    await expect(made.write(1, 2, 6)).rejects.toThrow('refused');
    fails = false;
    await made.rot(1, 1);
    await made.rot(2, 1);
    expect(await made.digestStates(0, 4)).toEqual(['verified', 'unverified', 'unverified', 'verified']);
  });

  it('has blocks that can not be read found by the scrub, and mended by a write', async () => {
    let bad = true;
    const checked = (made = await CheckedReplica.create(100));
    await checked.write(0, 16, 5);
    await checked.closeRegions();
    await checked.remove();
    made = await CheckedReplica.create(100, (operation, path) => {
      if (bad && operation === 'read' && path.endsWith('/data/00000001'))
        throw new HoldfastError('io-error', 'no sector');
    });
    await made.write(0, BLOCKS, 5);
    await made.closeRegions();
    await made.scrub();
    const inSlice = Array.from({ length: 4 * BLOCKS_PER_REGION }, (_, index) => 4 * BLOCKS_PER_REGION + index);
    expect(made.damaged()).toEqual(inSlice);
    bad = false;
    await made.write(inSlice[0] ?? 0, inSlice.length, 6);
    expect(made.damaged()).toEqual([]);
  });
});

describe('requests at once', () => {
  it('of a reader beside the writer, and of the scrub, raise no false alarm and cost no knowledge', async () => {
    const checked = await create(2);
    await checked.write(0, BLOCKS, 1);
    await checked.closeRegions();
    const life = { over: false };
    const beside = [() => checked.read(0, BLOCKS), () => checked.scrub()].map(async (request) => {
      while (!life.over) await request();
    });
    for (let round = 0; round < 60; round++) {
      await Promise.all(
        Array.from({ length: 8 }, (_, index) => {
          const first = ((round * 5 + index * 12) % (BLOCKS / 3)) * 3;
          return index % 4 === 3 ? checked.trim(first, 3) : checked.write(first, 3, (round % 250) + 1);
        }),
      );
      if (round % 10 === 9) await checked.closeRegions();
    }
    life.over = true;
    await Promise.all(beside);
    expect(checked.damaged()).toEqual([]);
    await checked.closeRegions();
    expect(new Set(await checked.digestStates(0, BLOCKS))).toEqual(new Set(['verified']));
  });
});
