import type { Extent } from '../io/io.js';
import { encodeTextWithin, viewOf, writeUint64 } from './bytes.js';
import {
  ALLOCATION_CONTEXT_ID,
  CHUNK,
  CHUNK_FLAG_DONE,
  MAX_STATUS_EXTENTS,
  REQUEST_MAGIC,
  SIMPLE_REPLY_MAGIC,
  STATE,
  STRUCTURED_REPLY_MAGIC,
} from './commands.js';
import type { ReplyError } from './error-codes.js';
import type { Cookie, RawRequest } from './parse-request.js';

export const SIMPLE_REPLY_BYTES = 16;
export const CHUNK_HEADER_BYTES = 20;
/** A chunk header and the offset of its data. */
export const DATA_HEADER_BYTES = CHUNK_HEADER_BYTES + 8;
/** Longest error text that is sent. */
const MAX_MESSAGE_BYTES = 1024;

export function putRequest(view: DataView, request: RawRequest): void {
  view.setUint32(0, REQUEST_MAGIC);
  view.setUint16(4, request.flags);
  view.setUint16(6, request.type);
  view.setUint32(8, request.cookie.high);
  view.setUint32(12, request.cookie.low);
  writeUint64(view, 16, request.offset);
  view.setUint32(24, request.length);
}

export function putSimpleReply(view: DataView, cookie: Cookie, errno: number): void {
  view.setUint32(0, SIMPLE_REPLY_MAGIC);
  view.setUint32(4, errno);
  view.setUint32(8, cookie.high);
  view.setUint32(12, cookie.low);
}

/** The header of the only chunk of a reply. */
export function putChunk(view: DataView, cookie: Cookie, type: number, payloadBytes: number): void {
  view.setUint32(0, STRUCTURED_REPLY_MAGIC);
  view.setUint16(4, CHUNK_FLAG_DONE);
  view.setUint16(6, type);
  view.setUint32(8, cookie.high);
  view.setUint32(12, cookie.low);
  view.setUint32(16, payloadBytes);
}

/** The header of a whole read's data. */
export function putDataChunk(view: DataView, cookie: Cookie, offset: number, dataBytes: number): void {
  putChunk(view, cookie, CHUNK.offsetData, 8 + dataBytes);
  writeUint64(view, CHUNK_HEADER_BYTES, offset);
}

export function encodeErrorChunk(cookie: Cookie, error: ReplyError): Uint8Array {
  const message = encodeTextWithin(error.message, MAX_MESSAGE_BYTES);
  const bytes = new Uint8Array(CHUNK_HEADER_BYTES + 6 + message.length);
  const view = viewOf(bytes);
  putChunk(view, cookie, CHUNK.error, 6 + message.length);
  view.setUint32(CHUNK_HEADER_BYTES, error.errno);
  view.setUint16(CHUNK_HEADER_BYTES + 4, message.length);
  bytes.set(message, CHUNK_HEADER_BYTES + 6);
  return bytes;
}

/**
 * A block status reply about the first of `length` bytes. `extents` is a gapless, non-empty row from the range's
 * start; with `one` only its first extent is told. Undefined where the row tells nothing.
 */
export function encodeBlockStatus(
  cookie: Cookie,
  extents: readonly Extent[],
  length: number,
  one: boolean,
): Uint8Array | undefined {
  const rows = mergeExtents(extents, length).slice(0, one ? 1 : MAX_STATUS_EXTENTS);
  if (rows.length === 0) return undefined;
  const bytes = new Uint8Array(CHUNK_HEADER_BYTES + 4 + rows.length * 8);
  const view = viewOf(bytes);
  putChunk(view, cookie, CHUNK.blockStatus, 4 + rows.length * 8);
  view.setUint32(CHUNK_HEADER_BYTES, ALLOCATION_CONTEXT_ID);
  rows.forEach((extent, index) => {
    const at = CHUNK_HEADER_BYTES + 4 + index * 8;
    view.setUint32(at, extent.length);
    view.setUint32(at + 4, extent.hole ? STATE.hole | STATE.zero : 0);
  });
  return bytes;
}

/** Neighbours of one kind joined, cut at `length`. */
function mergeExtents(extents: readonly Extent[], length: number): Extent[] {
  const merged: Extent[] = [];
  let left = length;
  for (const extent of extents) {
    const part = Math.min(extent.length, left);
    if (part <= 0) continue;
    left -= part;
    const last = merged.at(-1);
    if (last?.hole === extent.hole) merged[merged.length - 1] = { length: last.length + part, hole: last.hole };
    else merged.push({ length: part, hole: extent.hole });
  }
  return merged;
}
