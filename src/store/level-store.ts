import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { Level } from 'level';
import { HoldfastError, messageOf } from '../base/errors.js';
import { RECORD_KINDS, type RecordKind, type RecordTypes, type Versioned } from '../model/records.js';
import { RecordTable, type Entry, type LogBounds, type Staged } from './record-table.js';
import { checkKey, encodeRecord, parseKind } from './records.js';
import type { Change, RecordStore } from './store.js';

/**
 * The record store on `level`: one process owns the directory and serves it to the others.
 *
 * All records stand in memory too; the database makes changes durable. Changes that arrive while a write is under way
 * are decided one after the other and written together by the next one, as one synced batch that holds the records, the
 * log and the counter. Nothing is answered, and nothing shown to readers, before it is on the disk.
 *
 * When a write fails it is not known what reached the disk. Its callers are told so (`unavailable`), running watches
 * end, and the next call opens the database anew and goes on from what it holds.
 *
 * Layout: `m/format`, `m/store` (id), `m/number` (the counter), `r/<kind>/<key>` (newest entry of a record),
 * `l/<kind>/<number>` (log), `f/<kind>` (number of the newest change that left the log).
 */
const FORMAT = '1';

/** The code of classic-level for a directory that another process has open. */
const LEVEL_LOCKED = 'LEVEL_LOCKED';

type Database = Level;

type Operation = { type: 'put'; key: string; value: string } | { type: 'del'; key: string };

interface Opened {
  readonly database: Database;
  readonly table: RecordTable;
  /** Entries that left the log and are taken off the disk with the next change. */
  forgotten: Entry[];
}

interface Changed {
  readonly table: RecordTable;
  readonly entry: Entry;
}

interface Request {
  readonly prepare: (table: RecordTable, staged: Staged) => Entry;
  readonly resolve: (changed: Changed) => void;
  readonly reject: (error: unknown) => void;
}

export class LevelStore implements RecordStore {
  #opened: Opened | undefined;
  #reopening: Promise<Opened> | undefined;
  #queue: Request[] = [];
  #draining: Promise<void> | undefined;
  #closed = false;

  private constructor(
    private readonly directory: string,
    private readonly bounds: LogBounds | undefined,
    opened: Opened,
  ) {
    this.#opened = opened;
  }

  /**
   * Opens the store in the directory, which is made where it is missing. `already-exists`: another process has it open.
   * `failed-precondition`: a newer Holdfast wrote it.
   */
  static async open(directory: string, bounds?: LogBounds): Promise<LevelStore> {
    return new LevelStore(directory, bounds, await openDatabase(directory, bounds));
  }

