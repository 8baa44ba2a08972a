import type { Extent } from '../io/io.js';
import { decodeText, readUint64, viewOf } from './bytes.js';
import {
  CHUNK,
  CHUNK_FLAG_DONE,
  MAX_STRING_BYTES,
  SIMPLE_REPLY_MAGIC,
  STATE,
  STRUCTURED_REPLY_MAGIC,
} from './commands.js';
import type { ReplyError } from './error-codes.js';
import type { Cookie } from './parse-request.js';

/** As much of a reply as every kind has; a structured one goes on with CHUNK_LENGTH_BYTES of length. */
export const REPLY_START_BYTES = 16;
export const CHUNK_LENGTH_BYTES = 4;
/** Payload of an error chunk: fixed fields of the longest kind, and the text. */
export const MAX_ERROR_BYTES = 14 + MAX_STRING_BYTES;

export type ReplyStart =
  | { readonly kind: 'simple'; readonly errno: number; readonly cookie: Cookie }
  | { readonly kind: 'chunk'; readonly done: boolean; readonly type: number; readonly cookie: Cookie };

/** The first bytes of a reply; undefined: the stream is out of step. */
export function parseReplyStart(view: DataView): ReplyStart | undefined {
  const cookie = { high: view.getUint32(8), low: view.getUint32(12) };
  switch (view.getUint32(0)) {
    case SIMPLE_REPLY_MAGIC:
      return { kind: 'simple', errno: view.getUint32(4), cookie };
    case STRUCTURED_REPLY_MAGIC:
      return { kind: 'chunk', done: (view.getUint16(4) & CHUNK_FLAG_DONE) !== 0, type: view.getUint16(6), cookie };
    default:
      return undefined;
  }
}

/** The payload of an error chunk; undefined where it contradicts itself. */
export function parseErrorChunk(type: number, payload: Uint8Array): ReplyError | undefined {
  if (payload.length < 6) return undefined;
  const view = viewOf(payload);
  const errno = view.getUint32(0);
  const length = view.getUint16(4);
  const rest = payload.length - 6 - length;
  if (errno === 0 || length > MAX_STRING_BYTES || rest < 0) return undefined;
  if (type === CHUNK.error && rest !== 0) return undefined;
  if (type === CHUNK.errorOffset && rest !== 8) return undefined;
  return { errno, message: decodeText(payload.subarray(6, 6 + length)) };
}

/** The range of an OFFSET_HOLE chunk; undefined where the payload is malformed. */
export function parseHole(payload: Uint8Array): { readonly offset: number; readonly length: number } | undefined {
  if (payload.length !== 12) return undefined;
  const view = viewOf(payload);
  return { offset: readUint64(view, 0), length: view.getUint32(8) };
}

/**
 * The extents of a block status chunk, cut at `length`, which may cover less but never nothing; undefined where the
 * payload is malformed or is about another context.
 */
export function parseBlockStatus(payload: Uint8Array, contextId: number, length: number): Extent[] | undefined {
  if (payload.length < 12 || (payload.length - 4) % 8 !== 0) return undefined;
  const view = viewOf(payload);
  if (view.getUint32(0) !== contextId) return undefined;
  const extents: Extent[] = [];
  let left = length;
  for (let at = 4; at < payload.length && left > 0; at += 8) {
    const told = view.getUint32(at);
    if (told === 0) return undefined;
    const part = Math.min(told, left);
    left -= part;
    // A hole whose content is not known to be zero must be read, so it counts as data here.
    extents.push({ length: part, hole: (view.getUint32(at + 4) & STATE.zero) !== 0 });
  }
  return extents;
}
