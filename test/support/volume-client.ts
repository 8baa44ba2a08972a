import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf, type ErrorCode } from '../../src/base/errors.js';
import { silentLog } from '../../src/base/log.js';
import { SteadyStage } from '../../src/device/steady-stage.js';
import type { Address, Slab } from '../../src/io/io.js';
import { createNodeIo } from '../../src/io/node-io.js';
import { NbdClient } from '../../src/nbd/client.js';
import { BLOCK_BYTES, decodeBlock, fillBlocks, type Operation } from '../history/history.js';
import type { Recorder } from './recorder.js';

const SLAB_BYTES = 4 * 1024 * 1024;
const CONNECT_TIMEOUT_MS = 5_000;
const REGION_BLOCKS = 1_024;
/** Areas of some blocks are used, each in a region of its own and across its end. */
const AREA_BLOCKS = 6;
const AREAS = 6;
const LOOPS = 8;
/** Behind the areas. */
const FIRST_UNUSED_BLOCK = (AREAS + 1) * REGION_BLOCKS;
const COLD_BLOCKS = 4;
const COLD_EVERY_MS = 100;
/** Of one read. */
const MOST_BLOCKS = 256;
const PAUSE_AFTER_FAILURE_MS = 20;

/** Where a volume is served: of `nbd+unix:///EXPORT?socket=PATH`. */
export function targetOf(uri: string): { address: Address; exportName: string } {
  const { pathname, searchParams } = new URL(uri);
  return {
    address: { kind: 'unix', path: searchParams.get('socket') ?? '' },
    exportName: decodeURIComponent(pathname.slice(1)),
  };
}

/**
 * A client of an attached volume that reads, writes, trims and flushes at random, several requests at once, and has it
 * all written down. As a kernel does, it keeps no two changes of one block under way, waits while the export is away,
 * and sends what was not answered again.
 */
export class VolumeClient {
  readonly #stage: SteadyStage;
  readonly #slab: Slab;
  readonly #busy = new Set<number>();
  #loops: Promise<void>[] = [];
  #stopped = false;
  #closed = false;
  /** Changes that were acknowledged. */
  acknowledged = 0;
  failed = 0;
  /** How the last one that failed was answered. */
  lastFailure: ErrorCode | undefined;
  /** Blocks from here on are in use by writeUnused. */
  #unused: number;

