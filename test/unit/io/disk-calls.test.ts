import { afterEach, describe, expect, it, vi } from 'vitest';
import { CallsByDisk, DiskCalls } from '../../../src/io/disk-calls.js';
import { betterThreadPoolSize, callsOfDisk, callsOfThread, threadPoolSize } from '../../../src/io/thread-pool.js';

afterEach(() => {
  vi.unstubAllEnvs();
});

describe('calls to one disk', () => {
  it('begin at once up to the limit, and then in order, one for each that ends', () => {
    const calls = new DiskCalls(2);
    const begun: number[] = [];
    for (let call = 0; call < 5; call++) calls.begin(() => begun.push(call));
    expect(begun).toEqual([0, 1]);
    calls.end();
    expect(begun).toEqual([0, 1, 2]);
    for (let ended = 0; ended < 4; ended++) calls.end();
    expect(begun).toEqual([0, 1, 2, 3, 4]);
    calls.begin(() => begun.push(5));
    expect(begun.at(-1)).toBe(5);
  });

  it('come down to a limit that shrinks', () => {
    const calls = new DiskCalls(3);
    let begun = 0;
    for (let call = 0; call < 5; call++) calls.begin(() => begun++);
    calls.limit = 1;
    calls.end();
    calls.end();
    expect(begun).toBe(3);
    calls.end();
    expect(begun).toBe(4);
    calls.end();
    expect(begun).toBe(5);
  });

  it('go on after work that fails', async () => {
    const calls = new DiskCalls(1);
    const failing = calls.run(() => Promise.reject(new Error('no')));
    const next = calls.run(() => Promise.resolve('yes'));
    await expect(failing).rejects.toThrow('no');
    expect(await next).toBe('yes');
  });
});

describe('the calls of a thread', () => {
  it('are divided among its disks, told apart by path', () => {
    const calls = new CallsByDisk(12);
    expect(calls.of('/pool/a/x').limit).toBe(12);
    calls.add('/pool/a');
    calls.add('/pool/ab');
    calls.add('/pool/ab');
    expect(calls.of('/pool/a/x')).not.toBe(calls.of('/pool/ab/x'));
    expect(calls.of('/pool/a')).toBe(calls.of('/pool/a/replicas/v/data/0'));
    expect(calls.of('/pool/abc')).toBe(calls.of('/state/notes'));
    for (const path of ['/pool/a', '/pool/ab', '/state']) expect(calls.of(path).limit).toBe(4);
  });

  it('leave the main thread two calls for each disk when all disks hang', () => {
    for (const size of [1, 4, 32, 128, 1024, 5000]) {
      vi.stubEnv('UV_THREADPOOL_SIZE', String(size));
      for (let threads = 1; threads <= 64; threads++) {
        for (let disks = 1; disks <= 24; disks++) {
          if (betterThreadPoolSize(threads, disks) !== undefined) continue;
          const held = threads * (disks + 1) * callsOfDisk(callsOfThread(threads), disks);
          expect(threadPoolSize() - held).toBeGreaterThanOrEqual(2 * disks);
        }
      }
    }
  });

  it('are too few where the pool is small, and enough in the size that is told', () => {
    vi.stubEnv('UV_THREADPOOL_SIZE', '32');
    expect(betterThreadPoolSize(2, 4)).toBeUndefined();
    const better = betterThreadPoolSize(2, 8);
    vi.stubEnv('UV_THREADPOOL_SIZE', String(better));
    expect(betterThreadPoolSize(2, 8)).toBeUndefined();
    vi.stubEnv('UV_THREADPOOL_SIZE', undefined);
    expect(threadPoolSize()).toBe(4);
    expect(betterThreadPoolSize(1, 1)).toBeDefined();
  });
});
