import { HoldfastError } from '../base/errors.js';
import { decodeText, encodeText, joinBytes, viewOf } from './bytes.js';
import {
  ALLOCATION_CONTEXT,
  BLOCK_BYTES,
  HANDSHAKE_FLAG,
  INFO,
  MAX_OPTION_BYTES,
  MAX_STRING_BYTES,
  NBD_MAGIC,
  OPTION,
  OPTION_ERROR,
  OPTION_MAGIC,
  OPTION_REPLY,
  TRANSMISSION_FLAG,
} from './commands.js';
import { errorOfOption } from './error-codes.js';
import {
  OPTION_REPLY_HEADER_BYTES,
  parseInfo,
  parseMetaContextReply,
  parseOptionReplyHeader,
  type Info,
  type OptionReplyHeader,
} from './parse-option.js';

/** Answers of one option that a client listens to; a server that sends more is given up. */
const MAX_OPTION_REPLIES = 64;
const GREETING_BYTES = 18;

/** What was agreed. */
export interface Session {
  readonly sizeBytes: number;
  readonly readOnly: boolean;
  readonly structured: boolean;
  /** NBD_CMD_FLAG_DF may be set on reads. */
  readonly unfragmented: boolean;
  /** The server's id of base:allocation; undefined: block status can't be asked for. */
  readonly contextId: number | undefined;
}

/** What the handshake wants of its caller: send the bytes, then read just `receive` bytes and hand them over. */
export interface Step {
  readonly send: Uint8Array;
  readonly receive: number;
}

type Steps<Result> = Generator<Step, Result, Uint8Array>;

const NOTHING = new Uint8Array(0);

/**
 * The client's half of the handshake as a pure machine. Throws a HoldfastError where the server refuses (see
 * error-codes.ts), is no NBD server, or lacks what Holdfast needs.
 */
export function* clientHandshake(exportName: string): Steps<Session> {
  if (encodeText(exportName).length > MAX_STRING_BYTES) {
    throw new HoldfastError('invalid-argument', `an export name has at most ${MAX_STRING_BYTES} bytes of UTF-8`);
  }
  const flags = parseGreeting(yield { send: NOTHING, receive: GREETING_BYTES });
  const hello = new Uint8Array(4);
  viewOf(hello).setUint32(0, flags);
  const structured = yield* negotiateStructured(hello);
  const contextId = structured ? yield* selectAllocation(exportName) : undefined;
  const info = yield* go(exportName);
  return {
    sizeBytes: info.sizeBytes,
    readOnly: (info.flags & TRANSMISSION_FLAG.readOnly) !== 0,
    structured,
    unfragmented: structured && (info.flags & TRANSMISSION_FLAG.sendDf) !== 0,
    contextId,
  };
}

/** The client flags that answer the server's greeting. */
function parseGreeting(bytes: Uint8Array): number {
  const view = viewOf(bytes);
  const expected = [...NBD_MAGIC, ...OPTION_MAGIC];
  if (expected.some((word, index) => view.getUint32(index * 4) !== word)) {
    throw new HoldfastError('corrupt', 'the greeting is not that of a newstyle NBD server');
  }
  const flags = view.getUint16(16);
  if ((flags & HANDSHAKE_FLAG.fixedNewstyle) === 0) {
    throw new HoldfastError('unimplemented', 'the server does not offer the fixed newstyle handshake');
  }
  return flags & (HANDSHAKE_FLAG.fixedNewstyle | HANDSHAKE_FLAG.noZeroes);
}

function* negotiateStructured(hello: Uint8Array): Steps<boolean> {
  const request = joinBytes([hello, encodeOption(OPTION.structuredReply, NOTHING)]);
  const answer = yield* ask(OPTION.structuredReply, request, () => undefined);
  if (answer === undefined) return true;
  if (answer.type === OPTION_ERROR.unsupported || answer.type === OPTION_ERROR.policy) return false;
  throw errorOfOption(answer.type, answer.message);
}