  private constructor(
    private readonly recorder: Recorder,
    readonly attachment: number,
    uri: string,
    sizeBytes: number,
  ) {
    const io = createNodeIo();
    const target = targetOf(uri);
    this.#unused = sizeBytes / BLOCK_BYTES;
    this.#slab = io.slab(SLAB_BYTES);
    this.#stage = new SteadyStage({
      connect: () => NbdClient.connect({ io, ...target, timeoutMs: CONNECT_TIMEOUT_MS }),
      clock: io.clock,
      log: silentLog(),
      sizeBytes,
    });
  }

  /** Of the volume as it is attached now. */
  static async open(recorder: Recorder, attachment: number, uri: string, sizeBytes: number): Promise<VolumeClient> {
    const client = new VolumeClient(recorder, attachment, uri, sizeBytes);
    await client.#stage.open();
    return client;
  }

  /** Begins to use the volume until `stop`. */
  start(): this {
    this.#loops = Array.from({ length: LOOPS }, () => this.#loop());
    this.#loops.push(this.#writeCold());
    return this;
  }

  /** Begins nothing more and waits for what is under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#loops);
  }

  /** Gives up; what is under way has no answer. Repeats do nothing. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#stopped = true;
    this.#stage.fail('the client went away');
    await Promise.all(this.#loops);
  }

  /** Writes a block of each area; resolves to how many of these writes were acknowledged. */
  async writeAll(): Promise<number> {
    const done = await Promise.all(firstBlocks().map((block) => this.#change('write', block, 1, false)));
    return done.filter((one) => one).length;
  }

  /** Writes blocks that nothing else uses, from the volume's last one down; resolves to whether that was acknowledged. */
  writeUnused(blockCount: number): Promise<boolean> {
    this.#unused -= blockCount;
    return this.#change('write', this.#unused, blockCount, false);
  }

  /** The first of the blocks that writeUnused wrote last. */
  get coldBlock(): number {
    return this.#unused;
  }

  /** Reads all blocks that are used. */
  async readAll(): Promise<void> {
    for (const block of firstBlocks()) await this.read(block, AREA_BLOCKS);
    const end = this.#stage.sizeBytes / BLOCK_BYTES;
    for (let block = this.#unused; block < end; block += MOST_BLOCKS) {
      await this.read(block, Math.min(MOST_BLOCKS, end - block));
    }
  }

  flush(): Promise<boolean> {
    return this.#carry({ kind: 'flush', firstBlock: 0, blockCount: 0, fua: false }, async () => {
      await this.#stage.flush();
      return [];
    });
  }

  async #loop(): Promise<void> {
    while (!this.#stopped) {
      if (!(await this.#step())) await sleep(PAUSE_AFTER_FAILURE_MS);
    }
  }

  /** What is written once stays as it is, so what a replica misses is not made good by the next write. */
  async #writeCold(): Promise<void> {
    while (!this.#stopped && this.#unused > FIRST_UNUSED_BLOCK) {
      await this.writeUnused(COLD_BLOCKS);
      await sleep(COLD_EVERY_MS);
    }
  }

  #step(): Promise<boolean> {
    const area = below(AREAS);
    const offset = below(AREA_BLOCKS);
    const block = (firstBlocks()[area] ?? 0) + offset;
    const count = 1 + below(AREA_BLOCKS - offset);
    const choice = below(100);
    if (choice < 8) return this.flush();
    if (choice < 45 || this.#busy.has(area)) return this.read(block, count);
    this.#busy.add(area);
    const changed = this.#change(choice < 90 ? 'write' : 'trim', block, count, below(10) === 0);
    return changed.finally(() => this.#busy.delete(area));
  }

  async #change(kind: 'write' | 'trim', firstBlock: number, blockCount: number, fua: boolean): Promise<boolean> {
    const [at, length] = [firstBlock * BLOCK_BYTES, blockCount * BLOCK_BYTES];
    const done = await this.#carry({ kind, firstBlock, blockCount, fua }, async ({ value }) => {
      if (kind === 'trim') {
        await this.#stage.trim(at, length, fua);
        return [];
      }
      const lease = await this.#slab.take(length);
      try {
        fillBlocks(lease.bytes, value, firstBlock);
        await this.#stage.write(at, lease, fua);
        return [];
      } finally {
        lease.release();
      }
    });
    if (done) this.acknowledged++;
    return done;
  }

  /** Resolves to whether the blocks could be read. */
  read(firstBlock: number, blockCount: number): Promise<boolean> {
    return this.#carry({ kind: 'read', firstBlock, blockCount, fua: false }, async () => {
      const lease = await this.#stage.read(firstBlock * BLOCK_BYTES, blockCount * BLOCK_BYTES, this.#slab);
      try {
        return Array.from({ length: blockCount }, (_, index) =>
          decodeBlock(lease.bytes.subarray(index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES), firstBlock + index),
        );
      } finally {
        lease.release();
      }
    });
  }

  /** Writes an operation down, with its answer. */
  async #carry(
    begun: Pick<Operation, 'kind' | 'firstBlock' | 'blockCount' | 'fua'>,
    act: (operation: Operation) => Promise<Operation['values']>,
  ): Promise<boolean> {
    const operation = this.recorder.begin(this.attachment, begun);
    try {
      this.recorder.end(operation, 'done', await act(operation));
      return true;
    } catch (error) {
      // One that was under way when the client went away has no answer.
      if (!this.#closed) this.recorder.end(operation, 'failed');
      this.failed++;
      this.lastFailure = codeOf(error);
      return false;
    }
  }
}

/** Where the areas begin; every other one spans the end of a region. */
function firstBlocks(): number[] {
  return Array.from(
    { length: AREAS },
    (_, area) => (area + 1) * REGION_BLOCKS - (area % 2 === 0 ? AREA_BLOCKS / 2 : 0),
  );
}

function below(limit: number): number {
  return Math.floor(Math.random() * limit);
}
