import { codeOf } from '../base/errors.js';
import type { Meters } from '../base/meters.js';
import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';
import type { Change, RecordStore } from '../store/store.js';

/** A record store whose calls are counted. `now`: monotonic milliseconds. */
export class CountedStore implements RecordStore {
  constructor(
    private readonly store: RecordStore,
    private readonly meters: Meters,
    private readonly now: () => number = () => performance.now(),
  ) {}

  get<K extends RecordKind>(kind: K, key: string): Promise<Versioned<RecordTypes[K]> | undefined> {
    return this.#count('get', () => this.store.get(kind, key));
  }

  list<K extends RecordKind>(kind: K): Promise<{ items: Versioned<RecordTypes[K]>[]; revision: string }> {
    return this.#count('list', () => this.store.list(kind));
  }

  create<K extends RecordKind>(kind: K, key: string, record: RecordTypes[K]): Promise<Versioned<RecordTypes[K]>> {
    return this.#count('create', () => this.store.create(kind, key, record));
  }

  update<K extends RecordKind>(
    kind: K,
    key: string,
    record: RecordTypes[K],
    version: string,
  ): Promise<Versioned<RecordTypes[K]>> {
    return this.#count('update', () => this.store.update(kind, key, record, version));
  }

  delete(kind: RecordKind, key: string, version?: string): Promise<void> {
    return this.#count('delete', () => this.store.delete(kind, key, version));
  }

  /** Counted when it ends: it may last for days. */
  async *watch<K extends RecordKind>(
    kind: K,
    revision: string,
    signal: AbortSignal,
  ): AsyncGenerator<Change<RecordTypes[K]>, void> {
    let code = 'ok';
    try {
      yield* this.store.watch(kind, revision, signal);
    } catch (error) {
      code = codeOf(error);
      throw error;
    } finally {
      this.meters.counter('holdfast_store_calls_total', { method: 'watch', code }).add();
    }
  }

  async #count<T>(method: string, call: () => Promise<T>): Promise<T> {
    const began = this.now();
    let code = 'ok';
    try {
      return await call();
    } catch (error) {
      code = codeOf(error);
      throw error;
    } finally {
      this.meters.counter('holdfast_store_calls_total', { method, code }).add();
      this.meters.histogram('holdfast_store_call_seconds', { method }).observe((this.now() - began) / 1_000);
    }
  }
}
