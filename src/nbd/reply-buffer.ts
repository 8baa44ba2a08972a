import { viewOf } from './bytes.js';
import {
  CHUNK_HEADER_BYTES,
  DATA_HEADER_BYTES,
  SIMPLE_REPLY_BYTES,
  putChunk,
  putDataChunk,
  putSimpleReply,
} from './encode.js';
import type { Cookie } from './parse-request.js';

/** Memory for one reply's header, used again and again, so that a reply allocates nothing. */
export class ReplyBuffer {
  readonly #bytes = new Uint8Array(DATA_HEADER_BYTES);
  readonly #view = viewOf(this.#bytes);
  readonly #simple = this.#bytes.subarray(0, SIMPLE_REPLY_BYTES);
  readonly #chunk = this.#bytes.subarray(0, CHUNK_HEADER_BYTES);

  simple(cookie: Cookie, errno: number): Uint8Array {
    putSimpleReply(this.#view, cookie, errno);
    return this.#simple;
  }

  chunk(cookie: Cookie, type: number, payloadBytes: number): Uint8Array {
    putChunk(this.#view, cookie, type, payloadBytes);
    return this.#chunk;
  }

  dataChunk(cookie: Cookie, offset: number, dataBytes: number): Uint8Array {
    putDataChunk(this.#view, cookie, offset, dataBytes);
    return this.#bytes;
  }
}
