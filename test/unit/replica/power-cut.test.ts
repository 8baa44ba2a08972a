import { describe, expect, it } from 'vitest';
import { codeOf } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import { Replica } from '../../../src/replica/replica.js';
import { RowCache } from '../../../src/replica/row-cache.js';
import { Prng } from '../../sim/prng.js';
import type { SimMachine, SimProcess } from '../../sim/sim-machine.js';
import { SimWorld } from '../../sim/sim-world.js';
import { BLOCK, BLOCKS, BLOCKS_PER_REGION, REGIONS, SMALL } from './checked-replica.js';

/**
 * A replica on a simulated disk, whose power is cut, whose process is killed and whose disk fails at any moment, while
 * the rules of its writer are kept: regions are flushed before they are closed, and not written meanwhile.
 */
const VOLUME = `vol-${'d'.repeat(32)}`;
const PATH = `/disk/${VOLUME}`;
const SEEDS = Number(process.env['HOLDFAST_POWER_CUTS'] ?? '60');
const ALL_REGIONS = [...Array(REGIONS).keys()];

class Life {
  readonly slab;
  readonly underWay = new Set<Promise<void>>();
  /** Regions with a request under way. */
  readonly busy = new Set<number>();

  constructor(
    readonly process: SimProcess,
    readonly replica: Replica,
  ) {
    this.slab = process.io.slab(2 * BLOCKS * BLOCK);
  }
}

class Story {
  readonly world: SimWorld;
  readonly random: Prng;
  readonly machine: SimMachine;
  /** Regions whose close was answered and that were not touched since. */
  readonly sealed = new Set<number>();
  boot = 0;
  stamp = 1;
  life!: Life;

  constructor(seed: number) {
    this.world = new SimWorld(seed);
    this.random = new Prng(seed).fork();
    this.machine = this.world.machine('a');
  }

  async begin(): Promise<void> {
    const { io } = this.machine.startProcess('make');
    await this.world.run(async () => {
      await io.files.makeDirectory('/disk');
      await Replica.create(io, SMALL, PATH, { volume: VOLUME, capacityBytes: BLOCKS * BLOCK, incarnation: 'boot-0' });
    });
    await this.start();
  }

  async start(): Promise<void> {
    const process = this.machine.startProcess('plugin');
    const rows = new RowCache(process.io, SMALL, this.random.pick([1, 3, 100]));
    const opening = (): Promise<Replica> =>
      Replica.open(process.io, silentLog(), SMALL, PATH, `boot-${this.boot}`, { rows });
    this.life = new Life(process, await this.world.run(opening));
  }

  /** Requests as they come, some at once, for a while; then the end, in the middle of them. */
  async live(): Promise<void> {
    const steps = 5 + this.random.below(40);
    await this.world.run(async () => {
      for (let step = 0; step < steps; step++) {
        const { underWay } = this.life;
        const request: Promise<void> = this.#request()
          .catch(() => undefined)
          .finally(() => underWay.delete(request));
        underWay.add(request);
        if (this.random.chance(0.6)) await Promise.race([request, this.life.process.io.clock.sleep(50)]);
      }
      await this.life.process.io.clock.sleep(this.random.below(20));
    });
  }

