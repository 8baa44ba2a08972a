import { assert } from '../base/assert.js';
import { asHoldfastError, HoldfastError } from '../base/errors.js';
import { GroupCommit } from '../base/group-commit.js';
import type { Extent, File, Files } from '../io/io.js';
import type { Layout } from '../model/layout.js';

/** Open files of one replica; beyond it the least recently used idle ones are closed. */
const MAX_OPEN_SLICES = 64;

/** Files of one replica that are synced at once. */
const SYNCS_AT_ONCE = 8;

/** What a row of slices is told by its replica, and tells it. */
export interface SlicesParts {
  /** Slices with writes of an earlier process that no sync may have covered. */
  readonly unsynced: ReadonlySet<number>;
  /** A sync has failed. It is told to nobody else before this has resolved; where it rejects, the next sync calls again. */
  readonly lost: (cause: HoldfastError) => Promise<void>;
}

interface Slice {
  readonly index: number;
  readonly file: Promise<File>;
  users: number;
}

/**
 * A replica's data: a row of sparse files of one size in one directory, named by their number in 8 hex digits. A
 * slice that is missing reads as zeros and is made by the first write into it. Every slice has its full (sparse) size
 * from the start, so a volume grows without touching any.
 */
export class Slices {
  readonly #present = new Set<number>();
  /** In order of last use. */
  readonly #open = new Map<number, Slice>();
  /** Slices with writes that no sync has covered. */
  #dirty = new Set<number>();
  /** Those of which a sync is under way, and has yet to cover them. */
  #syncing = new Set<number>();
  readonly #syncs = new GroupCommit(() => this.#syncDirty());
  #closing = false;
  /** The first failure of a sync. The kernel may have dropped what it could not write, so no later sync can succeed. */
  #lost: HoldfastError | undefined;
  #lossIsTold = false;

  private constructor(
    private readonly files: Files,
    private readonly directory: string,
    private readonly sliceBytes: number,
    private readonly parts: SlicesParts,
  ) {}

  /** Opens the row in `directory`. */
  static async open(files: Files, directory: string, { sliceBytes }: Layout, parts: SlicesParts): Promise<Slices> {
    const slices = new Slices(files, directory, sliceBytes, parts);
    for (const name of await files.list(directory)) {
      if (!/^[0-9a-f]{8}$/.test(name)) continue;
      const index = Number.parseInt(name, 16);
      slices.#present.add(index);
      if (parts.unsynced.has(index)) slices.#dirty.add(index);
    }
    return slices;
  }

  /** A sync has failed. */
  get lostWrites(): boolean {
    return this.#lost !== undefined;
  }

