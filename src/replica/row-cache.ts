import { type Io, PAGE_BYTES, type Slab } from '../io/io.js';
import type { Layout } from '../model/layout.js';
import { BLOCK_BYTES } from './block-checksums.js';

/** Rows of a data thread: 32 GiB of volumes, in 32 MiB of memory. */
const ROWS = 8_192;

/** Memory for rows on their way to and from disk. */
const TRANSFER_BYTES = 1024 * 1024;

/** Rows on their way out at once. */
const MAX_SPILLS = 8;

/** A row on disk: whole pages. */
export function rowBytesOf({ regionBytes }: Layout): number {
  return Math.ceil(((regionBytes / BLOCK_BYTES) * 4) / PAGE_BYTES) * PAGE_BYTES;
}

/** The checksums of one region's blocks in memory. */
export class Row {
  /** Requests under way that use it: it must stay. */
  users = 0;
  /** It was used since it last came up to leave. */
  recent = false;
  /** Its file does not hold these values. */
  dirty = false;
  /** Counts changes of the values. */
  changes = 0;
  /** Until the values on disk are there; never rejects. */
  loading: Promise<void> | undefined;
  /** Blocks changed while it was loading: what comes from disk is older. */
  overtaken: { readonly first: number; readonly last: number }[] = [];
  spilling = false;

  constructor(
    readonly owner: RowOwner,
    readonly region: number,
    /** One for each block, UNKNOWN where nothing is known. */
    readonly values: Uint32Array<ArrayBuffer>,
  ) {}

  get idle(): boolean {
    return this.users === 0 && this.loading === undefined && !this.spilling;
  }
}

/** Whose rows they are: the checksums of one replica. */
export interface RowOwner {
  /** Writes the row to its file, so that it can leave the memory and be read again. Never rejects; `dirty` tells. */
  spill(row: Row): Promise<void>;
  /** The row has left. Where it was dirty, what it held is lost. */
  left(row: Row): void;
}

/**
 * The rows of all replicas of a data thread that are in memory. They leave in the order in which they came, but one that
 * was used meanwhile has another turn. Rows in use and rows that are being written to their files come on top of the
 * bound; a row that can't be written is forgotten at last.
 */
export class RowCache {
  readonly blocksPerRow: number;
  readonly rowBytes: number;
  /** For transfers of rows. Nobody who holds a piece of it waits for anything but a disk. */
  readonly slab: Slab;
  readonly #rows = new Set<Row>();
  /** Memory of rows that have left. */
  readonly #spare: Uint32Array<ArrayBuffer>[] = [];
  #spills = 0;

  constructor(
    io: Io,
    layout: Layout,
    private readonly limit = ROWS,
  ) {
    this.blocksPerRow = layout.regionBytes / BLOCK_BYTES;
    this.rowBytes = rowBytesOf(layout);
    this.slab = io.slab(Math.max(TRANSFER_BYTES, this.rowBytes));
  }

  get size(): number {
    return this.#rows.size;
  }

  /** A new row, of which nothing is known. */
  add(owner: RowOwner, region: number): Row {
    // Before it is there itself: nobody uses it yet.
    this.#shrink(this.limit - 1);
    const values = this.#spare.pop() ?? new Uint32Array(this.blocksPerRow);
    values.fill(0);
    const row = new Row(owner, region, values);
    this.#rows.add(row);
    return row;
  }

  /** Takes the row out, whoever uses it still. */
  remove(row: Row): void {
    this.#rows.delete(row);
  }

  /** Down to `size` rows, as far as that can be. */
  #shrink(size: number): void {
    const hopeless = this.limit + Math.max(MAX_SPILLS, this.limit / 4);
    for (const row of this.#rows) {
      if (this.#rows.size <= size) return;
      if (!row.idle) continue;
      if (row.recent) {
        row.recent = false;
        this.#rows.delete(row);
        this.#rows.add(row);
        continue;
      }
      if (!row.dirty || this.#rows.size > hopeless) this.#drop(row);
      else if (this.#spills < MAX_SPILLS) void this.#spill(row);
      else if (this.#rows.size + MAX_SPILLS <= hopeless) return;
    }
  }

  async #spill(row: Row): Promise<void> {
    this.#spills++;
    row.spilling = true;
    await row.owner.spill(row);
    row.spilling = false;
    this.#spills--;
    if (!this.#rows.has(row) || this.#rows.size <= this.limit) return;
    if (row.idle && !row.dirty) this.#drop(row);
  }

  #drop(row: Row): void {
    this.#rows.delete(row);
    row.owner.left(row);
    if (this.#spare.length < MAX_SPILLS) this.#spare.push(row.values);
  }
}
