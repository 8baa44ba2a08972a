/**
 * The words of the NBD protocol (the public NetworkBlockDevice doc/proto.md, fixed newstyle), one table for each kind.
 * Everything on the wire is big-endian.
 */

/** "NBDMAGIC" and "IHAVEOPT", which open the handshake, in two halves each. */
export const NBD_MAGIC = [0x4e42444d, 0x41474943] as const;
export const OPTION_MAGIC = [0x49484156, 0x454f5054] as const;
export const OPTION_REPLY_MAGIC = [0x0003e889, 0x045565a9] as const;
export const REQUEST_MAGIC = 0x25609513;
export const SIMPLE_REPLY_MAGIC = 0x67446698;
export const STRUCTURED_REPLY_MAGIC = 0x668e33ef;

/** Handshake flags of the server, and the client's answer, which has the same bits. */
export const HANDSHAKE_FLAG = { fixedNewstyle: 1, noZeroes: 2 } as const;

/** Size constraints that this server tells (NBD_INFO_BLOCK_SIZE). */
export const BLOCK_BYTES = 4096;
export const MAX_PAYLOAD_BYTES = 4 * 1024 * 1024;
/** A payload above MAX_PAYLOAD_BYTES is read and thrown away up to here; beyond, the connection ends. */
export const MAX_DISCARD_BYTES = 64 * 1024 * 1024;
/** Each way of a private command. */
export const MAX_CONTROL_BYTES = 1024 * 1024;
/** Longest string of the protocol, export names and error messages included. */
export const MAX_STRING_BYTES = 4096;
/** Data of one option or option reply. */
export const MAX_OPTION_BYTES = 64 * 1024;
/** Descriptors in one block status reply. */
export const MAX_STATUS_EXTENTS = 4096;

export const TRANSMISSION_FLAG = {
  hasFlags: 1 << 0,
  readOnly: 1 << 1,
  sendFlush: 1 << 2,
  sendFua: 1 << 3,
  sendTrim: 1 << 5,
  sendWriteZeroes: 1 << 6,
  sendDf: 1 << 7,
  canMultiConn: 1 << 8,
  sendFastZero: 1 << 11,
} as const;

export const COMMAND_FLAG = { fua: 1, noHole: 2, df: 4, reqOne: 8, fastZero: 16 } as const;

/** All that holds for one command. */
export interface Command {
  readonly name: CommandName;
  readonly number: number;
  /** The request is followed by `length` bytes. */
  readonly payload: boolean;
  /** Offset and length are a range of the export. */
  readonly ranged: boolean;
  /** Changes the export: refused with EPERM where that is read-only. */
  readonly writes: boolean;
  /** Greatest `length`. */
  readonly maxLength: number;
  /** Command flags that may be set. FUA is allowed on every command, as the protocol asks. */
  readonly flags: number;
  /** The answer can only be a structured reply. */
  readonly structured: boolean;
}

export type CommandName =
  'read' | 'write' | 'disconnect' | 'flush' | 'trim' | 'write-zeroes' | 'block-status' | 'holdfast';

/** Trim, write-zeroes and block-status carry no data, so only the field bounds their length. */
const ANY_LENGTH = 0xffffffff;
const { fua, noHole, df, reqOne, fastZero } = COMMAND_FLAG;

export const COMMANDS: Readonly<Record<CommandName, Command>> = {
  read: row('read', 0, { ranged: true, maxLength: MAX_PAYLOAD_BYTES, flags: df }),
  write: row('write', 1, { payload: true, ranged: true, writes: true, maxLength: MAX_PAYLOAD_BYTES }),
  disconnect: row('disconnect', 2, {}),
  flush: row('flush', 3, {}),
  trim: row('trim', 4, { ranged: true, writes: true, maxLength: ANY_LENGTH }),
  'write-zeroes': row('write-zeroes', 6, {
    ranged: true,
    writes: true,
    maxLength: ANY_LENGTH,
    flags: noHole | fastZero,
  }),
  'block-status': row('block-status', 7, { ranged: true, maxLength: ANY_LENGTH, flags: reqOne, structured: true }),
  // NBD_CMD_HOLDFAST, private: the payload is a control message, and so is the answer's.
  holdfast: row('holdfast', 0x4846, { payload: true, maxLength: MAX_CONTROL_BYTES, structured: true }),
};

const BY_NUMBER: ReadonlyMap<number, Command> = new Map(
  Object.values(COMMANDS).map((command) => [command.number, command]),
);

export function commandOf(number: number): Command | undefined {
  return BY_NUMBER.get(number);
}

function row(name: CommandName, number: number, rest: Partial<Command>): Command {
  const none = { payload: false, ranged: false, writes: false, maxLength: ANY_LENGTH, structured: false };
  return { ...none, ...rest, name, number, flags: fua | (rest.flags ?? 0) };
}

export const OPTION = {
  exportName: 1,
  abort: 2,
  list: 3,
  startTls: 5,
  info: 6,
  go: 7,
  structuredReply: 8,
  listMetaContext: 9,
  setMetaContext: 10,
} as const;

export const OPTION_REPLY = { ack: 1, server: 2, info: 3, metaContext: 4 } as const;

/** Bit 31 marks an option reply as an error; the data is a text for people. */
export const OPTION_ERROR = {
  unsupported: 0x80000001,
  policy: 0x80000002,
  invalid: 0x80000003,
  platform: 0x80000004,
  tlsRequired: 0x80000005,
  unknown: 0x80000006,
  shutdown: 0x80000007,
  blockSizeRequired: 0x80000008,
  tooBig: 0x80000009,
} as const;

export const INFO = { export: 0, name: 1, description: 2, blockSize: 3 } as const;

export const CHUNK_FLAG_DONE = 1;

export const CHUNK = {
  none: 0,
  offsetData: 1,
  offsetHole: 2,
  blockStatus: 5,
  /** Private: the answer to NBD_CMD_HOLDFAST. */
  holdfast: 0x4846,
  error: 0x8001,
  errorOffset: 0x8002,
} as const;

/** Bit 15 marks a chunk type as an error. */
export const CHUNK_ERROR_BIT = 0x8000;

/** The one metadata context, its id on this server, and its flags. */
export const ALLOCATION_CONTEXT = 'base:allocation';
export const ALLOCATION_CONTEXT_ID = 1;
export const STATE = { hole: 1, zero: 2 } as const;

export const ERRNO = {
  EPERM: 1,
  EIO: 5,
  ENOMEM: 12,
  EINVAL: 22,
  ENOSPC: 28,
  /** Private, told in a session of a replica only: the data on its disk is not what was written. */
  EBADMSG: 74,
  EOVERFLOW: 75,
  ENOTSUP: 95,
  ESHUTDOWN: 108,
} as const;
