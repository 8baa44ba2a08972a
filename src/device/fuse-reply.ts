import type { FuseHeader } from './fuse-request.js';

/** The replies of a FUSE filesystem as bytes (linux/fuse.h). Pure. */

export const OUT_HEADER_BYTES = 16;

/** The protocol version that is spoken here; the kernel keeps to the lower of the two. */
export const FUSE_MAJOR = 7;
const FUSE_MINOR = 38;

const INIT_FLAG = {
  asyncRead: 1 << 0,
  bigWrites: 1 << 5,
  /** Direct I/O that the caller does not wait for is sent as many requests at once. */
  asyncDirectIo: 1 << 15,
  parallelDirectoryOperations: 1 << 18,
  maxPages: 1 << 22,
} as const;

const FOPEN = { directIo: 1 << 0, parallelDirectWrites: 1 << 6 } as const;

const FUSE_PAGE_BYTES = 4096;
const NANOSECONDS = 1;

export interface FuseLimits {
  /** Largest READ and WRITE, in bytes; a multiple of 4096. */
  readonly maxTransferBytes: number;
  /** Requests that the kernel has under way at once where nobody waits for each. */
  readonly maxBackground: number;
}

export interface FuseAttributes {
  readonly node: number;
  readonly kind: 'directory' | 'file';
  readonly sizeBytes: number;
  /** Permission bits. */
  readonly mode: number;
}

/** The header of a reply: `errno` 0 for success, and the length of the body that follows. */
export function replyHeader(request: FuseHeader, errno: number, bodyBytes: number): Uint8Array {
  const bytes = new Uint8Array(OUT_HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, OUT_HEADER_BYTES + bodyBytes, true);
  view.setInt32(4, -errno, true);
  view.setBigUint64(8, request.unique, true);
  return bytes;
}

/** `kernel` is what its INIT said; only features it knows are asked for. */
export function initBody(kernel: { minor: number; flags: number }, limits: FuseLimits): Uint8Array {
  const wanted = Object.values(INIT_FLAG).reduce((flags, flag) => flags | flag, 0);
  const [bytes, view] = body(64);
  view.setUint32(0, FUSE_MAJOR, true);
  view.setUint32(4, Math.min(kernel.minor, FUSE_MINOR), true);
  view.setUint32(8, 0, true);
  view.setUint32(12, wanted & kernel.flags, true);
  view.setUint16(16, limits.maxBackground, true);
  view.setUint16(18, Math.ceil(limits.maxBackground * 0.75), true);
  view.setUint32(20, limits.maxTransferBytes, true);
  view.setUint32(24, NANOSECONDS, true);
  view.setUint16(28, limits.maxTransferBytes / FUSE_PAGE_BYTES, true);
  return bytes;
}

/** Where the kernel speaks another major version: it then begins anew with this one. */
export function initVersionBody(): Uint8Array {
  const [bytes, view] = body(64);
  view.setUint32(0, FUSE_MAJOR, true);
  view.setUint32(4, FUSE_MINOR, true);
  return bytes;
}

/**
 * How long the kernel may keep attributes. Long, since it asks for some of them whenever somebody lists the loop devices
 * of the machine, and would wait for the answer while I/O waits and requests are not received. Growth asks past it.
 */
const ATTRIBUTES_SECONDS = 86_400n;

/** The answer to LOOKUP. */
export function entryBody(attributes: FuseAttributes): Uint8Array {
  const [bytes, view] = body(128);
  view.setBigUint64(0, BigInt(attributes.node), true);
  view.setBigUint64(8, 1n, true);
  view.setBigUint64(24, ATTRIBUTES_SECONDS, true);
  putAttributes(view, 40, attributes);
  return bytes;
}

/** The answer to GETATTR. */
export function attributesBody(attributes: FuseAttributes): Uint8Array {
  const [bytes, view] = body(104);
  view.setBigUint64(0, ATTRIBUTES_SECONDS, true);
  putAttributes(view, 16, attributes);
  return bytes;
}

/** The answer to OPEN of the file: no page cache, and writes side by side. */
export function openBody(): Uint8Array {
  const [bytes, view] = body(16);
  view.setUint32(8, FOPEN.directIo | FOPEN.parallelDirectWrites, true);
  return bytes;
}

/** The answer to OPENDIR. */
export function openDirectoryBody(): Uint8Array {
  return body(16)[0];
}

export function writeBody(writtenBytes: number): Uint8Array {
  const [bytes, view] = body(8);
  view.setUint32(0, writtenBytes, true);
  return bytes;
}

/** A full filesystem of the file's size with 4 KiB blocks; the block size is also the unit of discards. */
export function statfsBody(sizeBytes: number): Uint8Array {
  const [bytes, view] = body(80);
  view.setBigUint64(0, BigInt(sizeBytes / FUSE_PAGE_BYTES), true);
  view.setBigUint64(24, 1n, true);
  view.setUint32(40, FUSE_PAGE_BYTES, true);
  view.setUint32(44, 255, true);
  view.setUint32(48, FUSE_PAGE_BYTES, true);
  return bytes;
}

export interface DirectoryEntry {
  readonly node: number;
  readonly name: string;
  readonly kind: 'directory' | 'file';
}

/** The answer to READDIR from the entry number `first` on, at most `limitBytes` long. */
export function directoryBody(entries: readonly DirectoryEntry[], first: number, limitBytes: number): Uint8Array {
  const records: Uint8Array[] = [];
  let length = 0;
  for (const [index, entry] of entries.entries()) {
    if (index < first) continue;
    const record = directoryRecord(entry, index + 1);
    if (length + record.length > limitBytes) break;
    records.push(record);
    length += record.length;
  }
  return Buffer.concat(records);
}

function directoryRecord(entry: DirectoryEntry, next: number): Uint8Array {
  const name = Buffer.from(entry.name);
  const [bytes, view] = body(Math.ceil((24 + name.length) / 8) * 8);
  view.setBigUint64(0, BigInt(entry.node), true);
  view.setBigUint64(8, BigInt(next), true);
  view.setUint32(16, name.length, true);
  view.setUint32(20, entry.kind === 'directory' ? 4 : 8, true);
  bytes.set(name, 24);
  return bytes;
}

function putAttributes(view: DataView, at: number, attributes: FuseAttributes): void {
  view.setBigUint64(at, BigInt(attributes.node), true);
  view.setBigUint64(at + 8, BigInt(attributes.sizeBytes), true);
  view.setBigUint64(at + 16, BigInt(Math.ceil(attributes.sizeBytes / 512)), true);
  const format = attributes.kind === 'directory' ? 0o040000 : 0o100000;
  view.setUint32(at + 60, format | attributes.mode, true);
  view.setUint32(at + 64, attributes.kind === 'directory' ? 2 : 1, true);
  view.setUint32(at + 80, FUSE_PAGE_BYTES, true);
}

function body(length: number): [Uint8Array, DataView] {
  const bytes = new Uint8Array(length);
  return [bytes, new DataView(bytes.buffer)];
}
