/**
 * What the kernel asks of a FUSE filesystem, parsed from the bytes that one read of /dev/fuse gives (linux/fuse.h,
 * protocol 7.23 and later). Pure. All numbers are in the byte order of the machine, which is little-endian wherever
 * Holdfast runs.
 */

export const IN_HEADER_BYTES = 40;
/** Header of a WRITE, after which the data follows. */
export const WRITE_HEADER_BYTES = IN_HEADER_BYTES + 40;

export const OPCODE = {
  lookup: 1,
  forget: 2,
  getattr: 3,
  open: 14,
  read: 15,
  write: 16,
  statfs: 17,
  release: 18,
  fsync: 20,
  flush: 25,
  init: 26,
  opendir: 27,
  readdir: 28,
  releasedir: 29,
  interrupt: 36,
  destroy: 38,
  'batch-forget': 42,
  fallocate: 43,
} as const;

/** `unique` is the kernel's number of the request, told again in the reply. */
export interface FuseHeader {
  readonly unique: bigint;
  readonly node: number;
}

export type FuseOperation =
  | { readonly kind: 'init'; readonly major: number; readonly minor: number; readonly flags: number }
  | { readonly kind: 'lookup'; readonly name: string }
  | { readonly kind: 'open'; readonly flags: number }
  | { readonly kind: 'read' | 'readdir'; readonly offset: number; readonly length: number }
  | { readonly kind: 'write'; readonly offset: number; readonly data: Uint8Array }
  | { readonly kind: 'fallocate'; readonly offset: number; readonly length: number; readonly mode: number }
  | { readonly kind: Plain }
  /** Well-formed as far as one can see, and not offered. */
  | { readonly kind: 'unknown'; readonly opcode: number }
  /** A known operation with arguments that are too short or out of range. */
  | { readonly kind: 'malformed'; readonly opcode: number };

/** Operations whose arguments don't matter here. */
type Plain =
  | 'forget'
  | 'batch-forget'
  | 'getattr'
  | 'statfs'
  | 'release'
  | 'fsync'
  | 'flush'
  | 'opendir'
  | 'releasedir'
  | 'interrupt'
  | 'destroy';

export type FuseRequest = FuseHeader & { readonly operation: FuseOperation };

const PLAIN: ReadonlyMap<number, Plain> = new Map(
  (
    [
      'forget',
      'batch-forget',
      'getattr',
      'statfs',
      'release',
      'fsync',
      'flush',
      'opendir',
      'releasedir',
      'interrupt',
      'destroy',
    ] as const
  ).map((kind) => [OPCODE[kind], kind] as const),
);

const NAMES = new TextDecoder();

/** Parses one message; undefined where not even a header is there, so that nothing can be answered. */
export function parseFuseRequest(bytes: Uint8Array): FuseRequest | undefined {
  if (bytes.length < IN_HEADER_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getUint32(0, true);
  if (length < IN_HEADER_BYTES || length > bytes.length) return undefined;
  const opcode = view.getUint32(4, true);
  const body = new Body(bytes.subarray(0, length), view);
  return {
    unique: view.getBigUint64(8, true),
    node: Number(view.getBigUint64(16, true)),
    operation: parseOperation(opcode, body) ?? { kind: 'malformed', opcode },
  };
}

function parseOperation(opcode: number, body: Body): FuseOperation | undefined {
  switch (opcode) {
    case OPCODE.init:
      return parseInit(body);
    case OPCODE.lookup:
      return parseLookup(body);
    case OPCODE.open:
      return body.holds(8) ? { kind: 'open', flags: body.u32(0) } : undefined;
    case OPCODE.read:
    case OPCODE.readdir:
      return parseRead(opcode === OPCODE.read ? 'read' : 'readdir', body);
    case OPCODE.write:
      return parseWrite(body);
    case OPCODE.fallocate:
      return parseFallocate(body);
    default: {
      const kind = PLAIN.get(opcode);
      return kind === undefined ? { kind: 'unknown', opcode } : { kind };
    }
  }
}

function parseInit(body: Body): FuseOperation | undefined {
  if (!body.holds(16)) return undefined;
  return { kind: 'init', major: body.u32(0), minor: body.u32(4), flags: body.u32(12) };
}

function parseLookup(body: Body): FuseOperation | undefined {
  const end = body.bytes.indexOf(0, IN_HEADER_BYTES);
  if (end < 0) return undefined;
  return { kind: 'lookup', name: NAMES.decode(body.bytes.subarray(IN_HEADER_BYTES, end)) };
}

function parseRead(kind: 'read' | 'readdir', body: Body): FuseOperation | undefined {
  if (!body.holds(40)) return undefined;
  const offset = body.u64(8);
  return offset === undefined ? undefined : { kind, offset, length: body.u32(16) };
}

function parseWrite(body: Body): FuseOperation | undefined {
  if (!body.holds(40)) return undefined;
  const offset = body.u64(8);
  const length = body.u32(16);
  if (offset === undefined || body.bytes.length !== WRITE_HEADER_BYTES + length) return undefined;
  return { kind: 'write', offset, data: body.bytes.subarray(WRITE_HEADER_BYTES) };
}

function parseFallocate(body: Body): FuseOperation | undefined {
  if (!body.holds(32)) return undefined;
  const offset = body.u64(8);
  const length = body.u64(16);
  if (offset === undefined || length === undefined) return undefined;
  return { kind: 'fallocate', offset, length, mode: body.u32(24) };
}

/** The arguments after the header. */
class Body {
  constructor(
    readonly bytes: Uint8Array,
    private readonly view: DataView,
  ) {}

  holds(length: number): boolean {
    return this.bytes.length >= IN_HEADER_BYTES + length;
  }

  u32(offset: number): number {
    return this.view.getUint32(IN_HEADER_BYTES + offset, true);
  }

  /** Undefined where the number is too large to be exact. */
  u64(offset: number): number | undefined {
    const value = Number(this.view.getBigUint64(IN_HEADER_BYTES + offset, true));
    return Number.isSafeInteger(value) ? value : undefined;
  }
}