function* selectAllocation(exportName: string): Steps<number | undefined> {
  let id: number | undefined;
  const data = encodeMetaContext(exportName, ALLOCATION_CONTEXT);
  const answer = yield* ask(OPTION.setMetaContext, encodeOption(OPTION.setMetaContext, data), (type, bytes) => {
    if (type !== OPTION_REPLY.metaContext) return;
    const context = parseMetaContextReply(bytes);
    if (context === undefined) throw malformed('NBD_REP_META_CONTEXT');
    if (context.name === ALLOCATION_CONTEXT) id = context.id;
  });
  // Without the context all is told to be data, so any refusal will do; a missing export is told again by GO.
  return answer === undefined ? id : undefined;
}

function* go(exportName: string): Steps<Extract<Info, { kind: 'export' }>> {
  const found: Info[] = [];
  const answer = yield* ask(OPTION.go, encodeOption(OPTION.go, encodeGo(exportName)), (type, bytes) => {
    if (type !== OPTION_REPLY.info) return;
    const info = parseInfo(bytes);
    if (info === undefined) throw malformed('NBD_REP_INFO');
    found.push(info);
  });
  if (answer !== undefined) throw errorOfOption(answer.type, answer.message);
  const blockSize = found.find((info) => info.kind === 'block-size');
  if (blockSize !== undefined && blockSize.minimum > BLOCK_BYTES) {
    const told = `${blockSize.minimum} bytes as its smallest block`;
    throw new HoldfastError('unimplemented', `the server tells ${told}; at most ${BLOCK_BYTES} is supported`);
  }
  const info = found.find((candidate) => candidate.kind === 'export');
  if (info === undefined) throw malformed('NBD_OPT_GO without NBD_INFO_EXPORT');
  if (!Number.isSafeInteger(info.sizeBytes)) throw malformed(`export size ${info.sizeBytes}`);
  return info;
}

/** Sends an option and hears all its answers; undefined: acknowledged, else the refusal. */
function* ask(
  option: number,
  request: Uint8Array,
  hear: (type: number, data: Uint8Array) => void,
): Steps<{ type: number; message: string } | undefined> {
  let send = request;
  for (let count = 0; count < MAX_OPTION_REPLIES; count++) {
    const header = checkHeader(option, yield { send, receive: OPTION_REPLY_HEADER_BYTES });
    send = NOTHING;
    const data = header.length === 0 ? NOTHING : yield { send, receive: header.length };
    if (header.type === OPTION_REPLY.ack) return undefined;
    if (header.type >= OPTION_ERROR.unsupported) {
      return { type: header.type, message: decodeText(data.subarray(0, MAX_STRING_BYTES)) };
    }
    hear(header.type, data);
  }
  throw malformed(`more than ${MAX_OPTION_REPLIES} answers to option ${option}`);
}

function checkHeader(option: number, bytes: Uint8Array): OptionReplyHeader {
  const header = parseOptionReplyHeader(bytes);
  if (header?.option !== option) throw malformed(`the answer to option ${option}`);
  if (header.length > MAX_OPTION_BYTES) throw malformed(`an answer of ${header.length} bytes to option ${option}`);
  return header;
}

function malformed(what: string): HoldfastError {
  return new HoldfastError('corrupt', `malformed answer of the NBD server: ${what}`);
}

function encodeOption(option: number, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(16 + data.length);
  const view = viewOf(bytes);
  OPTION_MAGIC.forEach((word, index) => view.setUint32(index * 4, word));
  view.setUint32(8, option);
  view.setUint32(12, data.length);
  bytes.set(data, 16);
  return bytes;
}

function encodeGo(exportName: string): Uint8Array {
  const name = encodeText(exportName);
  const data = new Uint8Array(4 + name.length + 4);
  const view = viewOf(data);
  view.setUint32(0, name.length);
  data.set(name, 4);
  view.setUint16(4 + name.length, 1);
  view.setUint16(6 + name.length, INFO.blockSize);
  return data;
}

function encodeMetaContext(exportName: string, query: string): Uint8Array {
  const name = encodeText(exportName);
  const text = encodeText(query);
  const data = new Uint8Array(4 + name.length + 8 + text.length);
  const view = viewOf(data);
  view.setUint32(0, name.length);
  data.set(name, 4);
  view.setUint32(4 + name.length, 1);
  view.setUint32(8 + name.length, text.length);
  data.set(text, 12 + name.length);
  return data;
}
