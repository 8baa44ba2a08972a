import { GroupCommit } from '../base/group-commit.js';
import type { Range } from '../model/layout.js';
import { BLOCK_BYTES } from './block-checksums.js';

/** Beyond this many blocks no more are remembered: they are found again once these are mended. */
const MAX_BLOCKS = 16_384;

/** Ranges that outlive the process; they must fit in the header. */
const MAX_KEPT = 128;

/**
 * Blocks of a replica that are known to be bad: what is there is not what was written, or can't be read. Any write of
 * such a block mends it.
 *
 * The header keeps the former, because the checksums of an open region are lost in a crash: a bad block in it would
 * count as good afterwards. A block that could not be read is good when it can be read again.
 */
export class Damage {
  readonly #blocks: Set<number>;
  readonly #unreadable = new Set<number>();
  #kept: string;
  readonly #keeping: GroupCommit;

  constructor(
    /** Pairs of a first block and a count, as in the header. */
    kept: readonly number[],
    /** Makes such pairs durable. */
    keep: (ranges: number[]) => Promise<void>,
  ) {
    this.#blocks = new Set();
    for (let at = 0; at + 1 < kept.length; at += 2) {
      for (let index = 0; index < (kept[at + 1] ?? 0); index++) this.#blocks.add((kept[at] ?? 0) + index);
    }
    this.#kept = JSON.stringify(kept);
    this.#keeping = new GroupCommit(async () => {
      const ranges = this.#runs(MAX_KEPT, false).flat();
      const text = JSON.stringify(ranges);
      if (text === this.#kept) return;
      await keep(ranges);
      this.#kept = text;
    });
  }

  /** How many. */
  get count(): number {
    return this.#blocks.size + this.#unreadable.size;
  }

  /** Is what stands there known to be wrong? */
  has(block: number): boolean {
    return this.#blocks.has(block);
  }

  /** Resolves to those that were not known, when all are durable. */
  async add(blocks: readonly number[]): Promise<number[]> {
    const found = blocks.filter((block) => !this.#blocks.has(block)).slice(0, MAX_BLOCKS - this.#blocks.size);
    for (const block of found) this.#blocks.add(block);
    if (found.length > 0) await this.#keeping.run();
    return found;
  }

  /** Could not be read; resolves to those that were not known. */
  addUnreadable(blocks: readonly number[]): number[] {
    const found = blocks.filter((block) => !this.#blocks.has(block) && !this.#unreadable.has(block));
    for (const block of found.slice(0, MAX_BLOCKS - this.count)) this.#unreadable.add(block);
    return found;
  }

  /** The range was read. */
  readable(offset: number, length: number): void {
    for (const block of within(this.#unreadable, offset, length)) this.#unreadable.delete(block);
  }

  /** Is any of the range bad? */
  touches(offset: number, length: number): boolean {
    return [this.#blocks, this.#unreadable].some((blocks) => within(blocks, offset, length).length > 0);
  }

  /**
   * The range is good. Undefined where that is no news; else resolves when it is durable. What was written over it must
   * be durable before.
   */
  mend(offset: number, length: number): Promise<void> | undefined {
    this.readable(offset, length);
    const mended = within(this.#blocks, offset, length);
    for (const block of mended) this.#blocks.delete(block);
    return mended.length === 0 ? undefined : this.#keeping.run();
  }

  /** The first `limit` ranges. */
  ranges(limit: number): Range[] {
    return this.#runs(limit, true).map(([first, count]) => ({
      offset: first * BLOCK_BYTES,
      length: count * BLOCK_BYTES,
    }));
  }

  /** `all`: those too that could not be read. */
  #runs(limit: number, all: boolean): [number, number][] {
    const runs: [number, number][] = [];
    for (const block of [...this.#blocks, ...(all ? this.#unreadable : [])].sort((one, other) => one - other)) {
      const last = runs.at(-1);
      if (last && last[0] + last[1] === block) last[1]++;
      else if (runs.length === limit) break;
      else runs.push([block, 1]);
    }
    return runs;
  }
}

function within(blocks: ReadonlySet<number>, offset: number, length: number): number[] {
  if (blocks.size === 0) return [];
  const first = offset / BLOCK_BYTES;
  const count = length / BLOCK_BYTES;
  if (count > blocks.size) return [...blocks].filter((block) => block >= first && block < first + count);
  const found: number[] = [];
  for (let block = first; block < first + count; block++) if (blocks.has(block)) found.push(block);
  return found;
}
