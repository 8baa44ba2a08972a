import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AssertionFailed } from '../../../src/base/assert.js';
import type { Lease } from '../../../src/io/io.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { addressOf } from '../../../src/io/node-system-calls.js';

const PAGE = 4096;
const io = createNodeIo();

/** Whether a promise has settled, once everything that is ready has run. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => (settled = true));
  await new Promise((resolve) => setImmediate(resolve));
  return settled;
}

describe('slab', () => {
  it('lends page-aligned pieces of just the length asked for', async () => {
    const slab = io.slab(64 * PAGE);
    for (const length of [1, PAGE - 1, PAGE, PAGE + 1, 10 * PAGE]) {
      const lease = await slab.take(length);
      expect(lease.bytes.length).toBe(length);
      const { buffer, byteOffset } = lease.bytes;
      expect(buffer).toBeInstanceOf(ArrayBuffer);
      expect((addressOf(buffer as ArrayBuffer) + BigInt(byteOffset)) % BigInt(PAGE)).toBe(0n);
    }
    expect(slab.usedBytes).toBe((1 + 1 + 1 + 2 + 10) * PAGE);
  });

  it('refuses a length that it can never lend', async () => {
    const slab = io.slab(4 * PAGE);
    for (const length of [0, -1, 1.5, Number.NaN, 4 * PAGE + 1]) {
      await expect(slab.take(length)).rejects.toMatchObject({ code: 'out-of-range' });
    }
  });

  it('counts who had to wait', async () => {
    const slab = io.slab(2 * PAGE);
    const first = await slab.take(2 * PAGE);
    expect([slab.waiting, slab.waits]).toEqual([0, 0]);
    const second = slab.take(PAGE);
    expect([slab.waiting, slab.waits]).toEqual([1, 1]);
    first.release();
    (await second).release();
    expect([slab.waiting, slab.waits]).toEqual([0, 1]);
  });

  it('keeps the order of those who wait, so that small requests do not overtake a big one', async () => {
    const slab = io.slab(4 * PAGE);
    const first = await slab.take(PAGE);
    const second = await slab.take(2 * PAGE);
    const big = slab.take(4 * PAGE);
    const small = slab.take(PAGE);
    first.release();
    expect(await isSettled(big)).toBe(false);
    expect(await isSettled(small)).toBe(false);
    second.release();
    (await big).release();
    (await small).release();
    expect(slab.usedBytes).toBe(0);
  });

  it('takes a piece back when the last of its users has released it, and not twice', async () => {
    const slab = io.slab(PAGE);
    const lease = await slab.take(10);
    lease.retain();
    lease.release();
    expect(slab.usedBytes).toBe(PAGE);
    lease.release();
    expect(slab.usedBytes).toBe(0);
    expect(() => lease.release()).toThrow(AssertionFailed);
    expect(() => lease.retain()).toThrow(AssertionFailed);
  });

  it('never lends a byte twice, joins what comes back, and serves everyone who waits', async () => {
    const steps = fc.array(fc.record({ length: fc.integer({ min: 1, max: 20 * PAGE }), release: fc.nat(30) }), {
      maxLength: 200,
    });
    await fc.assert(
      fc.asyncProperty(steps, async (run) => {
        const slab = io.slab(32 * PAGE);
        const held: { lease: Lease; tag: number }[] = [];
        const waits: Promise<unknown>[] = [];
        let tag = 0;
        const give = (at: number): void => {
          const [gone] = held.splice(at % Math.max(held.length, 1), 1);
          if (gone === undefined) return;
          expect(Buffer.alloc(gone.lease.bytes.length, gone.tag).equals(gone.lease.bytes)).toBe(true);
          gone.lease.release();
        };
        for (const { length, release } of run) {
          waits.push(
            slab.take(length).then((lease) => {
              tag = (tag + 1) % 256;
              lease.bytes.fill(tag);
              held.push({ lease, tag });
            }),
          );
          await Promise.resolve();
          if (release < held.length) give(release);
          expect(slab.usedBytes).toBeLessThanOrEqual(slab.capacityBytes);
        }
        for (;;) {
          // Whoever waited may hold something now.
          await new Promise((resolve) => setImmediate(resolve));
          if (held.length === 0) break;
          give(0);
        }
        await Promise.all(waits);
        expect(slab.usedBytes).toBe(0);
        (await slab.take(slab.capacityBytes)).release();
      }),
      { numRuns: 60 },
    );
  });
});
