import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../src/io/io.js';
import { ResyncBounds } from '../../../src/writer/resync-bounds.js';

/** Time that passes only while somebody sleeps. */
class SleepClock implements Clock {
  #now = 0;

  now(): number {
    return this.#now;
  }

  timer(): () => void {
    throw new Error('the bounds keep no timers');
  }

  sleep(delayMs: number): Promise<void> {
    const until = this.#now + delayMs;
    return Promise.resolve().then(() => {
      this.#now = Math.max(this.#now, until);
    });
  }
}

describe('the resyncs of a data path', () => {
  it('are a bounded number at once, each in its turn, whatever order they end in', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 20 }),
        async (atOnce, lengths) => {
          const bounds = new ResyncBounds(new SleepClock(), atOnce, 1_000, () => false);
          let running = 0;
          const begun: number[] = [];
          await Promise.all(
            lengths.map(async (length, index) => {
              const end = await bounds.take();
              begun.push(index);
              running++;
              expect(running).toBeLessThanOrEqual(atOnce);
              for (let i = 0; i < length; i++) await Promise.resolve();
              running--;
              end();
              end();
            }),
          );
          expect(begun).toEqual(lengths.map((_length, index) => index));
          expect(bounds.waiting).toBe(0);
        },
      ),
    );
  });

  it('share one rate, however many there are, and half of it while clients wait', async () => {
    const copy = async (count: number, busy: boolean): Promise<number> => {
      const clock = new SleepClock();
      const bounds = new ResyncBounds(clock, 9, 1_000_000, () => busy);
      const one = async (): Promise<void> => {
        for (let i = 0; i < 10; i++) await bounds.pace(100_000);
      };
      await Promise.all(Array.from({ length: count }, one));
      return clock.now();
    };
    expect(await copy(1, false)).toBeCloseTo(1_000, -1);
    expect(await copy(4, false)).toBeCloseTo(4_000, -1);
    expect(await copy(1, true)).toBeCloseTo(2_000, -1);
  });

  it('do not save up what they did not use', async () => {
    const clock = new SleepClock();
    const bounds = new ResyncBounds(clock, 1, 1_000_000, () => false);
    await bounds.pace(1_000_000);
    await clock.sleep(60_000);
    const before = clock.now();
    await bounds.pace(500_000);
    expect(clock.now() - before).toBeCloseTo(500, -1);
  });
});
