import { encodeText, encodeTextWithin, joinBytes, viewOf, writeUint64 } from './bytes.js';
import {
  ALLOCATION_CONTEXT,
  ALLOCATION_CONTEXT_ID,
  BLOCK_BYTES,
  HANDSHAKE_FLAG,
  INFO,
  MAX_PAYLOAD_BYTES,
  NBD_MAGIC,
  OPTION,
  OPTION_ERROR,
  OPTION_MAGIC,
  OPTION_REPLY,
  OPTION_REPLY_MAGIC,
  TRANSMISSION_FLAG,
} from './commands.js';
import { parseExportName, parseGo, parseMetaContext } from './parse-option.js';

/**
 * The server's half of the fixed newstyle handshake, as a pure state machine: the caller reads what a client sends,
 * hands it over, and does what the decision says. Opening and describing exports is the caller's.
 */

export const CLIENT_FLAGS_BYTES = 4;
const EXPORT_NAME_PADDING_BYTES = 124;
const MAX_OPTION_MESSAGE_BYTES = 1024;

export type Decision =
  | { readonly kind: 'answer'; readonly bytes: Uint8Array }
  /** Answer, and the client ends the connection. */
  | { readonly kind: 'abort'; readonly bytes: Uint8Array }
  /** NBD_OPT_INFO, NBD_OPT_GO and NBD_OPT_EXPORT_NAME: look the export up or open it, then answer. */
  | { readonly kind: 'export'; readonly option: number; readonly name: string; readonly infos: readonly number[] }
  /** Not to be answered: the connection ends. */
  | { readonly kind: 'end'; readonly reason: string };

/** What the handshake says about an export. */
export interface ExportFacts {
  readonly sizeBytes: number;
  readonly readOnly: boolean;
}

export class ServerHandshake {
  structured = false;
  #noZeroes = false;
  #contextOf: string | undefined;

  /** The first bytes on a connection. */
  greeting(): Uint8Array {
    const bytes = new Uint8Array(18);
    const view = viewOf(bytes);
    [...NBD_MAGIC, ...OPTION_MAGIC].forEach((word, index) => view.setUint32(index * 4, word));
    view.setUint16(16, HANDSHAKE_FLAG.fixedNewstyle | HANDSHAKE_FLAG.noZeroes);
    return bytes;
  }

  /** Takes the client's flags; false where it set one that there is not, which ends the connection. */
  clientFlags(bytes: Uint8Array): boolean {
    const flags = viewOf(bytes).getUint32(0);
    this.#noZeroes = (flags & HANDSHAKE_FLAG.noZeroes) !== 0;
    return (flags & ~(HANDSHAKE_FLAG.fixedNewstyle | HANDSHAKE_FLAG.noZeroes)) === 0;
  }

  /** base:allocation was selected for just this export. */
  blockStatus(name: string): boolean {
    return this.structured && this.#contextOf === name;
  }

  /** Decides on one option. `list` is asked for names only if the client lists. */
  option(option: number, data: Uint8Array, list: () => string[]): Decision {
    switch (option) {
      case OPTION.exportName: {
        const name = parseExportName(data);
        if (name === undefined) return { kind: 'end', reason: 'an export name that is too long or no text' };
        return { kind: 'export', option, name, infos: [] };
      }
      case OPTION.abort:
        return { kind: 'abort', bytes: encodeOptionReply(option, OPTION_REPLY.ack) };
      case OPTION.list:
        if (data.length > 0) return refuse(option, OPTION_ERROR.invalid, 'NBD_OPT_LIST takes no data');
        return { kind: 'answer', bytes: encodeList(list()) };
      case OPTION.info:
      case OPTION.go: {
        const go = parseGo(data);
        if (go === undefined) return refuse(option, OPTION_ERROR.invalid, 'the name or the list of infos is malformed');
        return { kind: 'export', option, ...go };
      }
      case OPTION.structuredReply:
        if (data.length > 0) return refuse(option, OPTION_ERROR.invalid, 'NBD_OPT_STRUCTURED_REPLY takes no data');
        this.structured = true;
        return { kind: 'answer', bytes: encodeOptionReply(option, OPTION_REPLY.ack) };
      case OPTION.listMetaContext:
      case OPTION.setMetaContext:
        return this.#metaContext(option, data);
      default:
        return refuse(option, OPTION_ERROR.unsupported, `option ${option} is not supported`);
    }
  }

