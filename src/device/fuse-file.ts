import { PAGE_BYTES } from '../io/io.js';
import {
  FUSE_MAJOR,
  attributesBody,
  directoryBody,
  entryBody,
  initBody,
  initVersionBody,
  openBody,
  openDirectoryBody,
  statfsBody,
  type FuseLimits,
} from './fuse-reply.js';
import type { FuseRequest } from './fuse-request.js';

/**
 * A filesystem that consists of one directory with one file, whose bytes are a block device. Pure: a request and the
 * facts of the file give the action to take.
 */
export interface FuseFile {
  readonly name: string;
  /** A multiple of PAGE_BYTES. */
  readonly sizeBytes: number;
  readonly readOnly: boolean;
  readonly limits: FuseLimits;
}

export type FuseAction =
  /** Answer at once: an errno, or 0 and a body. */
  | { readonly kind: 'reply'; readonly errno: number; readonly body: Uint8Array }
  /** The kernel expects no answer. */
  | { readonly kind: 'silent' }
  /** Carry out on the export and answer then. Ranges are whole pages within the file, never empty. */
  | { readonly kind: 'read' | 'trim' | 'zero'; readonly offset: number; readonly length: number }
  | { readonly kind: 'write'; readonly offset: number; readonly data: Uint8Array }
  | { readonly kind: 'flush' };

export const ERRNO = {
  ENOENT: 2,
  EIO: 5,
  EINVAL: 22,
  ENOSPC: 28,
  EROFS: 30,
  ENOSYS: 38,
  EPROTO: 71,
  EOPNOTSUPP: 95,
} as const;

const ROOT = 1;
const FILE = 2;
const ACCESS_MODE = 3;
const KEEP_SIZE = 0x01;
const PUNCH_HOLE = 0x02;
const ZERO_RANGE = 0x10;
const EMPTY = new Uint8Array(0);

export function actionOf(request: FuseRequest, file: FuseFile): FuseAction {
  const { operation, node } = request;
  switch (operation.kind) {
    case 'init':
      return greet(operation, file);
    case 'lookup':
      return node === ROOT && operation.name === file.name
        ? reply(entryBody(attributes(FILE, file)))
        : refuse(ERRNO.ENOENT);
    case 'getattr':
      return node === ROOT || node === FILE ? reply(attributesBody(attributes(node, file))) : refuse(ERRNO.ENOENT);
    case 'open':
      return open(node, operation.flags, file);
    case 'opendir':
      return node === ROOT ? reply(openDirectoryBody()) : refuse(ERRNO.ENOENT);
    case 'readdir':
      return reply(directoryBody(entries(file), operation.offset, operation.length));
    case 'statfs':
      return reply(statfsBody(file.sizeBytes));
    case 'read':
      return read(operation.offset, operation.length, file);
    case 'write':
      return write(operation.offset, operation.data, file);
    case 'fallocate':
      return deallocate(operation, file);
    case 'fsync':
      return { kind: 'flush' };
    case 'release':
    case 'releasedir':
    case 'destroy':
      return reply(EMPTY);
    case 'forget':
    case 'batch-forget':
      return { kind: 'silent' };
    // A close writes nothing back, and must not wait for the writer; requests are not interrupted. The kernel then
    // asks for neither again.
    case 'flush':
    case 'interrupt':
    case 'unknown':
      return refuse(ERRNO.ENOSYS);
    case 'malformed':
      return refuse(ERRNO.EINVAL);
  }
}

function greet(kernel: { major: number; minor: number; flags: number }, file: FuseFile): FuseAction {
  if (kernel.major < FUSE_MAJOR) return refuse(ERRNO.EPROTO);
  return reply(kernel.major > FUSE_MAJOR ? initVersionBody() : initBody(kernel, file.limits));
}

function open(node: number, flags: number, file: FuseFile): FuseAction {
  if (node !== FILE) return refuse(ERRNO.ENOENT);
  if (file.readOnly && (flags & ACCESS_MODE) !== 0) return refuse(ERRNO.EROFS);
  return reply(openBody());
}

/** A read is cut off at the end of the file. */
function read(offset: number, asked: number, file: FuseFile): FuseAction {
  const length = Math.min(asked, file.sizeBytes - offset);
  if (length <= 0) return reply(EMPTY);
  if (length > file.limits.maxTransferBytes) return refuse(ERRNO.EINVAL);
  return wholePages(offset, length) ? { kind: 'read', offset, length } : refuse(ERRNO.EINVAL);
}

function write(offset: number, data: Uint8Array, file: FuseFile): FuseAction {
  if (file.readOnly) return refuse(ERRNO.EROFS);
  if (data.length === 0 || !wholePages(offset, data.length)) return refuse(ERRNO.EINVAL);
  if (offset + data.length > file.sizeBytes) return refuse(ERRNO.ENOSPC);
  return { kind: 'write', offset, data };
}

function deallocate(range: { offset: number; length: number; mode: number }, file: FuseFile): FuseAction {
  const { offset, length } = range;
  const kind = { [PUNCH_HOLE]: 'trim' as const, [ZERO_RANGE]: 'zero' as const }[range.mode & ~KEEP_SIZE];
  if (kind === undefined) return refuse(ERRNO.EOPNOTSUPP);
  if (file.readOnly) return refuse(ERRNO.EROFS);
  if (length === 0 || !wholePages(offset, length) || offset + length > file.sizeBytes) return refuse(ERRNO.EINVAL);
  return { kind, offset, length };
}

function wholePages(offset: number, length: number): boolean {
  return offset % PAGE_BYTES === 0 && length % PAGE_BYTES === 0;
}

function attributes(node: number, file: FuseFile): Parameters<typeof attributesBody>[0] {
  if (node === ROOT) return { node, kind: 'directory', sizeBytes: 0, mode: 0o700 };
  return { node, kind: 'file', sizeBytes: file.sizeBytes, mode: file.readOnly ? 0o400 : 0o600 };
}

function entries(file: FuseFile): Parameters<typeof directoryBody>[0] {
  return [
    { node: ROOT, name: '.', kind: 'directory' },
    { node: ROOT, name: '..', kind: 'directory' },
    { node: FILE, name: file.name, kind: 'file' },
  ];
}

function reply(body: Uint8Array): FuseAction {
  return { kind: 'reply', errno: 0, body };
}

function refuse(errno: number): FuseAction {
  return { kind: 'reply', errno, body: EMPTY };
}