  async get<K extends RecordKind>(kind: K, key: string): Promise<Versioned<RecordTypes[K]> | undefined> {
    parseKind(kind);
    checkKey(kind, key);
    return (await this.#open()).table.get(kind, key);
  }

  async list<K extends RecordKind>(kind: K): Promise<{ items: Versioned<RecordTypes[K]>[]; revision: string }> {
    parseKind(kind);
    return (await this.#open()).table.list(kind);
  }

  async create<K extends RecordKind>(kind: K, key: string, record: RecordTypes[K]): Promise<Versioned<RecordTypes[K]>> {
    parseKind(kind);
    const json = encodeRecord(kind, key, record);
    const { table, entry } = await this.#change((table, staged) => table.prepareCreate(kind, key, json, staged));
    return table.versioned(kind, entry);
  }

  async update<K extends RecordKind>(
    kind: K,
    key: string,
    record: RecordTypes[K],
    version: string,
  ): Promise<Versioned<RecordTypes[K]>> {
    parseKind(kind);
    const json = encodeRecord(kind, key, record);
    const { table, entry } = await this.#change((table, staged) =>
      table.prepareUpdate(kind, key, json, version, staged),
    );
    return table.versioned(kind, entry);
  }

  async delete(kind: RecordKind, key: string, version?: string): Promise<void> {
    parseKind(kind);
    checkKey(kind, key);
    await this.#change((table, staged) => table.prepareDelete(kind, key, version, staged));
  }

  async *watch<K extends RecordKind>(
    kind: K,
    revision: string,
    signal: AbortSignal,
  ): AsyncGenerator<Change<RecordTypes[K]>, void> {
    parseKind(kind);
    yield* (await this.#open()).table.watch(kind, revision, signal);
  }

  /** Ends watches, waits for changes under way, and gives the directory free. Repeats do nothing. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#draining;
    await this.#reopening?.catch(() => undefined);
    const opened = this.#opened;
    this.#opened = undefined;
    opened?.table.breakWatches(closedError());
    await opened?.database.close();
  }

  /** The open database; after a failure it is opened anew, by one caller for all. */
  async #open(): Promise<Opened> {
    if (this.#closed) throw closedError();
    if (this.#opened !== undefined) return this.#opened;
    this.#reopening ??= openDatabase(this.directory, this.bounds)
      .then((opened) => (this.#opened = opened))
      .finally(() => (this.#reopening = undefined));
    try {
      return await this.#reopening;
    } catch (error) {
      throw new HoldfastError('unavailable', messageOf(error), { cause: error });
    }
  }

  #change(prepare: Request['prepare']): Promise<Changed> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw closedError();
      this.#queue.push({ prepare, resolve, reject });
      if (this.#draining === undefined) this.#draining = this.#drain();
    });
  }

  async #drain(): Promise<void> {
    while (this.#queue.length > 0) {
      let opened: Opened;
      try {
        opened = this.#opened ?? (await this.#open());
      } catch (error) {
        for (const request of this.#queue.splice(0)) request.reject(error);
        break;
      }
      await this.#commit(opened, this.#queue.splice(0));
    }
    // In the same step as the look at the empty queue: a change that comes now must start a drain of its own.
    this.#draining = undefined;
  }

  async #commit(opened: Opened, requests: Request[]): Promise<void> {
    const staged: Staged = new Map();
    const accepted: { request: Request; entry: Entry }[] = [];
    for (const request of requests) {
      try {
        accepted.push({ request, entry: request.prepare(opened.table, staged) });
      } catch (error) {
        request.reject(error);
      }
    }
    if (accepted.length === 0) return;
    const forgotten = opened.forgotten.splice(0).flatMap(forgetOperations);
    const changes = accepted.flatMap(({ entry }) => changeOperations(entry));
    try {
      await opened.database.batch([...forgotten, ...changes], { sync: true });
    } catch (error) {
      await this.#lose(opened, error);
      const unknown = new HoldfastError('unavailable', `the store's disk failed: ${messageOf(error)}`, {
        cause: error,
      });
      for (const { request } of accepted) request.reject(unknown);
      return;
    }
    for (const { request, entry } of accepted) {
      opened.forgotten.push(...opened.table.apply(entry));
      request.resolve({ table: opened.table, entry });
    }
  }

  async #lose(opened: Opened, error: unknown): Promise<void> {
    this.#opened = undefined;
    opened.table.breakWatches(new HoldfastError('unavailable', `the store's disk failed: ${messageOf(error)}`));
    await opened.database.close().catch(() => undefined);
  }
}

function changeOperations(entry: Entry): Operation[] {
  const record = recordKey(entry.kind, entry.key);
  const value = JSON.stringify([entry.number, entry.key, entry.json ?? null]);
  return [
    entry.json === undefined ? { type: 'del', key: record } : { type: 'put', key: record, value },
    { type: 'put', key: logKey(entry), value },
    { type: 'put', key: 'm/number', value: String(entry.number) },
  ];
}

function forgetOperations(entry: Entry): Operation[] {
  return [
    { type: 'del', key: logKey(entry) },
    { type: 'put', key: `f/${entry.kind}`, value: String(entry.number) },
  ];
}

async function openDatabase(directory: string, bounds: LogBounds | undefined): Promise<Opened> {
  await mkdir(directory, { recursive: true });
  const database: Database = new Level(directory);
  try {
    await database.open();
  } catch (error) {
    if (levelCode(error) === LEVEL_LOCKED) {
      throw new HoldfastError('already-exists', `store ${directory} is open in another process; stop that one first`);
    }
    const why = messageOf(error instanceof Error && error.cause !== undefined ? error.cause : error);
    throw new HoldfastError('unavailable', `store ${directory} can't be opened: ${why}`, { cause: error });
  }
  try {
    return { database, ...(await load(database, directory, bounds)) };
  } catch (error) {
    await database.close();
    throw error;
  }
}

async function load(
  database: Database,
  directory: string,
  bounds: LogBounds | undefined,
): Promise<{ table: RecordTable; forgotten: Entry[] }> {
  const stored = new Map<string, string>();
  for await (const [key, value] of database.iterator({ gte: 'm/', lt: 'm0' })) stored.set(key, value);
  const format = stored.get('m/format');
  if (format !== undefined && format !== FORMAT) {
    throw new HoldfastError(
      'failed-precondition',
      `store ${directory} has format ${format}, this Holdfast reads ${FORMAT}: it was written by a newer one`,
    );
  }
  const storeId = format === undefined ? await begin(database) : stored.get('m/store');
  if (storeId === undefined) throw new HoldfastError('corrupt', `store ${directory} has lost its id (m/store)`);
  const items: Entry[] = [];
  const log: Entry[] = [];
  const floors = new Map<RecordKind, number>();
  for (const kind of RECORD_KINDS) {
    for await (const value of database.values(under(`r/${kind}/`))) items.push(parseEntry(kind, value));
    for await (const value of database.values(under(`l/${kind}/`))) log.push(parseEntry(kind, value));
    const [floor] = await database.getMany([`f/${kind}`]);
    floors.set(kind, Number(floor ?? 0));
  }
  const table = new RecordTable(storeId, bounds);
  const forgotten = table.load({ number: Number(stored.get('m/number') ?? 0), items, log, floors });
  return { table, forgotten };
}

async function begin(database: Database): Promise<string> {
  const storeId = randomBytes(4).toString('hex');
  await database.batch(
    [
      { type: 'put', key: 'm/format', value: FORMAT },
      { type: 'put', key: 'm/store', value: storeId },
    ],
    { sync: true },
  );
  return storeId;
}

function parseEntry(kind: RecordKind, value: string): Entry {
  // Written by changeOperations; the database checksums what it stores.
  const [number, key, json] = JSON.parse(value) as [number, string, string | null];
  return json === null ? { number, kind, key } : { number, kind, key, json };
}

function recordKey(kind: RecordKind, key: string): string {
  return `r/${kind}/${key}`;
}

function logKey(entry: Entry): string {
  return `l/${entry.kind}/${String(entry.number).padStart(16, '0')}`;
}

/** The range of all keys that begin with `prefix`, which ends in a slash. */
function under(prefix: string): { gte: string; lt: string } {
  return { gte: prefix, lt: `${prefix.slice(0, -1)}0` };
}

function levelCode(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && 'code' in cause ? cause.code : undefined;
}

function closedError(): HoldfastError {
  return new HoldfastError('unavailable', 'the store is closed');
}