  /** The answer that says all about an export and, for NBD_OPT_GO and NBD_OPT_EXPORT_NAME, enters transmission. */
  accept(option: number, name: string, infos: readonly number[], facts: ExportFacts): Uint8Array {
    const flags = this.#transmissionFlags(facts.readOnly);
    if (option === OPTION.exportName) return encodeExportName(facts.sizeBytes, flags, this.#noZeroes);
    const replies = [encodeOptionReply(option, OPTION_REPLY.info, encodeExportInfo(facts.sizeBytes, flags))];
    // Told even to those who don't ask: what they then do against it is refused, not carried out.
    replies.push(encodeOptionReply(option, OPTION_REPLY.info, encodeBlockSize()));
    if (infos.includes(INFO.name)) {
      replies.push(encodeOptionReply(option, OPTION_REPLY.info, encodeTextInfo(INFO.name, name)));
    }
    if (infos.includes(INFO.description)) {
      replies.push(encodeOptionReply(option, OPTION_REPLY.info, encodeTextInfo(INFO.description, 'Holdfast volume')));
    }
    replies.push(encodeOptionReply(option, OPTION_REPLY.ack));
    return joinBytes(replies);
  }

  #transmissionFlags(readOnly: boolean): number {
    const flag = TRANSMISSION_FLAG;
    const always = flag.hasFlags | flag.sendFlush | flag.sendFua | flag.canMultiConn;
    const writing = flag.sendTrim | flag.sendWriteZeroes | flag.sendFastZero;
    return always | (this.structured ? flag.sendDf : 0) | (readOnly ? flag.readOnly : writing);
  }

  #metaContext(option: number, data: Uint8Array): Decision {
    // A failed selection drops the one before.
    if (option === OPTION.setMetaContext) this.#contextOf = undefined;
    const request = parseMetaContext(data);
    if (request === undefined) return refuse(option, OPTION_ERROR.invalid, 'the name or the queries are malformed');
    if (!this.structured) {
      return refuse(option, OPTION_ERROR.invalid, 'metadata contexts need structured replies; negotiate them first');
    }
    const { name, queries } = request;
    const setting = option === OPTION.setMetaContext;
    const found = setting
      ? queries.includes(ALLOCATION_CONTEXT)
      : queries.length === 0 || queries.includes('base:') || queries.includes(ALLOCATION_CONTEXT);
    if (setting && found) this.#contextOf = name;
    const replies = [encodeOptionReply(option, OPTION_REPLY.ack)];
    if (found) replies.unshift(encodeOptionReply(option, OPTION_REPLY.metaContext, encodeContext(setting)));
    return { kind: 'answer', bytes: joinBytes(replies) };
  }
}

/** An error answer to an option. */
export function encodeOptionError(option: number, type: number, message: string): Uint8Array {
  return encodeOptionReply(option, type, encodeTextWithin(message, MAX_OPTION_MESSAGE_BYTES));
}

function refuse(option: number, type: number, message: string): Decision {
  return { kind: 'answer', bytes: encodeOptionError(option, type, message) };
}

function encodeOptionReply(option: number, type: number, data: Uint8Array = new Uint8Array(0)): Uint8Array {
  const bytes = new Uint8Array(20 + data.length);
  const view = viewOf(bytes);
  OPTION_REPLY_MAGIC.forEach((word, index) => view.setUint32(index * 4, word));
  view.setUint32(8, option);
  view.setUint32(12, type);
  view.setUint32(16, data.length);
  bytes.set(data, 20);
  return bytes;
}

function encodeList(names: string[]): Uint8Array {
  const replies = names.map((name) => {
    const text = encodeText(name);
    const data = new Uint8Array(4 + text.length);
    viewOf(data).setUint32(0, text.length);
    data.set(text, 4);
    return encodeOptionReply(OPTION.list, OPTION_REPLY.server, data);
  });
  return joinBytes([...replies, encodeOptionReply(OPTION.list, OPTION_REPLY.ack)]);
}

function encodeExportInfo(sizeBytes: number, flags: number): Uint8Array {
  const data = new Uint8Array(12);
  const view = viewOf(data);
  view.setUint16(0, INFO.export);
  writeUint64(view, 2, sizeBytes);
  view.setUint16(10, flags);
  return data;
}

function encodeBlockSize(): Uint8Array {
  const data = new Uint8Array(14);
  const view = viewOf(data);
  view.setUint16(0, INFO.blockSize);
  view.setUint32(2, BLOCK_BYTES);
  view.setUint32(6, BLOCK_BYTES);
  view.setUint32(10, MAX_PAYLOAD_BYTES);
  return data;
}

function encodeTextInfo(info: number, text: string): Uint8Array {
  const encoded = encodeText(text);
  const data = new Uint8Array(2 + encoded.length);
  viewOf(data).setUint16(0, info);
  data.set(encoded, 2);
  return data;
}

function encodeContext(setting: boolean): Uint8Array {
  const name = encodeText(ALLOCATION_CONTEXT);
  const data = new Uint8Array(4 + name.length);
  viewOf(data).setUint32(0, setting ? ALLOCATION_CONTEXT_ID : 0);
  data.set(name, 4);
  return data;
}

function encodeExportName(sizeBytes: number, flags: number, noZeroes: boolean): Uint8Array {
  const bytes = new Uint8Array(10 + (noZeroes ? 0 : EXPORT_NAME_PADDING_BYTES));
  const view = viewOf(bytes);
  writeUint64(view, 0, sizeBytes);
  view.setUint16(8, flags);
  return bytes;
}