  async #request(): Promise<void> {
    const { replica, busy, slab } = this.life;
    const kind = this.random.pick([
      'write',
      'write',
      'write',
      'trim',
      'read',
      'flush',
      'close',
      'close',
      'scrub',
    ] as const);
    const free = ALL_REGIONS.filter((region) => !busy.has(region));
    if (kind === 'flush') return replica.flush();
    if (kind === 'close') return this.#close(free.filter(() => this.random.chance(0.5)));
    const region = this.random.below(REGIONS);
    if (kind === 'scrub') {
      await replica.scrub(region, slab);
      return;
    }
    const first = region * BLOCKS_PER_REGION + this.random.below(BLOCKS_PER_REGION);
    const count = Math.min(1 + this.random.below(BLOCKS_PER_REGION), BLOCKS - first);
    if (kind === 'read') {
      (await replica.read(first * BLOCK, count * BLOCK, slab)).release();
      return;
    }
    const { first: from, last: to } = SMALL.regionsOf(first * BLOCK, count * BLOCK);
    if (!free.includes(from) || !free.includes(to)) return;
    await this.#holding([from, to], async () => {
      this.sealed.delete(from);
      this.sealed.delete(to);
      if (kind === 'trim') return replica.trim(first * BLOCK, count * BLOCK, false);
      const lease = await slab.take(count * BLOCK);
      lease.bytes.fill(1 + this.random.below(255));
      return replica.write(first * BLOCK, lease, this.random.chance(0.1)).finally(() => lease.release());
    });
  }

  async #close(regions: number[]): Promise<void> {
    await this.#holding(regions, async () => {
      const { replica } = this.life;
      await replica.flush();
      const stamp = ++this.stamp;
      await replica.closeRegions(regions.map((region) => ({ region, stamp })));
      for (const region of regions) this.sealed.add(region);
    });
  }

  /** One request at a time for a region that changes it, as the writer's range locks have it. */
  async #holding(regions: readonly number[], request: () => Promise<void>): Promise<void> {
    const { busy } = this.life;
    for (const region of regions) busy.add(region);
    try {
      await request();
    } finally {
      for (const region of regions) busy.delete(region);
    }
  }

  async end(): Promise<void> {
    const how = this.random.pick(['power cut', 'power cut', 'kill', 'stop'] as const);
    if (how === 'stop') {
      const { life } = this;
      // Its host has ended the session and drained it.
      await this.world.run(() => Promise.all(life.underWay).then(() => life.replica.close()));
      life.process.kill();
    } else if (how === 'kill') {
      this.life.process.kill();
      await this.world.pass(1_000);
    } else {
      this.machine.crash();
      this.boot++;
    }
  }

  /** What the checksums say of each block. */
  states(): Promise<string[]> {
    const { replica, slab } = this.life;
    return this.world.run(async () => {
      const digests = await replica.digests(0, BLOCKS * BLOCK, BLOCK, slab);
      return digests.map(({ state }) => state);
    });
  }

  /** One bit turns over in a block of a sealed region that holds data. */
  async rotSomewhere(): Promise<void> {
    const blocksPerSlice = SMALL.sliceBytes / BLOCK;
    const blocks = [...this.sealed].flatMap((region) =>
      Array.from({ length: BLOCKS_PER_REGION }, (_, index) => region * BLOCKS_PER_REGION + index),
    );
    const nameOf = (block: number): string =>
      `${PATH}/data/${Math.floor(block / blocksPerSlice)
        .toString(16)
        .padStart(8, '0')}`;
    const holding = blocks.filter((block) =>
      this.machine.disk.allocatedPages(nameOf(block)).includes(block % blocksPerSlice),
    );
    if (holding.length === 0) return;
    const block = this.random.pick(holding);
    const at = (block % blocksPerSlice) * BLOCK + this.random.below(BLOCK);
    this.machine.disk.flipBit(nameOf(block), at, this.random.below(8));
    const { replica, slab } = this.life;
    const error: unknown = await this.world.run(() =>
      replica.read(block * BLOCK, BLOCK, slab).then(
        () => undefined,
        (reason: unknown) => reason,
      ),
    );
    expect(codeOf(error)).toBe('corrupt');
    expect(replica.damage.count).toBe(1);
  }
}

