import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';

/**
 * The cluster store's contract. Compare-and-swap on one record's version is the only coordination it offers: there are
 * no transactions across records, as in Kubernetes.
 *
 * Errors: `not-found`, `already-exists`, `conflict` (another version; definite: nothing was changed), `unavailable`
 * (no answer: for a change this means *unknown*, it may have been carried out or may be later). `invalid-argument`: an
 * unknown kind, a wrong key, a wrong record or one of more than 1 MiB of JSON. `failed-precondition`: a record of a
 * newer schema; a list that holds one fails as a whole, for what is missing in a list counts as gone.
 *
 * Nothing is retried inside: every call is sent once, and ends within a bounded time.
 */
export interface RecordStore {
  /** The record as it stands after all changes that were answered before the call. */
  get<K extends RecordKind>(kind: K, key: string): Promise<Versioned<RecordTypes[K]> | undefined>;
  /** All records of a kind, in key order, and the revision at which they stood so. */
  list<K extends RecordKind>(kind: K): Promise<{ items: Versioned<RecordTypes[K]>[]; revision: string }>;
  create<K extends RecordKind>(kind: K, key: string, record: RecordTypes[K]): Promise<Versioned<RecordTypes[K]>>;
  update<K extends RecordKind>(
    kind: K,
    key: string,
    record: RecordTypes[K],
    version: string,
  ): Promise<Versioned<RecordTypes[K]>>;
  /** With a version: only if the record still has it. Missing → `not-found`. */
  delete(kind: RecordKind, key: string, version?: string): Promise<void>;
  /**
   * Changes of one kind after a revision, in order and each one, without end until `signal` aborts; then the iteration
   * ends without an error. A revision too old to resume from, or of another store → `out-of-range`: list again. A broken
   * connection, or a store that ends → `unavailable`: watch again from the last revision seen.
   */
  watch<K extends RecordKind>(kind: K, revision: string, signal: AbortSignal): AsyncIterable<Change<RecordTypes[K]>>;
}

export type Change<T> =
  | { readonly type: 'put'; readonly revision: string; readonly item: Versioned<T> }
  | { readonly type: 'delete'; readonly revision: string; readonly key: string };
