import { assert } from '../base/assert.js';
import { HoldfastError } from '../base/errors.js';
import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';
import { decodeRecord } from './records.js';
import type { Change } from './store.js';

/**
 * The rules of the record store, without any I/O: versions, compare-and-swap, order, and a bounded log of changes.
 *
 * A change has two steps. `prepare…` decides: it refuses (`conflict`, `not-found`, `already-exists`), or names the
 * entry to be written. `apply` carries the entry out and wakes the watchers. Between the two an implementation makes
 * the entry durable; entries prepared but not applied are seen through a `Staged` map, so that many changes can be made
 * durable at once.
 *
 * One counter numbers all changes. Revision and version of a record are `<store id>.<number>`. The id is random and
 * made with the store: what a client remembers of a store that was lost and made anew is recognised and refused.
 *
 * The log is bounded for each kind, so that leases, which change every few seconds, push nothing else out.
 */
export interface Entry {
  readonly number: number;
  readonly kind: RecordKind;
  readonly key: string;
  /** Absent: the record is deleted. */
  readonly json?: string;
}

/** The newest prepared entry for each record, by stagedKey. */
export type Staged = Map<string, Entry>;

export interface LogBounds {
  readonly maxEntries: number;
  readonly maxCharacters: number;
}

const DEFAULT_BOUNDS: LogBounds = { maxEntries: 4096, maxCharacters: 4 * 1024 * 1024 };

interface KindState {
  readonly items: Map<string, Entry>;
  /** The newest changes, oldest first. */
  log: Entry[];
  logCharacters: number;
  /** Number of the newest change that is not in the log any more. */
  floor: number;
}

export class RecordTable {
  readonly #kinds = new Map<RecordKind, KindState>();
  #number = 0;
  #prepared = 0;
  #breakage: { error?: HoldfastError } = {};
  #wakers = new Set<() => void>();

  constructor(
    readonly storeId: string,
    private readonly bounds: LogBounds = DEFAULT_BOUNDS,
  ) {}

  get<K extends RecordKind>(kind: K, key: string): Versioned<RecordTypes[K]> | undefined {
    const entry = this.#state(kind).items.get(key);
    return entry === undefined ? undefined : this.versioned(kind, entry);
  }

