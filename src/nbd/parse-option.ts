import { decodeName, decodeText, readUint64, viewOf } from './bytes.js';
import { INFO, MAX_STRING_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC } from './commands.js';

export const OPTION_HEADER_BYTES = 16;
export const OPTION_REPLY_HEADER_BYTES = 20;

export interface OptionHeader {
  readonly option: number;
  readonly length: number;
}

/** Header of an option that a client sends; undefined: the stream is out of step. */
export function parseOptionHeader(bytes: Uint8Array): OptionHeader | undefined {
  const view = viewOf(bytes);
  if (view.getUint32(0) !== OPTION_MAGIC[0] || view.getUint32(4) !== OPTION_MAGIC[1]) return undefined;
  return { option: view.getUint32(8), length: view.getUint32(12) };
}

export interface OptionReplyHeader {
  readonly option: number;
  readonly type: number;
  readonly length: number;
}

/** Header of a server's answer to an option; undefined: the stream is out of step. */
export function parseOptionReplyHeader(bytes: Uint8Array): OptionReplyHeader | undefined {
  const view = viewOf(bytes);
  if (view.getUint32(0) !== OPTION_REPLY_MAGIC[0] || view.getUint32(4) !== OPTION_REPLY_MAGIC[1]) return undefined;
  return { option: view.getUint32(8), type: view.getUint32(12), length: view.getUint32(16) };
}

/** The data of NBD_OPT_EXPORT_NAME. */
export function parseExportName(data: Uint8Array): string | undefined {
  return data.length > MAX_STRING_BYTES ? undefined : decodeName(data);
}

export interface GoRequest {
  readonly name: string;
  /** NBD_INFO types that the client asks for. */
  readonly infos: readonly number[];
}

/** The data of NBD_OPT_INFO and NBD_OPT_GO; undefined where it is malformed. */
export function parseGo(data: Uint8Array): GoRequest | undefined {
  const fields = new Fields(data);
  const name = fields.string();
  const count = fields.uint16();
  if (name === undefined || count === undefined || fields.left !== count * 2) return undefined;
  const infos: number[] = [];
  for (let info = fields.uint16(); info !== undefined; info = fields.uint16()) infos.push(info);
  return { name, infos };
}

export interface MetaContextRequest {
  readonly name: string;
  readonly queries: readonly string[];
}

/** The data of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT; undefined where it is malformed. */
export function parseMetaContext(data: Uint8Array): MetaContextRequest | undefined {
  const fields = new Fields(data);
  const name = fields.string();
  const count = fields.uint32();
  if (name === undefined || count === undefined) return undefined;
  const queries: string[] = [];
  // A query takes at least its length field, so a lying count ends with the data.
  for (let index = 0; index < count; index++) {
    const query = fields.string();
    if (query === undefined) return undefined;
    queries.push(query);
  }
  return fields.left === 0 ? { name, queries } : undefined;
}

export type Info =
  | { readonly kind: 'export'; readonly sizeBytes: number; readonly flags: number }
  | { readonly kind: 'block-size'; readonly minimum: number; readonly maxPayload: number }
  | { readonly kind: 'other' };

/** The data of NBD_REP_INFO; undefined where it is malformed. */
export function parseInfo(data: Uint8Array): Info | undefined {
  if (data.length < 2) return undefined;
  const view = viewOf(data);
  const type = view.getUint16(0);
  if (type === INFO.export) {
    if (data.length !== 12) return undefined;
    return { kind: 'export', sizeBytes: readUint64(view, 2), flags: view.getUint16(10) };
  }
  if (type === INFO.blockSize) {
    if (data.length !== 14) return undefined;
    return { kind: 'block-size', minimum: view.getUint32(2), maxPayload: view.getUint32(10) };
  }
  return { kind: 'other' };
}

/** The data of NBD_REP_META_CONTEXT; undefined where it is malformed. */
export function parseMetaContextReply(data: Uint8Array): { readonly id: number; readonly name: string } | undefined {
  if (data.length < 4 || data.length > 4 + MAX_STRING_BYTES) return undefined;
  return { id: viewOf(data).getUint32(0), name: decodeText(data.subarray(4)) };
}

/** Reads the fields of an option's data in a row; undefined where they would lie beyond it. */
class Fields {
  #at = 0;
  readonly #view: DataView;

  constructor(private readonly bytes: Uint8Array) {
    this.#view = viewOf(bytes);
  }

  get left(): number {
    return this.bytes.length - this.#at;
  }

  uint16(): number | undefined {
    if (this.left < 2) return undefined;
    this.#at += 2;
    return this.#view.getUint16(this.#at - 2);
  }

  uint32(): number | undefined {
    if (this.left < 4) return undefined;
    this.#at += 4;
    return this.#view.getUint32(this.#at - 4);
  }

  /** A 32-bit length and as many bytes of UTF-8. */
  string(): string | undefined {
    const length = this.uint32();
    if (length === undefined || length > this.left || length > MAX_STRING_BYTES) return undefined;
    this.#at += length;
    return decodeName(this.bytes.subarray(this.#at - length, this.#at));
  }
}
