import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { present } from '../../../src/base/assert.js';
import { RangeLocks, type Release } from '../../../src/writer/range-locks.js';

interface Request {
  readonly offset: number;
  readonly length: number;
  readonly mode: 'shared' | 'exclusive';
}

const request = fc.record({
  offset: fc.nat(20),
  length: fc.integer({ min: 1, max: 8 }),
  mode: fc.constantFrom<'shared' | 'exclusive'>('shared', 'exclusive'),
});

function conflict(one: Request, other: Request): boolean {
  const overlap = one.offset < other.offset + other.length && other.offset < one.offset + one.length;
  return overlap && (one.mode === 'exclusive' || other.mode === 'exclusive');
}

function at<T>(list: readonly T[], index: number): T {
  return present(list[index], 'the index lies in the list');
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('range locks', () => {
  it('never let two conflicting requests in, keep their order, and let all in at last', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(request, { maxLength: 30 }), fc.infiniteStream(fc.nat()), async (requests, choices) => {
        const locks = new RangeLocks();
        const held = new Map<number, Release>();
        const order: number[] = [];
        const clash = (one: number, other: number): boolean => conflict(at(requests, one), at(requests, other));
        for (const [index, { offset, length, mode }] of requests.entries()) {
          const enter = (release: Release): void => {
            for (const other of held.keys()) expect(clash(index, other)).toBe(false);
            held.set(index, release);
            order.push(index);
          };
          const got = locks.acquire(offset, length, mode);
          if (typeof got === 'function') enter(got);
          else void got.then(enter);
        }
        while (held.size > 0) {
          const victims = [...held];
          const [index, release] = at(victims, (choices.next().value ?? 0) % victims.length);
          held.delete(index);
          release();
          await settled();
        }
        expect([...order].sort((a, b) => a - b)).toEqual(requests.map((_, index) => index));
        for (const [place, index] of order.entries()) {
          for (const later of order.slice(place + 1)) {
            if (later < index) expect(clash(later, index)).toBe(false);
          }
        }
        expect(locks.size).toBe(0);
      }),
      { numRuns: 200 },
    );
  });

  it('take several ranges as one arrival, so that two takers can not wait for each other', async () => {
    const locks = new RangeLocks();
    const forward = locks.acquireAll(
      [
        { offset: 0, length: 4 },
        { offset: 8, length: 4 },
      ],
      'exclusive',
    );
    const backward = locks.acquireAll(
      [
        { offset: 8, length: 4 },
        { offset: 0, length: 4 },
      ],
      'exclusive',
    );
    (await forward)();
    (await backward)();
    expect(locks.size).toBe(0);
  });
});