describe('a replica whose power is cut, or whose process is killed, at any moment', () => {
  it.each([
    ['works', 0],
    ['fails now and then', 0.03],
  ])(
    'calls nothing bad, and forgets nothing of a region that was closed where its disk %s',
    async (_, errors) => {
      for (let seed = 1; seed <= SEEDS; seed++) {
        const story = new Story(seed);
        await story.begin();
        try {
          for (let life = 0; life < 4; life++) {
            Object.assign(story.machine.disk.faults, {
              writeErrors: errors,
              syncErrors: errors,
              tornWriteOnError: true,
            });
            await story.live();
            Object.assign(story.machine.disk.faults, { writeErrors: 0, syncErrors: 0 });
            await story.end();
            await story.start();
            // A disk that refuses may cost knowledge, until the next scrub; never data.
            if (errors > 0) story.sealed.clear();
            const states = await story.states();
            expect(states).not.toContain('corrupt');
            for (const region of story.sealed) {
              const ofRegion = states.slice(region * BLOCKS_PER_REGION, (region + 1) * BLOCKS_PER_REGION);
              expect(ofRegion).toEqual(Array.from({ length: BLOCKS_PER_REGION }, () => 'verified'));
            }
          }
          await story.rotSomewhere();
        } catch (error) {
          throw new Error(`seed ${seed}`, { cause: error });
        }
      }
    },
    120_000,
  );
});

/** A replica with all its blocks written with 7, on a machine of its own. */
async function filled(seed: number): Promise<Story> {
  const story = new Story(seed);
  await story.begin();
  const { replica, slab } = story.life;
  await story.world.run(async () => {
    const lease = await slab.take(BLOCKS * BLOCK);
    lease.bytes.fill(7);
    await replica.write(0, lease, true);
    lease.release();
  });
  return story;
}

describe('after a power cut', () => {
  it('the rows are there that were written again when their first sync had failed', async () => {
    for (let seed = 1; seed <= 20; seed++) {
      const story = await filled(seed);
      const { replica } = story.life;
      const close = (): Promise<void> => replica.closeRegions(ALL_REGIONS.map((region) => ({ region, stamp: 2 })));
      story.machine.disk.faults.syncErrors = 1;
      await expect(story.world.run(close)).rejects.toThrow();
      story.machine.disk.faults.syncErrors = 0;
      await story.world.run(close);
      story.machine.crash();
      story.boot++;
      await story.start();
      expect(new Set(await story.states())).toEqual(new Set(['verified']));
    }
  });

  it('a region is open that a process was killed in the middle of opening, and the next one wrote (R1)', async () => {
    for (let seed = 1; seed <= 40; seed++) {
      const story = await filled(seed);
      const before = story.life;
      const write = async ({ replica, slab }: Life): Promise<void> => {
        const lease = await slab.take(BLOCK);
        lease.bytes.fill(9);
        await replica.write(0, lease, false).finally(() => lease.release());
      };
      await story.world.run(async () => {
        await before.replica.closeRegions(ALL_REGIONS.map((region) => ({ region, stamp: 2 })));
        void write(before).catch(() => undefined);
        await before.process.io.clock.sleep(0.05 * seed);
      });
      before.process.kill();
      await story.start();
      await story.world.run(() => write(story.life).then(() => story.life.replica.flush()));
      story.machine.crash();
      story.boot++;
      await story.start();
      const { replica } = story.life;
      expect([seed, replica.openRegions, replica.state.crashMark]).toEqual([seed, 1, true]);
    }
  });

  it('a bad block that was being mended holds what was written, or is still called bad', async () => {
    const outcomes = new Set<string>();
    for (let seed = 1; seed <= 60; seed++) {
      const story = await filled(seed);
      const { replica, slab, process } = story.life;
      story.machine.disk.flipBit(`${PATH}/data/00000000`, 5 * BLOCK + 9, 0);
      await story.world.run(async () => {
        await expect(replica.read(5 * BLOCK, BLOCK, slab)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
        const lease = await slab.take(BLOCK);
        lease.bytes.fill(9);
        const write = replica.write(5 * BLOCK, lease, false);
        await Promise.race([write, process.io.clock.sleep(seed % 3 === 0 ? 1_000 : 1 + (seed % 7))]);
      });
      story.machine.crash();
      story.boot++;
      await story.start();
      const next = story.life;
      const outcome = await story.world.run(() =>
        next.replica.read(5 * BLOCK, BLOCK, next.slab).then(
          ({ bytes }) => [...new Set(bytes)].join(),
          (error: unknown) => codeOf(error),
        ),
      );
      outcomes.add(outcome);
    }
    expect(outcomes).toEqual(new Set(['9', 'corrupt']));
  });
});
