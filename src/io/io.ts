/**
 * The I/O contract: all that the data path asks of the machine below it.
 *
 * Nothing in the data path imports fs, net, timers, Date or Math.random; it is given these interfaces. Three
 * implementations are meant to stand behind them: Node's own fs and net, io_uring, and the simulator's.
 * All failures are HoldfastErrors: `io-error`, `no-space`, `not-found`, `already-exists`, `unavailable` (network).
 */
export interface Io {
  readonly files: Files;
  readonly network: Network;
  readonly clock: Clock;
  readonly random: Random;
  /** Makes a pool of I/O memory of `bytes` bytes, allocated now. */
  slab(bytes: number): Slab;
  /** A collision-resistant digest (SHA-256, hex) by which two replicas compare a piece of data without sending it. */
  digest(bytes: Uint8Array): string;
  /** CRC-32 (as zlib's) as an unsigned number: tells bytes that changed at rest; no defence against intent. */
  checksum(bytes: Uint8Array): number;
}

/** Monotonic time. It can't be compared between machines. */
export interface Clock {
  /** Milliseconds since an arbitrary start. */
  now(): number;
  /** Calls `fire` once after `delayMs`; the returned function cancels. */
  timer(delayMs: number, fire: () => void): () => void;
  sleep(delayMs: number): Promise<void>;
}

export interface Random {
  /** `count` random bytes in lower-case hex. */
  hex(count: number): string;
  /** A number in [0, 1). */
  fraction(): number;
}

/** All alignment in the data path: offsets, lengths and memory of direct I/O are multiples of this. */
export const PAGE_BYTES = 4096;

export interface Files {
  /**
   * Opens a regular file. `direct` asks for O_DIRECT (then memory, offset and length must be multiples of PAGE_BYTES);
   * where the filesystem refuses it, the file is opened buffered.
   * `create`: makes the file where it is missing. Missing without `create` → `not-found`.
   */
  open(path: string, options: { write: boolean; create: boolean; direct: boolean }): Promise<File>;
  /** Names in a directory; `not-found` where it is missing. */
  list(directory: string): Promise<string[]>;
  /** Makes the directory and its parents; no error where it exists. */
  makeDirectory(path: string): Promise<void>;
  /** Makes names created, renamed or removed in the directory durable. */
  syncDirectory(path: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  /** Removes a file or a whole directory; no error where it is missing. */
  remove(path: string): Promise<void>;
}

export interface File {
  /** Reads from `offset` until `into` is full or the file ends; resolves to the number of bytes read. */
  read(into: Uint8Array, offset: number): Promise<number>;
  /** Writes all of `from` at `offset`. */
  write(from: Uint8Array, offset: number): Promise<void>;
  /** Everything written before is on stable storage (fdatasync). A failure means that writes may be lost. */
  sync(): Promise<void>;
  truncate(sizeBytes: number): Promise<void>;
  size(): Promise<number>;
  /** Deallocates a range, which then reads as zeros; the file's size stays. */
  punch(offset: number, length: number): Promise<void>;
  /** Allocation of a range as a gapless row of extents. */
  extents(offset: number, length: number): Promise<Extent[]>;
  close(): Promise<void>;
}

/** A part of a file or volume that is either a hole (reads as zeros) or may hold data. */
export interface Extent {
  readonly length: number;
  readonly hole: boolean;
}

export type Address =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string };

export interface Network {
  /** Connects within `timeoutMs`, or fails with `unavailable`. */
  connect(address: Address, timeoutMs: number): Promise<Stream>;
  /** Calls `accept` for every connection. An address in use → `already-exists`. A dead unix socket is replaced. */
  listen(address: Address, accept: (stream: Stream) => void): Promise<Listener>;
}

export interface Listener {
  /** The address listened on, with the real port where 0 was asked for. */
  readonly address: Address;
  /** Stops listening; connections that were accepted stay. */
  close(): Promise<void>;
}

/** A reliable byte stream. After its end every read and write fails with `unavailable`. */
export interface Stream {
  /** Fills all of `into`. One read at a time. */
  read(into: Uint8Array): Promise<void>;
  /**
   * Sends the parts in a row. Resolves when the memory may be used again, which is also the back-pressure. Several
   * writes may be under way; each one's bytes stay together.
   */
  write(parts: readonly Uint8Array[]): Promise<void>;
  /** Ends the stream at once; what was not sent is dropped. Repeats do nothing. */
  close(): void;
  /** Resolves when the stream has ended, whoever ended it. Never rejects. */
  readonly closed: Promise<void>;
}

/** Page-aligned I/O memory, allocated ahead. */
export interface Slab {
  /**
   * Waits, in order of arrival, for a page-aligned piece of `length` bytes (1 … capacity). The contents are undefined.
   * The wait is the data path's back-pressure.
   */
  take(length: number): Promise<Lease>;
  readonly capacityBytes: number;
  readonly usedBytes: number;
  /** Who waits for memory now, and how many ever had to; absent where nobody counts. */
  readonly waiting?: number;
  readonly waits?: number;
}

/** A counted reference to a piece of slab memory. It starts at one; at zero the piece goes back. */
export interface Lease {
  readonly bytes: Uint8Array;
  /** For one more user. A lease already at zero must not be retained. */
  retain(): void;
  release(): void;
}
