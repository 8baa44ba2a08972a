import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Schedule } from '../../sim/schedule.js';

describe('a schedule', () => {
  it('fires what was not cancelled, in order of time and then of planning', async () => {
    const plans = fc.array(fc.record({ delay: fc.nat(20), cancelled: fc.boolean() }), { maxLength: 3000 });
    await fc.assert(
      fc.asyncProperty(plans, async (planned) => {
        const schedule = new Schedule();
        const fired: number[] = [];
        const cancels = planned.map(({ delay }, index) => schedule.after(delay, () => fired.push(index)));
        planned.forEach(({ cancelled }, index) => {
          if (cancelled) cancels[index]?.();
          if (cancelled) cancels[index]?.();
        });
        await schedule.run({ untilMs: Infinity });
        const expected = planned
          .map(({ delay, cancelled }, index) => ({ delay, cancelled, index }))
          .filter(({ cancelled }) => !cancelled)
          .sort((one, other) => one.delay - other.delay || one.index - other.index)
          .map(({ index }) => index);
        expect(fired).toEqual(expected);
        expect(schedule.events).toBe(expected.length);
      }),
      { numRuns: 30 },
    );
  });

  it('lets every promise reaction run before the next event, even at the same time', async () => {
    const schedule = new Schedule();
    const seen: string[] = [];
    for (const name of ['a', 'b', 'c']) {
      schedule.after(1, () => {
        void (async () => {
          for (let turn = 0; turn < 50; turn++) await Promise.resolve();
          seen.push(name);
        })();
        seen.push(name.toUpperCase());
      });
    }
    await schedule.run({ untilMs: Infinity });
    expect(seen.join('')).toBe('AaBbCc');
  });

  it('stops at its end of time, and goes on from there', async () => {
    const schedule = new Schedule();
    const fired: number[] = [];
    for (const delay of [1, 5, 5.5]) schedule.after(delay, () => fired.push(schedule.now));
    await schedule.run({ untilMs: 5 });
    expect([fired, schedule.now]).toEqual([[1, 5], 5]);
    schedule.after(0.2, () => fired.push(schedule.now));
    await schedule.run({ untilMs: 100 });
    expect([fired, schedule.now]).toEqual([[1, 5, 5.2, 5.5], 100]);
  });

  it('stops as soon as it is told that it is done', async () => {
    const schedule = new Schedule();
    let count = 0;
    const tick = (): void => {
      count++;
      schedule.after(1, tick);
    };
    tick();
    await schedule.run({ untilMs: Infinity, done: () => count === 1000 });
    expect([count, schedule.now]).toEqual([1000, 999]);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(count).toBe(1000);
  });

  it('fails with the first failure it is given, or with what an event throws, and can go on', async () => {
    const schedule = new Schedule();
    schedule.after(1, () => {
      schedule.fail(new Error('first'));
      schedule.fail(new Error('second'));
    });
    schedule.after(2, () => {
      throw new Error('thrown');
    });
    await expect(schedule.run({ untilMs: Infinity })).rejects.toThrow('first');
    expect(schedule.now).toBe(1);
    await expect(schedule.run({ untilMs: Infinity })).rejects.toThrow('thrown');
    await schedule.run({ untilMs: Infinity });
    expect(schedule.now).toBe(2);
  });

  it('does not keep what was cancelled', async () => {
    const schedule = new Schedule();
    let left = 100_000;
    // A timeout for each of many short steps, as requests have it.
    const step = (): void => {
      const cancel = schedule.after(1e9, () => schedule.fail(new Error('too late')));
      schedule.after(1, () => {
        cancel();
        if (--left > 0) step();
      });
    };
    step();
    await schedule.run({ untilMs: Infinity });
    expect([left, schedule.now]).toEqual([0, 100_000]);
  });

  it('has the same trace for the same events only', async () => {
    const trace = async (delays: number[]): Promise<number> => {
      const schedule = new Schedule();
      for (const delay of delays) schedule.after(delay, () => undefined);
      await schedule.run({ untilMs: Infinity });
      return schedule.trace;
    };
    expect(await trace([1, 2, 3])).toBe(await trace([1, 2, 3]));
    expect(await trace([1, 2, 3])).not.toBe(await trace([1, 3, 2]));
    expect(await trace([1, 2, 3])).not.toBe(await trace([1, 2, 3.001]));
  });
});
