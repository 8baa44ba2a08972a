import { HoldfastError, codeOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock, Random } from '../io/io.js';
import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';
import { BackOff, pause } from './pause.js';
import { RepeatedFault } from './repeated-fault.js';
import type { Change, RecordStore } from './store.js';

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;

/** A resumed watch that has not failed for so long stands, even when nothing changes. A store says so within 5 s. */
const STANDS_AFTER_MS = 6_000;

export interface FollowOptions<K extends RecordKind> {
  readonly clock: Clock;
  readonly random: Pick<Random, 'fraction'>;
  readonly log: Log;
  /**
   * Called for each record that appeared, changed (`now`) or is gone (`now` is absent), in order, when the cache shows
   * it. After a list anew, what changed in between comes as one change for each record. A throw is logged, no more.
   */
  readonly onChange?: (
    key: string,
    now: Versioned<RecordTypes[K]> | undefined,
    before: Versioned<RecordTypes[K]> | undefined,
  ) => void;
}

/**
 * All records of a kind, kept up to date by list and watch: the past of the store, never its future. Who decides
 * something reads the record itself (get) or changes it by compare-and-swap.
 */
export class RecordCache<K extends RecordKind> {
  readonly #items = new Map<string, Versioned<RecordTypes[K]>>();
  readonly #fault: RepeatedFault;
  readonly #backOff: BackOff;
  #revision: string | undefined;
  #current = false;
  #setReady: () => void = () => undefined;
  #setFailed: (error: unknown) => void = () => undefined;

  /** Resolves when all records were read once; rejects with `cancelled` when `run` ended before. */
  readonly ready: Promise<void>;

  constructor(
    private readonly store: RecordStore,
    private readonly kind: K,
    private readonly options: FollowOptions<K>,
  ) {
    this.ready = new Promise((resolve, reject) => {
      this.#setReady = resolve;
      this.#setFailed = reject;
    });
    // Nobody may be waiting when it is cancelled.
    this.ready.catch(() => undefined);
    this.#fault = new RepeatedFault(options.log, `watching records of kind ${kind}`);
    this.#backOff = new BackOff(options.random, FIRST_PAUSE_MS, MAX_PAUSE_MS);
  }

  get(key: string): Versioned<RecordTypes[K]> | undefined {
    return this.#items.get(key);
  }

  /** In key order. */
  all(): Versioned<RecordTypes[K]>[] {
    return [...this.#items.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /** False while the store can't be watched: the cache may be behind. */
  get current(): boolean {
    return this.#current;
  }

  /** Follows the store until the signal aborts, however often it is away. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#follow(signal);
      } catch (error) {
        if (isAborted(signal)) break;
        this.#current = false;
        // Forgotten changes or a record that can't be read are past; the list is always the truth.
        if (codeOf(error) !== 'unavailable') this.#revision = undefined;
        this.#fault.failed(error);
        await pause(this.options.clock, this.#backOff.next(), signal);
      }
    }
    this.#current = false;
    this.#setFailed(new HoldfastError('cancelled', `records of kind ${this.kind} were not read before the end`));
  }

  async #follow(signal: AbortSignal): Promise<void> {
    if (this.#revision === undefined) {
      const { items, revision } = await this.store.list(this.kind);
      if (signal.aborted) return;
      this.#replace(items);
      this.#revision = revision;
      this.#setReady();
      this.#succeeded();
    }
    const forget = this.options.clock.timer(STANDS_AFTER_MS, () => this.#succeeded());
    try {
      for await (const change of this.store.watch(this.kind, this.#revision, signal)) {
        this.#revision = change.revision;
        this.#apply(change);
        this.#succeeded();
      }
    } finally {
      forget();
    }
  }

  #succeeded(): void {
    this.#current = true;
    this.#fault.succeeded();
    this.#backOff.reset();
  }

  #replace(items: readonly Versioned<RecordTypes[K]>[]): void {
    const keys = new Set(items.map((item) => item.key));
    for (const key of [...this.#items.keys()]) if (!keys.has(key)) this.#set(key, undefined);
    for (const item of items) if (this.#items.get(item.key)?.version !== item.version) this.#set(item.key, item);
  }

  #apply(change: Change<RecordTypes[K]>): void {
    if (change.type === 'put') this.#set(change.item.key, change.item);
    else this.#set(change.key, undefined);
  }

  #set(key: string, now: Versioned<RecordTypes[K]> | undefined): void {
    const before = this.#items.get(key);
    if (now === undefined) this.#items.delete(key);
    else this.#items.set(key, now);
    try {
      this.options.onChange?.(key, now, before);
    } catch (error) {
      this.options.log.error({ kind: this.kind, key, err: error }, 'a change could not be acted upon');
    }
  }
}

/** Starts a cache that follows the store until the signal aborts. */
export function follow<K extends RecordKind>(
  store: RecordStore,
  kind: K,
  signal: AbortSignal,
  options: FollowOptions<K>,
): RecordCache<K> {
  const cache = new RecordCache(store, kind, options);
  void cache.run(signal);
  return cache;
}

function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}
