import { describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { HoldfastError } from '../../../src/base/errors.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { Scrub, type Scrubbed, type ScrubTiming } from '../../../src/replica/scrub.js';

const DAY_MS = 24 * 60 * 60_000;
const REGION_BYTES = 4 * 1024 * 1024;

/** Time that passes when all that is due has been done. */
class FastClock {
  #now = 0;
  #timers: { at: number; fire: () => void }[] = [];

  now = (): number => this.#now;

  timer = (delayMs: number, fire: () => void): (() => void) => {
    const timer = { at: this.#now + delayMs, fire };
    this.#timers.push(timer);
    return () => (this.#timers = this.#timers.filter((other) => other !== timer));
  };

  sleep = (delayMs: number): Promise<void> =>
    new Promise((resolve) => {
      this.timer(delayMs, resolve);
    });

  async runUntil(time: number): Promise<void> {
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      const next = this.#timers.sort((one, other) => one.at - other.at)[0];
      if (next === undefined || next.at > time) break;
      this.#timers.shift();
      this.#now = next.at;
      next.fire();
    }
    this.#now = time;
  }
}

class Regions implements Scrubbed {
  readonly seen: { region: number; at: number }[] = [];
  closed = false;
  busy = false;
  readonly incomplete = new Set<number>();
  fails = false;

  constructor(
    readonly volume: string,
    readonly regionCount: number,
    private readonly clock: FastClock,
    readonly holdsData: (region: number) => boolean = () => true,
  ) {}

  get incompleteRegion(): number | undefined {
    return [...this.incomplete][0];
  }

  scrub(region: number): Promise<number> {
    this.seen.push({ region, at: this.clock.now() });
    if (this.fails) return Promise.reject(new HoldfastError('io-error', 'no'));
    this.incomplete.delete(region);
    return Promise.resolve(REGION_BYTES);
  }
}

function start(clock: FastClock, replicas: readonly Regions[], timing: Partial<ScrubTiming> = {}): Scrub {
  const io = { ...createNodeIo(), clock };
  const full = { scrubEveryMs: 7 * DAY_MS, scrubBytesPerSecond: 32 * 1024 * 1024, ...timing };
  const scrub = new Scrub(io, silentLog(), full, io.slab(4096), () => replicas.filter(({ closed }) => !closed));
  void scrub.run();
  return scrub;
}

const regionsOf = (replica: Regions): number[] => replica.seen.map(({ region }) => region);

describe('the scrub', () => {
  it('reads every region that was ever written once in its time, evenly', async () => {
    const clock = new FastClock();
    const replicas = [
      new Regions('vol-b', 100, clock),
      new Regions('vol-a', 60, clock, (region) => region % 2 === 0),
      new Regions('vol-c', 50, clock, () => false),
    ];
    start(clock, replicas);
    await clock.runUntil(7 * DAY_MS);
    expect(new Set(regionsOf(replicas[0] as Regions)).size).toBe(100);
    expect(new Set(regionsOf(replicas[1] as Regions)).size).toBe(30);
    expect(replicas[2]?.seen).toEqual([]);
    const count = replicas.reduce((sum, { seen }) => sum + seen.length, 0);
    expect(count).toBeGreaterThanOrEqual(130);
    expect(count).toBeLessThan(160);
    const halfway = replicas.flatMap(({ seen }) => seen).filter(({ at }) => at < 3.5 * DAY_MS).length;
    expect(halfway).toBeGreaterThan(60);
    expect(halfway).toBeLessThan(80);
  });

  it('keeps to its rate where the time is too short, and to half of it beside clients', async () => {
    for (const busy of [false, true]) {
      const clock = new FastClock();
      const replica = new Regions('vol-a', 1_000, clock);
      replica.busy = busy;
      start(clock, [replica], { scrubEveryMs: 1_000, scrubBytesPerSecond: REGION_BYTES });
      await clock.runUntil(20_000);
      expect(replica.seen.length).toBeGreaterThanOrEqual(busy ? 9 : 19);
      expect(replica.seen.length).toBeLessThanOrEqual(busy ? 11 : 21);
    }
  });

  it('comes to a region whose checksums are incomplete within seconds', async () => {
    const clock = new FastClock();
    const replica = new Regions('vol-a', 10, clock);
    start(clock, [replica]);
    await clock.runUntil(DAY_MS);
    replica.incomplete.add(3).add(4);
    const before = replica.seen.length;
    await clock.runUntil(DAY_MS + 10_000);
    expect(regionsOf(replica).slice(before, before + 2)).toEqual([3, 4]);
  });

  it('goes on with the other replicas where one fails', async () => {
    const clock = new FastClock();
    const [one, other] = [new Regions('vol-a', 5, clock), new Regions('vol-b', 5, clock)];
    one.fails = true;
    one.incomplete.add(2);
    start(clock, [one, other], { scrubEveryMs: 60_000 });
    await clock.runUntil(60_000);
    expect(new Set(regionsOf(other)).size).toBe(5);
    expect(one.seen.length).toBeLessThan(12);
  });

  it('finds replicas that come later, and does nothing once it is stopped, or told never to', async () => {
    const clock = new FastClock();
    const replicas: Regions[] = [];
    const scrub = start(clock, replicas, { scrubEveryMs: 60_000 });
    await clock.runUntil(DAY_MS);
    const late = new Regions('vol-a', 5, clock);
    replicas.push(late);
    await clock.runUntil(DAY_MS + 2 * 60_000);
    expect(new Set(regionsOf(late)).size).toBe(5);
    scrub.stop();
    const before = late.seen.length;
    await clock.runUntil(2 * DAY_MS);
    expect(late.seen.length).toBe(before);
    const never = new Regions('vol-b', 5, clock);
    start(clock, [never], { scrubEveryMs: 0 });
    await clock.runUntil(9 * DAY_MS);
    expect(never.seen).toEqual([]);
  });

  it('begins anywhere, so that short lives add up to whole rounds', async () => {
    const seen = new Set<number>();
    for (let life = 0; life < 60; life++) {
      const clock = new FastClock();
      const replica = new Regions('vol-a', 10, clock);
      const scrub = start(clock, [replica]);
      await clock.runUntil(1_000);
      scrub.stop();
      for (const region of regionsOf(replica)) seen.add(region);
    }
    expect(seen.size).toBeGreaterThan(7);
  });
});