  list<K extends RecordKind>(kind: K): { items: Versioned<RecordTypes[K]>[]; revision: string } {
    const entries = [...this.#state(kind).items.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    return { items: entries.map((entry) => this.versioned(kind, entry)), revision: this.#revision(this.#number) };
  }

  prepareCreate(kind: RecordKind, key: string, json: string, staged?: Staged): Entry {
    if (this.#newest(kind, key, staged) !== undefined) {
      throw new HoldfastError('already-exists', `${kind} ${key} is there already`);
    }
    return this.#entry(kind, key, staged, json);
  }

  prepareUpdate(kind: RecordKind, key: string, json: string, version: string, staged?: Staged): Entry {
    this.#checkVersion(kind, key, version, staged);
    return this.#entry(kind, key, staged, json);
  }

  prepareDelete(kind: RecordKind, key: string, version: string | undefined, staged?: Staged): Entry {
    this.#checkVersion(kind, key, version, staged);
    return this.#entry(kind, key, staged);
  }

  /** Carries out a prepared (or, at start, a stored) entry; resolves to the entries that left the log. */
  apply(entry: Entry): Entry[] {
    assert(entry.number > this.#number, 'changes are applied in the order of their numbers');
    const state = this.#state(entry.kind);
    if (entry.json === undefined) state.items.delete(entry.key);
    else state.items.set(entry.key, entry);
    this.#number = entry.number;
    this.#prepared = Math.max(this.#prepared, entry.number);
    const dropped = this.#append(state, entry);
    this.#wake();
    return dropped;
  }

  /**
   * Puts the table into the state that was stored: records, logs (oldest first), floors and the counter. Returns the
   * entries that are over the log's bound.
   */
  load(stored: {
    number: number;
    items: Iterable<Entry>;
    log: Iterable<Entry>;
    floors: ReadonlyMap<RecordKind, number>;
  }): Entry[] {
    for (const entry of stored.items) this.#state(entry.kind).items.set(entry.key, entry);
    for (const [kind, floor] of stored.floors) this.#state(kind).floor = floor;
    this.#number = stored.number;
    this.#prepared = stored.number;
    return [...stored.log].flatMap((entry) => this.#append(this.#state(entry.kind), entry));
  }

  versioned<K extends RecordKind>(kind: K, entry: Entry): Versioned<RecordTypes[K]> {
    assert(entry.json !== undefined, 'a deleted record has no content');
    return {
      key: entry.key,
      version: this.#revision(entry.number),
      record: decodeRecord(kind, entry.key, entry.json),
    };
  }

  /** See RecordStore.watch. Holds no queue: a reader that falls behind the log's bound ends with `out-of-range`. */
  async *watch<K extends RecordKind>(
    kind: K,
    revision: string,
    signal: AbortSignal,
  ): AsyncGenerator<Change<RecordTypes[K]>, void> {
    const breakage = this.#breakage;
    let seen = this.#numberOf(revision);
    while (!signal.aborted) {
      if (breakage.error !== undefined) throw breakage.error;
      for (const entry of this.#after(kind, seen)) {
        // A reader may have aborted between two changes.
        if (isAborted(signal)) return;
        seen = entry.number;
        yield this.#change(kind, entry);
      }
      if (this.#hasMore(kind, seen)) continue;
      if (!isBroken(breakage)) await this.#changed(signal);
    }
  }

  /** Ends every running watch with the error; later watches begin anew. */
  breakWatches(error: HoldfastError): void {
    this.#breakage.error = error;
    this.#breakage = {};
    this.#wake();
  }

  #change<K extends RecordKind>(kind: K, entry: Entry): Change<RecordTypes[K]> {
    const revision = this.#revision(entry.number);
    return entry.json === undefined
      ? { type: 'delete', revision, key: entry.key }
      : { type: 'put', revision, item: this.versioned(kind, entry) };
  }

  #after(kind: RecordKind, number: number): Entry[] {
    const state = this.#state(kind);
    if (number < state.floor) {
      throw new HoldfastError(
        'out-of-range',
        `the changes of kind ${kind} since ${this.#revision(number)} are forgotten`,
      );
    }
    return state.log.slice(firstAfter(state.log, number));
  }

  #hasMore(kind: RecordKind, number: number): boolean {
    const state = this.#state(kind);
    return number < state.floor || (state.log.at(-1)?.number ?? 0) > number;
  }

  #changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#wakers.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.#wakers.add(wake);
      signal.addEventListener('abort', wake);
    });
  }

  #wake(): void {
    for (const wake of [...this.#wakers]) wake();
  }

  #append(state: KindState, entry: Entry): Entry[] {
    state.log.push(entry);
    state.logCharacters += entry.json?.length ?? 0;
    let dropped = 0;
    while (
      state.log.length - dropped > this.bounds.maxEntries ||
      (state.logCharacters > this.bounds.maxCharacters && state.log.length - dropped > 1)
    ) {
      const oldest = state.log[dropped++];
      assert(oldest !== undefined, 'a log over its bound has a first entry');
      state.logCharacters -= oldest.json?.length ?? 0;
      state.floor = oldest.number;
    }
    return dropped === 0 ? [] : state.log.splice(0, dropped);
  }

  #entry(kind: RecordKind, key: string, staged: Staged | undefined, json?: string): Entry {
    this.#prepared += 1;
    const entry: Entry =
      json === undefined ? { number: this.#prepared, kind, key } : { number: this.#prepared, kind, key, json };
    staged?.set(stagedKey(kind, key), entry);
    return entry;
  }

  #newest(kind: RecordKind, key: string, staged: Staged | undefined): Entry | undefined {
    const entry = staged?.get(stagedKey(kind, key)) ?? this.#state(kind).items.get(key);
    return entry?.json === undefined ? undefined : entry;
  }

  #checkVersion(kind: RecordKind, key: string, version: string | undefined, staged: Staged | undefined): void {
    const now = this.#newest(kind, key, staged);
    if (now === undefined) throw new HoldfastError('not-found', `there is no ${kind} ${key}`);
    if (version !== undefined && version !== this.#revision(now.number)) {
      throw new HoldfastError('conflict', `${kind} ${key} has version ${this.#revision(now.number)}, not ${version}`);
    }
  }

  #revision(number: number): string {
    return `${this.storeId}.${number}`;
  }

  #numberOf(revision: string): number {
    const dot = revision.lastIndexOf('.');
    const number = Number(revision.slice(dot + 1));
    if (dot < 0 || !Number.isSafeInteger(number) || revision !== this.#revision(number) || number > this.#number) {
      throw new HoldfastError('out-of-range', `revision ${revision} is not one of this store's; list again`);
    }
    return number;
  }

  #state(kind: RecordKind): KindState {
    const known = this.#kinds.get(kind);
    if (known !== undefined) return known;
    const made: KindState = { items: new Map(), log: [], logCharacters: 0, floor: 0 };
    this.#kinds.set(kind, made);
    return made;
  }
}

function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

function isBroken(breakage: { error?: HoldfastError }): boolean {
  return breakage.error !== undefined;
}

function stagedKey(kind: RecordKind, key: string): string {
  return `${kind}/${key}`;
}

/** Index of the first entry with a higher number; the entries are in order. */
function firstAfter(log: readonly Entry[], number: number): number {
  let low = 0;
  let high = log.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((log[middle]?.number ?? 0) > number) high = middle;
    else low = middle + 1;
  }
  return low;
}
