import { HoldfastError } from '../base/errors.js';
import type { Stream } from '../io/io.js';
import { readUint64, viewOf } from './bytes.js';
import type { Session } from './client-handshake.js';
import { CHUNK, CHUNK_ERROR_BIT, MAX_CONTROL_BYTES } from './commands.js';
import { errorOfReply } from './error-codes.js';
import {
  CHUNK_LENGTH_BYTES,
  MAX_ERROR_BYTES,
  REPLY_START_BYTES,
  parseBlockStatus,
  parseErrorChunk,
  parseHole,
  parseReplyStart,
  type ReplyStart,
} from './parse-reply.js';
import type { Pending } from './pending.js';
import type { Cookie } from './parse-request.js';

/** A block status of 2^17 extents; nobody needs to send more. */
const MAX_STATUS_BYTES = 4 + 8 * 2 ** 17;

type Chunk = Extract<ReplyStart, { kind: 'chunk' }>;

/**
 * Reads a server's replies and settles what they answer. A server is trusted no more than a client: whatever it sends
 * is checked against the request it claims to answer, and the first thing that does not fit ends the connection.
 */
export class ReplyReader {
  readonly #start = new Uint8Array(REPLY_START_BYTES);
  readonly #startView = viewOf(this.#start);
  readonly #word = new Uint8Array(CHUNK_LENGTH_BYTES);
  readonly #wordView = viewOf(this.#word);
  readonly #offset = new Uint8Array(8);
  readonly #offsetView = viewOf(this.#offset);

  constructor(
    private readonly stream: Stream,
    private readonly session: Session,
    private readonly pending: Map<number, Pending>,
    private readonly onAnswer: (pending: Pending) => void = () => undefined,
  ) {}

  /** Rejects with `unavailable` when the stream ends, with `corrupt` where a reply is not what it must be. */
  async run(): Promise<never> {
    for (;;) {
      await this.stream.read(this.#start);
      const start = parseReplyStart(this.#startView);
      if (start === undefined) throw violation('a reply does not begin as one');
      const pending = this.#find(start.cookie);
      if (start.kind === 'simple') await this.#takeSimple(start.errno, start.cookie, pending);
      else await this.#takeChunk(start, pending);
    }
  }

  #find(cookie: Cookie): Pending {
    const pending = cookie.high === 0 ? this.pending.get(cookie.low) : undefined;
    if (pending === undefined) throw violation('a reply to no request');
    return pending;
  }

  async #takeSimple(errno: number, cookie: Cookie, pending: Pending): Promise<void> {
    if (pending.kind === 'read' && this.session.structured) throw violation('a simple reply to a read');
    if (errno !== 0) pending.error = errorOfReply(errno, '');
    else if (pending.kind === 'read') {
      const into = pending.place(pending.offset, pending.lease.bytes.length);
      if (into === undefined) throw violation('data that came before');
      await this.stream.read(into);
    }
    this.#finish(cookie, pending);
  }

  async #takeChunk(chunk: Chunk, pending: Pending): Promise<void> {
    if (!this.session.structured) throw violation('a structured reply that was not negotiated');
    await this.stream.read(this.#word);
    const length = this.#wordView.getUint32(0);
    if ((chunk.type & CHUNK_ERROR_BIT) !== 0) await this.#takeError(chunk.type, length, pending);
    else await this.#takeContent(chunk, length, pending);
    if (chunk.done) this.#finish(chunk.cookie, pending);
  }

  async #takeContent(chunk: Chunk, length: number, pending: Pending): Promise<void> {
    switch (chunk.type) {
      case CHUNK.none:
        if (length !== 0 || !chunk.done) throw violation('a chunk of type NONE with data, or not the last');
        return;
      case CHUNK.offsetData: {
        if (length < 8) throw violation('a chunk of data without an offset');
        await this.stream.read(this.#offset);
        const into = pending.kind === 'read' ? pending.place(readUint64(this.#offsetView, 0), length - 8) : undefined;
        if (into === undefined) throw violation('data that was not asked for');
        return this.stream.read(into);
      }
      case CHUNK.offsetHole: {
        const hole = parseHole(await this.#payload(length, 12));
        const into = pending.kind === 'read' && hole ? pending.place(hole.offset, hole.length) : undefined;
        if (into === undefined) throw violation('a hole that was not asked for');
        into.fill(0);
        return;
      }
      case CHUNK.blockStatus: {
        const { contextId } = this.session;
        if (pending.kind !== 'extents' || contextId === undefined || pending.extents !== undefined) {
          throw violation('a block status that was not asked for');
        }
        pending.extents = parseBlockStatus(await this.#payload(length, MAX_STATUS_BYTES), contextId, pending.length);
        if (pending.extents === undefined) throw violation('a malformed block status');
        return;
      }
      case CHUNK.holdfast:
        if (pending.kind !== 'control' || pending.control !== undefined) {
          throw violation('a private answer that was not asked for');
        }
        pending.control = await this.#payload(length, MAX_CONTROL_BYTES);
        return;
      default:
        throw violation(`a chunk of unknown type ${chunk.type}`);
    }
  }

  async #takeError(type: number, length: number, pending: Pending): Promise<void> {
    const error = parseErrorChunk(type, await this.#payload(length, MAX_ERROR_BYTES));
    if (error === undefined) throw violation('a malformed error');
    pending.error ??= errorOfReply(error.errno, error.message);
  }

  async #payload(length: number, limit: number): Promise<Uint8Array> {
    if (length > limit) throw violation(`a chunk of ${length} bytes, above ${limit}`);
    const payload = new Uint8Array(length);
    await this.stream.read(payload);
    return payload;
  }

  #finish(cookie: Cookie, pending: Pending): void {
    if (!pending.finish()) throw violation('a success that lacks what was asked for');
    this.pending.delete(cookie.low);
    this.onAnswer(pending);
  }
}

function violation(what: string): HoldfastError {
  return new HoldfastError('corrupt', `the NBD server sent ${what}`);
}
