import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Prng } from '../../sim/prng.js';

const draw = (random: Prng, count: number): number[] => Array.from({ length: count }, () => random.fraction());

describe('random numbers of a run', () => {
  it('are the same for the same seed', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }), (seed) => {
        const [one, other] = [new Prng(seed), new Prng(seed)];
        expect(draw(one, 10)).toEqual(draw(other, 10));
        expect(one.hex(7)).toBe(other.hex(7));
        expect(one.shuffled([1, 2, 3, 4])).toEqual(other.shuffled([1, 2, 3, 4]));
        expect(draw(one.fork(), 5)).toEqual(draw(other.fork(), 5));
      }),
    );
  });

  it('of neighbouring seeds have nothing to do with each other, from the first on', () => {
    const seeds = Array.from({ length: 4000 }, (_, seed) => seed);
    for (const index of [0, 1, 2, 10]) {
      const values = seeds.map((seed) => draw(new Prng(seed), index + 1)[index] ?? 0);
      expect(mean(values)).toBeCloseTo(0.5, 1);
      // Neighbours do not go together.
      const together = values.slice(1).map((value, at) => (value - 0.5) * ((values[at] ?? 0) - 0.5));
      expect(Math.abs(mean(together))).toBeLessThan(0.006);
      expect(new Set(values).size).toBe(values.length);
    }
    expect(new Set(seeds.map((seed) => new Prng(seed * 2 ** 32).fraction())).size).toBe(seeds.length);
  });

  it('are within their bounds and reach all of them', () => {
    const random = new Prng(1);
    expect(new Set(Array.from({ length: 400 }, () => random.below(5)))).toEqual(new Set([0, 1, 2, 3, 4]));
    for (let round = 0; round < 200; round++) {
      const wide = random.below(2 ** 50);
      expect(Number.isInteger(wide) && wide >= 0 && wide < 2 ** 50).toBe(true);
      const real = random.between(-3, 5);
      expect(real >= -3 && real < 5).toBe(true);
    }
    expect(random.hex(5)).toMatch(/^[0-9a-f]{10}$/);
    expect(random.shuffled(['a', 'b', 'c']).sort()).toEqual(['a', 'b', 'c']);
    expect([random.chance(0), random.chance(1)]).toEqual([false, true]);
    const hits = Array.from({ length: 4000 }, () => random.chance(0.1)).filter(Boolean).length;
    expect(hits / 4000).toBeCloseTo(0.1, 1);
  });

  it('of a fork leave those of its origin alone', () => {
    const [one, other] = [new Prng(3), new Prng(3)];
    const fork = one.fork();
    draw(fork, 100);
    other.fork();
    expect(draw(one, 10)).toEqual(draw(other, 10));
    expect(draw(fork, 10)).not.toEqual(draw(one, 10));
  });
});

function mean(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
