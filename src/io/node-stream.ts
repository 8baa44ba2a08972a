import type { Socket } from 'node:net';
import { assert } from '../base/assert.js';
import { HoldfastError } from '../base/errors.js';
import type { Stream } from './io.js';

/** Received bytes that nobody asked for yet: above the first the socket is paused, below the second it goes on. */
const PAUSE_ABOVE_BYTES = 512 * 1024;
const RESUME_BELOW_BYTES = 128 * 1024;
/** Parts below this are copied together, which is cheaper than a vector entry for each. */
const SMALL_PART_BYTES = 512;
/** When a peer that sends nothing is asked whether it is still there. */
const KEEP_ALIVE_DELAY_MS = 15_000;

const DONE = Promise.resolve();

interface Waiting {
  resolve: () => void;
  reject: (error: unknown) => void;
}

/** A stream on a connected socket. */
export class NodeStream implements Stream {
  readonly closed: Promise<void>;
  readonly #chunks: Uint8Array[] = [];
  /** Bytes of the first chunk that were handed out. */
  #consumed = 0;
  #buffered = 0;
  #read: (Waiting & { into: Uint8Array; filled: number }) | undefined;
  #peerEnded = false;
  #ended = false;
  #cause: Error | undefined;
  /** Parts of writes of this turn of the event loop; they are sent together at its end. */
  #parts: Uint8Array[] = [];
  #writers: Waiting[] = [];
  #flushPlanned = false;
  /** Writes handed to the socket and not yet done with. */
  readonly #sending = new Set<Waiting[]>();

  constructor(private readonly socket: Socket) {
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_DELAY_MS);
    socket.on('data', (chunk: Uint8Array) => this.#receive(chunk));
    socket.on('end', () => this.#endOfData());
    socket.on('error', (error) => (this.#cause = error));
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        this.#end();
        resolve();
      });
    });
  }

  read(into: Uint8Array): Promise<void> {
    assert(this.#read === undefined, 'one read at a time on a stream');
    const filled = this.#copy(into, 0);
    if (filled === into.length) return DONE;
    if (this.#peerEnded || this.#ended) return Promise.reject(this.#lost());
    return new Promise((resolve, reject) => {
      this.#read = { into, filled, resolve, reject };
    });
  }

  write(parts: readonly Uint8Array[]): Promise<void> {
    if (this.#ended || this.socket.destroyed) return Promise.reject(this.#lost());
    for (const part of parts) if (part.length > 0) this.#parts.push(part);
    if (!this.#flushPlanned) {
      this.#flushPlanned = true;
      setImmediate(() => this.#flush());
    }
    return new Promise((resolve, reject) => this.#writers.push({ resolve, reject }));
  }

  close(): void {
    this.#peerEnded = true;
    this.#chunks.length = 0;
    this.#buffered = 0;
    this.#consumed = 0;
    this.socket.destroy();
  }

  #receive(chunk: Uint8Array): void {
    if (this.socket.destroyed) return;
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    const read = this.#read;
    if (read !== undefined) {
      read.filled = this.#copy(read.into, read.filled);
      if (read.filled === read.into.length) {
        this.#read = undefined;
        read.resolve();
      }
    }
    if (this.#buffered > PAUSE_ABOVE_BYTES) this.socket.pause();
  }

  /** Moves received bytes to `into` from `filled` on; resolves to how far it is filled then. */
  #copy(into: Uint8Array, filled: number): number {
    let at = filled;
    while (at < into.length) {
      const chunk = this.#chunks[0];
      if (chunk === undefined) break;
      const count = Math.min(chunk.length - this.#consumed, into.length - at);
      into.set(chunk.subarray(this.#consumed, this.#consumed + count), at);
      at += count;
      this.#consumed += count;
      if (this.#consumed === chunk.length) {
        this.#chunks.shift();
        this.#consumed = 0;
      }
    }
    this.#buffered -= at - filled;
    if (this.#buffered < RESUME_BELOW_BYTES && this.socket.isPaused()) this.socket.resume();
    return at;
  }

  #flush(): void {
    this.#flushPlanned = false;
    const parts = this.#parts;
    const writers = this.#writers;
    this.#parts = [];
    this.#writers = [];
    if (this.#ended || this.socket.destroyed) {
      for (const writer of writers) writer.reject(this.#lost());
      return;
    }
    this.#sending.add(writers);
    const joined = joinSmall(parts);
    this.socket.cork();
    for (let index = 0; index < joined.length - 1; index++) this.socket.write(joined[index] ?? '');
    this.socket.write(joined[joined.length - 1] ?? '', (error) => {
      // After a failure the socket may still use the memory; #end answers when it has let go.
      if (error || this.socket.destroyed || !this.#sending.delete(writers)) return;
      for (const writer of writers) writer.resolve();
    });
    this.socket.uncork();
  }

  #endOfData(): void {
    this.#peerEnded = true;
    this.#failRead();
  }

  #end(): void {
    this.#ended = true;
    this.#failRead();
    for (const writers of this.#sending) for (const writer of writers) writer.reject(this.#lost());
    this.#sending.clear();
  }

  #failRead(): void {
    const read = this.#read;
    this.#read = undefined;
    read?.reject(this.#lost());
  }

  #lost(): HoldfastError {
    const reason = this.#cause === undefined ? 'the connection has ended' : this.#cause.message;
    return new HoldfastError('unavailable', reason, { cause: this.#cause });
  }
}

/** Neighbouring small parts copied into one. */
function joinSmall(parts: Uint8Array[]): Uint8Array[] {
  const joined: Uint8Array[] = [];
  for (let index = 0; index < parts.length;) {
    let end = index;
    let length = 0;
    for (let part = parts[end]; part !== undefined && part.length < SMALL_PART_BYTES; part = parts[++end]) {
      length += part.length;
    }
    if (end - index > 1) {
      joined.push(Buffer.concat(parts.slice(index, end), length));
      index = end;
    } else {
      const part = parts[index++];
      if (part !== undefined) joined.push(part);
    }
  }
  return joined;
}
