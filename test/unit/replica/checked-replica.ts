import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../../src/base/log.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { Layout } from '../../../src/model/layout.js';
import { Replica } from '../../../src/replica/replica.js';
import { RowCache } from '../../../src/replica/row-cache.js';
import { type BeforeOperation, faultyIo } from '../../support/faulty-files.js';

export const BLOCK = 4096;
export const BLOCKS_PER_REGION = 8;
export const REGIONS = 12;
export const BLOCKS = REGIONS * BLOCKS_PER_REGION;
/** Regions of 32 KiB, so that rows come and go. */
export const SMALL = new Layout(BLOCKS_PER_REGION * BLOCK, 4 * BLOCKS_PER_REGION * BLOCK, 2 * BLOCK);

/** A replica on real files, with what every block must hold beside it. */
export class CheckedReplica {
  readonly #io;
  readonly #slab = createNodeIo().slab(1024 * 1024);
  #replica: Replica | undefined;
  readonly model: number[] = Array.from({ length: BLOCKS }, () => 0);
  #boot = 0;
  stamp = 1;

  private constructor(
    readonly directory: string,
    /** Rows in memory. */
    private readonly rows: number,
    before: BeforeOperation,
  ) {
    this.#io = faultyIo(createNodeIo(), before);
  }

  static async create(rows: number, before: BeforeOperation = () => undefined): Promise<CheckedReplica> {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-checked-'));
    const volume = `vol-${'c'.repeat(32)}`;
    const made = new CheckedReplica(directory, rows, before);
    await Replica.create(createNodeIo(), SMALL, made.path, {
      volume,
      capacityBytes: BLOCKS * BLOCK,
      incarnation: 'boot',
    });
    await made.start();
    return made;
  }

  get path(): string {
    return join(this.directory, 'replica');
  }

  get replica(): Replica {
    if (!this.#replica) throw new Error('the replica is not open');
    return this.#replica;
  }

  /** `rows`: as many in memory, if it is another number than before. */
  async start(rows = this.rows): Promise<void> {
    const parts = { disk: 'disk-1', rows: new RowCache(this.#io, SMALL, rows) };
    this.#replica = await Replica.open(this.#io, silentLog(), SMALL, this.path, `boot-${this.#boot}`, parts);
  }

  /** As SIGKILL does: the files end as they are. */
  async kill(): Promise<void> {
    await this.#replica?.abandon();
    this.#replica = undefined;
  }

  async stop(): Promise<void> {
    await this.replica.close();
    this.#replica = undefined;
  }

  async write(first: number, count: number, value: number): Promise<void> {
    const lease = await this.#slab.take(count * BLOCK);
    lease.bytes.fill(value);
    try {
      await this.replica.write(first * BLOCK, lease, false);
      this.model.fill(value, first, first + count);
    } finally {
      lease.release();
    }
  }

  async trim(first: number, count: number): Promise<void> {
    await this.replica.trim(first * BLOCK, count * BLOCK, false);
    this.model.fill(0, first, first + count);
  }

  /** The first byte of each block; throws as the replica does. */
  async read(first: number, count: number): Promise<number[]> {
    const lease = await this.replica.read(first * BLOCK, count * BLOCK, this.#slab);
    const values = Array.from({ length: count }, (_, index) => lease.bytes[index * BLOCK] ?? -1);
    lease.release();
    return values;
  }

  /** Flushed, then closed with a new stamp, as the writer does it. */
  async closeRegions(regions: readonly number[] = [...Array(REGIONS).keys()]): Promise<void> {
    await this.replica.flush();
    const stamp = ++this.stamp;
    await this.replica.closeRegions(regions.map((region) => ({ region, stamp })));
  }

  async scrub(): Promise<void> {
    for (let region = 0; region < REGIONS; region++) await this.replica.scrub(region, this.#slab);
  }

  async digestStates(first: number, count: number): Promise<string[]> {
    const states: string[] = [];
    for (let block = first; block < first + count; block++) {
      const [digest] = await this.replica.digests(block * BLOCK, BLOCK, BLOCK, this.#slab);
      states.push(digest?.state ?? '');
    }
    return states;
  }

  /** Blocks that the replica knows to be bad. */
  damaged(): number[] {
    return this.replica.damage
      .ranges(1_000)
      .flatMap(({ offset, length }) => Array.from({ length: length / BLOCK }, (_, index) => offset / BLOCK + index));
  }

  /** One bit of a block turns over on the disk. */
  async rot(block: number, bit: number): Promise<void> {
    const blocksPerSlice = SMALL.sliceBytes / BLOCK;
    const name = Math.floor(block / blocksPerSlice)
      .toString(16)
      .padStart(8, '0');
    await flipBit(join(this.path, 'data', name), (block % blocksPerSlice) * BLOCK + Math.floor(bit / 8), bit % 8);
  }

  /** The region table's first sector rots. */
  rotTable(): Promise<void> {
    return flipBit(join(this.path, 'regions'), 0, 0);
  }

  async remove(): Promise<void> {
    await this.kill();
    await rm(this.directory, { recursive: true, force: true });
  }
}

export async function flipBit(path: string, at: number, bit: number): Promise<void> {
  const file = await open(path, 'r+');
  try {
    const byte = Buffer.alloc(1);
    await file.read(byte, 0, 1, at);
    byte.writeUInt8(byte.readUInt8(0) ^ (1 << bit), 0);
    await file.write(byte, 0, 1, at);
    await file.sync();
  } finally {
    await file.close();
  }
}
