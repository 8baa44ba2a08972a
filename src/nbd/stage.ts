import type { Extent, Lease, Slab } from '../io/io.js';
import type { RequestMeter } from './request-meter.js';

/**
 * One stage of the data path: the server of an export calls the writer, the writer calls replicas (here or, through an
 * NBD client, on a peer), a replica calls its slices. All speak these verbs, so that any stage can be wrapped, delayed
 * or replaced.
 *
 * Offsets and lengths are in bytes, multiples of PAGE_BYTES, length > 0, within `sizeBytes`; the caller checks that.
 * Failures are HoldfastErrors. A verb that failed may have been carried out in part.
 */
export interface Stage {
  /** Grows only. */
  readonly sizeBytes: number;
  /** Resolves to a lease from `slab` of just `length` bytes; the caller releases it. */
  read(offset: number, length: number, slab: Slab): Promise<Lease>;
  /**
   * Writes all of `data.bytes`. The caller keeps its own reference until the promise settles; a stage that still uses
   * the memory after that retains it.
   * `fua`: on stable storage before the promise resolves.
   */
  write(offset: number, data: Lease, fua: boolean): Promise<void>;
  /** Every write that had resolved before the call is on stable storage when this resolves. */
  flush(): Promise<void>;
  /** The range reads as zeros afterwards, and its space is given back. */
  trim(offset: number, length: number, fua: boolean): Promise<void>;
  /** The range reads as zeros afterwards. `allocate`: space should stay allocated (NBD_CMD_FLAG_NO_HOLE). */
  zero(offset: number, length: number, fua: boolean, allocate: boolean): Promise<void>;
  /** Allocation of the range: a gapless row from `offset`, which may cover less than `length` but is never empty. */
  extents(offset: number, length: number): Promise<Extent[]>;
}

/** What a name opens: a stage and how it may be used. */
export interface Export {
  readonly stage: Stage;
  readonly readOnly: boolean;
  /** Answers a private command (NBD_CMD_HOLDFAST): bytes in, bytes out, at most 1 MiB each. Absent: refused. */
  readonly control?: (payload: Uint8Array) => Promise<Uint8Array>;
  /** Told of each request when it has been carried out. */
  readonly meter?: RequestMeter;
  /** The connection has ended and none of its requests is under way. Called once. */
  readonly closed?: () => void;
}

/** The connection that opens an export, as the export sees it. */
export interface ExportClient {
  /** Ends the connection: requests not yet begun are thrown away, no further one is accepted. */
  close(): void;
  /** Resolves when the connection has ended and all requests that were begun have been carried out. */
  readonly drained: Promise<void>;
}

/** The exports of one server. */
export interface Exports {
  /** Names to tell a client that lists (NBD_OPT_LIST). */
  list(): string[];
  /** What the name says without opening it (NBD_OPT_INFO): size and mode. `not-found` where nothing has that name. */
  describe(name: string): Promise<{ sizeBytes: number; readOnly: boolean }>;
  /**
   * Opens the export for one connection (NBD_OPT_GO, NBD_OPT_EXPORT_NAME).
   * `not-found`; `fenced`, where a newer epoch is known; `unavailable`.
   */
  open(name: string, client: ExportClient): Promise<Export>;
}