  async read(offset: number, into: Uint8Array): Promise<void> {
    let done = 0;
    for (const piece of this.#piecesOf(offset, into.length)) {
      const part = into.subarray(done, done + piece.length);
      done += piece.length;
      if (!this.#present.has(piece.slice)) {
        part.fill(0);
        continue;
      }
      await this.#with(piece.slice, async (file) => {
        const count = await file.read(part, piece.offset);
        if (count !== part.length) {
          throw new HoldfastError('corrupt', `slice ${nameOf(piece.slice)} in ${this.directory} is cut off`);
        }
      });
    }
  }

  async write(offset: number, from: Uint8Array): Promise<void> {
    let done = 0;
    for (const piece of this.#piecesOf(offset, from.length)) {
      const part = from.subarray(done, done + piece.length);
      done += piece.length;
      await this.#change(piece.slice, (file) => file.write(part, piece.offset));
    }
  }

  /** The range reads as zeros afterwards and takes no space. */
  async punch(offset: number, length: number): Promise<void> {
    for (const piece of this.#piecesOf(offset, length)) {
      if (!this.#present.has(piece.slice)) continue;
      await this.#change(piece.slice, (file) => file.punch(piece.offset, piece.length));
    }
  }

  /** Allocation of the range, gapless; neighbours of one kind are one extent. */
  async extents(offset: number, length: number): Promise<Extent[]> {
    const found: Extent[] = [];
    for (const piece of this.#piecesOf(offset, length)) {
      if (!this.#present.has(piece.slice)) found.push({ length: piece.length, hole: true });
      else
        await this.#with(piece.slice, async (file) => found.push(...(await file.extents(piece.offset, piece.length))));
    }
    return merged(found);
  }

  /** Every write that resolved before is on stable storage. After a failure some may be lost, and every sync fails. */
  sync(): Promise<void> {
    return this.#syncs.run();
  }

  async close(): Promise<void> {
    this.#closing = true;
    const open = [...this.#open.values()];
    this.#open.clear();
    for (const slice of open) await (await slice.file).close();
  }

  async #syncDirty(): Promise<void> {
    if (!this.#lost) {
      const failure = await this.#trySync();
      if (failure === undefined) return;
      this.#lost = failure;
      // Files that are being closed tell nothing of the disk.
      this.#lossIsTold = this.#closing;
    }
    if (!this.#lossIsTold) await this.parts.lost(this.#lost);
    this.#lossIsTold = true;
    throw this.#lost;
  }

  /** Resolves to the first failure when no sync is under way any more. */
  async #trySync(): Promise<HoldfastError | undefined> {
    this.#syncing = this.#dirty;
    this.#dirty = new Set();
    // All take from one row.
    const dirty = this.#syncing.values();
    const syncSome = async (): Promise<void> => {
      for (const index of dirty) await this.#with(index, (file) => file.sync()).then(() => this.#syncing.delete(index));
    };
    const ends = await Promise.allSettled(Array.from({ length: SYNCS_AT_ONCE }, syncSome));
    const failed = ends.find((end) => end.status === 'rejected');
    return failed && asHoldfastError(failed.reason, 'io-error');
  }

  /** What failed may be written in part, so it counts too. */
  #change(index: number, change: (file: File) => Promise<void>): Promise<void> {
    return this.#with(index, (file) => change(file).finally(() => this.#dirty.add(index)));
  }

  async #with<T>(index: number, use: (file: File) => Promise<T>): Promise<T> {
    assert(!this.#closing, 'slices are used after close');
    const slice = this.#touch(index);
    slice.users++;
    try {
      return await use(await slice.file);
    } finally {
      slice.users--;
      if (this.#open.size > MAX_OPEN_SLICES) this.#closeIdle();
      // Too many to close are unsynced. A failure of this sync is kept, and told by the next one.
      if (this.#open.size > 4 * MAX_OPEN_SLICES) void this.sync().catch(() => undefined);
    }
  }

  #touch(index: number): Slice {
    const known = this.#open.get(index);
    if (known) {
      this.#open.delete(index);
      this.#open.set(index, known);
      return known;
    }
    const file = this.#openSlice(index);
    const slice = { index, file, users: 0 };
    this.#open.set(index, slice);
    // A slice that did not open is tried anew by the next request.
    file.catch(() => {
      if (this.#open.get(index) === slice) this.#open.delete(index);
    });
    return slice;
  }

  async #openSlice(index: number): Promise<File> {
    const file = await this.files.open(`${this.directory}/${nameOf(index)}`, {
      write: true,
      create: true,
      direct: true,
    });
    try {
      if ((await file.size()) < this.sliceBytes) {
        await file.truncate(this.sliceBytes);
        await file.sync();
        await this.files.syncDirectory(this.directory);
      }
    } catch (error) {
      await file.close();
      throw error;
    }
    this.#present.add(index);
    return file;
  }

  *#piecesOf(offset: number, length: number): Generator<{ slice: number; offset: number; length: number }> {
    const { sliceBytes } = this;
    for (let at = offset; at < offset + length;) {
      const within = at % sliceBytes;
      const size = Math.min(sliceBytes - within, offset + length - at);
      yield { slice: Math.floor(at / sliceBytes), offset: within, length: size };
      at += size;
    }
  }

  /** Closes the least recently used files that are idle and synced. */
  #closeIdle(): void {
    for (const slice of this.#open.values()) {
      if (this.#open.size <= MAX_OPEN_SLICES) return;
      if (slice.users > 0 || this.#dirty.has(slice.index) || this.#syncing.has(slice.index)) continue;
      this.#open.delete(slice.index);
      // Nothing is lost by a failing close: what was written has been synced.
      void slice.file.then((file) => file.close()).catch(() => undefined);
    }
  }
}

function nameOf(index: number): string {
  return index.toString(16).padStart(8, '0');
}

/** Joins neighbouring extents of one kind. */
export function merged(extents: Iterable<Extent>): Extent[] {
  const result: { length: number; hole: boolean }[] = [];
  for (const extent of extents) {
    const last = result.at(-1);
    if (last?.hole === extent.hole) last.length += extent.length;
    else result.push({ ...extent });
  }
  return result;
}
