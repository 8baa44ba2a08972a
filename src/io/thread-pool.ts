/**
 * Every call to a file waits in a thread of libuv's pool, and all threads of the process share the one pool. A disk
 * that hangs keeps the threads that wait for it, so no disk may ever get all of them:
 *
 *     threads of the pool ÷ (data threads + 1, for the main thread) = calls under way of one data thread
 *     calls of one data thread ÷ (its disks + 1, for all other places) = its calls under way on one disk
 *
 * So whichever disks hang, each other disk keeps its share, and the main thread its own (a check and a removal on each
 * disk, gRPC's name look-ups, mounts). The division is fixed rather than on demand, since a thread that is lent to a
 * disk does not come back when the disk hangs. Calls above the bound wait in JavaScript (disk-calls.ts).
 */

/** libuv's own, where the environment says nothing. */
const STANDARD_THREADS = 4;
/** libuv takes no more. */
const MAX_THREADS = 1024;
/** koffi refuses a call when 256 are waiting. */
const MAX_CALLS = 192;
/** So that one slow call does not hold up all others of its disk, and two of the main thread for each disk fit too. */
const LEAST_CALLS = 2;
/** Enough for a disk with a queue. */
const GOOD_CALLS = 8;

/** Threads of this process's pool. libuv reads the variable when it starts, so it must not be set from within. */
export function threadPoolSize(): number {
  const set = process.env['UV_THREADPOOL_SIZE'];
  if (set === undefined) return STANDARD_THREADS;
  return Math.min(Math.max(Number.parseInt(set, 10) || 1, 1), MAX_THREADS);
}

/** Calls to files that each of a process's `threads` data threads may have under way; 0: that the main thread may. */
export function callsOfThread(threads: number): number {
  return Math.min(Math.floor(threadPoolSize() / (threads + 1)), MAX_CALLS);
}

/** Calls that one of `disks` disks may have under way, of `calls` of a thread. Never none, which would be for ever. */
export function callsOfDisk(calls: number, disks: number): number {
  return Math.max(Math.floor(calls / (disks + 1)), 1);
}

/** The size to set where the pool is too small for disks to be independent of each other; else undefined. */
export function betterThreadPoolSize(threads: number, disks: number): number | undefined {
  if (callsOfThread(threads) >= LEAST_CALLS * (disks + 1)) return undefined;
  return Math.min(GOOD_CALLS * (disks + 1) * (threads + 1), MAX_THREADS);
}
