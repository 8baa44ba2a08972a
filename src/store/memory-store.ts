import { randomBytes } from 'node:crypto';
import { HoldfastError } from '../base/errors.js';
import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';
import { RecordTable, type LogBounds } from './record-table.js';
import { checkKey, encodeRecord, parseKind } from './records.js';
import type { Change, RecordStore } from './store.js';

/** One call of the store, as a fault plan sees it. */
export interface StoreCall {
  readonly method: 'get' | 'list' | 'create' | 'update' | 'delete' | 'watch';
  readonly kind: RecordKind;
  readonly key?: string;
}

/** What befalls one call. */
export interface StoreFault {
  /** The effect takes place, or the read is made, only after this. */
  readonly before?: Promise<void>;
  /** The answer comes only after this; the effect does not wait for it. */
  readonly after?: Promise<void>;
  /**
   * The caller gets `unavailable`.
   * request: without any effect. answer: after the effect. late: at once, and the effect takes place after `before`.
   */
  readonly lose?: 'request' | 'answer' | 'late';
}

/** Asked once for every call, in the order of the calls. */
export type StoreFaultPlan = (call: StoreCall) => StoreFault | undefined;

/**
 * A fault plan with state, for tests: an outage, and single faults for the next calls of a method (first in, first out).
 */
export class StoreFaults {
  /** While true, every request is lost, and running watches were broken by `startOutage`. */
  #outage = false;
  readonly #next: { method: StoreCall['method']; fault: StoreFault }[] = [];
  readonly #onOutage = new Set<() => void>();

  readonly plan: StoreFaultPlan = (call) => {
    if (this.#outage) return { lose: 'request' };
    const index = this.#next.findIndex((each) => each.method === call.method);
    return index < 0 ? undefined : this.#next.splice(index, 1)[0]?.fault;
  };

  startOutage(): void {
    this.#outage = true;
    for (const broken of this.#onOutage) broken();
  }

  endOutage(): void {
    this.#outage = false;
  }

  next(method: StoreCall['method'], fault: StoreFault): void {
    this.#next.push({ method, fault });
  }

  /** Lets a store break its running watches when an outage starts. */
  onOutage(broken: () => void): void {
    this.#onOutage.add(broken);
  }
}

export interface MemoryStoreOptions {
  /** Id of the store; random by default. */
  readonly storeId?: string;
  readonly bounds?: LogBounds;
  readonly faults?: StoreFaults | StoreFaultPlan;
}

/** A record store in memory, gone with the process. For tests and the simulator. */
export class MemoryStore implements RecordStore {
  readonly #table: RecordTable;
  readonly #plan: StoreFaultPlan;

  constructor(options: MemoryStoreOptions = {}) {
    this.#table = new RecordTable(options.storeId ?? randomBytes(4).toString('hex'), options.bounds);
    const faults = options.faults;
    if (faults instanceof StoreFaults) faults.onOutage(() => this.breakWatches());
    this.#plan = faults instanceof StoreFaults ? faults.plan : (faults ?? (() => undefined));
  }

  async get<K extends RecordKind>(kind: K, key: string): Promise<Versioned<RecordTypes[K]> | undefined> {
    parseKind(kind);
    checkKey(kind, key);
    return this.#call({ method: 'get', kind, key }, () => this.#table.get(kind, key));
  }

  async list<K extends RecordKind>(kind: K): Promise<{ items: Versioned<RecordTypes[K]>[]; revision: string }> {
    parseKind(kind);
    return this.#call({ method: 'list', kind }, () => this.#table.list(kind));
  }

  async create<K extends RecordKind>(kind: K, key: string, record: RecordTypes[K]): Promise<Versioned<RecordTypes[K]>> {
    parseKind(kind);
    const json = encodeRecord(kind, key, record);
    return this.#call({ method: 'create', kind, key }, () => {
      const entry = this.#table.prepareCreate(kind, key, json);
      this.#table.apply(entry);
      return this.#table.versioned(kind, entry);
    });
  }

  async update<K extends RecordKind>(
    kind: K,
    key: string,
    record: RecordTypes[K],
    version: string,
  ): Promise<Versioned<RecordTypes[K]>> {
    parseKind(kind);
    const json = encodeRecord(kind, key, record);
    return this.#call({ method: 'update', kind, key }, () => {
      const entry = this.#table.prepareUpdate(kind, key, json, version);
      this.#table.apply(entry);
      return this.#table.versioned(kind, entry);
    });
  }

  async delete(kind: RecordKind, key: string, version?: string): Promise<void> {
    parseKind(kind);
    checkKey(kind, key);
    await this.#call({ method: 'delete', kind, key }, () => {
      this.#table.apply(this.#table.prepareDelete(kind, key, version));
    });
  }

  async *watch<K extends RecordKind>(
    kind: K,
    revision: string,
    signal: AbortSignal,
  ): AsyncGenerator<Change<RecordTypes[K]>, void> {
    parseKind(kind);
    await this.#call({ method: 'watch', kind }, () => undefined);
    yield* this.#table.watch(kind, revision, signal);
  }

  /** Every running watch ends with `unavailable`. */
  breakWatches(): void {
    this.#table.breakWatches(lost('watch'));
  }

  async #call<T>(call: StoreCall, effect: () => T): Promise<T> {
    const fault = this.#plan(call);
    if (fault === undefined) return effect();
    if (fault.lose === 'request') throw lost(call.method);
    if (fault.lose === 'late') {
      void fault.before?.then(effect).catch(() => undefined);
      throw lost(call.method);
    }
    await fault.before;
    // The effect takes place now; its answer, or its refusal, waits.
    const answer = new Promise<T>((resolve) => resolve(effect()));
    await Promise.allSettled([answer, fault.after]);
    if (fault.lose === 'answer') throw lost(call.method);
    return answer;
  }
}

function lost(method: string): HoldfastError {
  return new HoldfastError('unavailable', `the store did not answer (${method})`);
}
