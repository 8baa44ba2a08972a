import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import { assert } from '../base/assert.js';
import { PAGE_BYTES, type Io, type Slab } from './io.js';
import { NodeFiles } from './node-files.js';
import { NodeNetwork } from './node-network.js';
import { NodeSlab } from './node-slab.js';
import { addressOf } from './node-system-calls.js';
import { callsOfThread } from './thread-pool.js';

export interface NodeIo extends Io {
  readonly files: NodeFiles;
}

/** The I/O contract on Node's own fs and net. `fileCalls`: calls to files under way at once (thread-pool.ts). */
export function createNodeIo({ fileCalls = callsOfThread(0) }: { fileCalls?: number } = {}): NodeIo {
  return {
    files: new NodeFiles(fileCalls),
    network: new NodeNetwork(),
    clock: {
      now: () => performance.now(),
      timer: (delayMs, fire) => {
        const timer = setTimeout(fire, delayMs);
        return () => clearTimeout(timer);
      },
      sleep: async (delayMs) => {
        await sleep(delayMs);
      },
    },
    random: {
      hex: (count) => randomBytes(count).toString('hex'),
      fraction: () => Math.random(),
    },
    slab: allocateSlab,
    digest: (bytes) => createHash('sha256').update(bytes).digest('hex'),
    checksum: (bytes) => crc32(bytes),
  };
}

function allocateSlab(bytes: number): Slab {
  const length = Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
  assert(length >= PAGE_BYTES, 'a slab has at least one page');
  const memory = new ArrayBuffer(length + PAGE_BYTES);
  const misaligned = Number(addressOf(memory) % BigInt(PAGE_BYTES));
  const aligned = new Uint8Array(memory, misaligned === 0 ? 0 : PAGE_BYTES - misaligned, length);
  // Writing makes the kernel give the memory now, not under pressure later.
  aligned.fill(0);
  return new NodeSlab(aligned);
}
