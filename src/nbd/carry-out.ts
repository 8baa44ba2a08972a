import { assert } from '../base/assert.js';
import type { Lease, Slab } from '../io/io.js';
import { COMMAND_FLAG, ERRNO, MAX_CONTROL_BYTES, type Command } from './commands.js';
import { encodeBlockStatus } from './encode.js';
import type { ReplyError } from './error-codes.js';
import type { RawRequest } from './parse-request.js';
import type { Export } from './stage.js';

/** What came with a request: a write's data in slab memory, or a private command's bytes. */
export type Payload = { readonly lease: Lease } | { readonly control: Uint8Array } | undefined;

/** What a reply carries. */
export type Result =
  | { readonly kind: 'done' }
  /** The data of a read; whoever sends it releases the lease. */
  | { readonly kind: 'data'; readonly lease: Lease }
  | { readonly kind: 'control'; readonly bytes: Uint8Array }
  /** A whole block status chunk. */
  | { readonly kind: 'status'; readonly chunk: Uint8Array }
  | { readonly kind: 'error'; readonly error: ReplyError };

const DONE: Result = { kind: 'done' };

/** Carries out one accepted request on the export's stage. Rejects as the stage does. */
export async function carryOut(
  opened: Export,
  command: Command,
  request: RawRequest,
  payload: Payload,
  slab: Slab,
): Promise<Result> {
  const { stage } = opened;
  const { offset, length, flags } = request;
  const fua = (flags & COMMAND_FLAG.fua) !== 0;
  if (command.ranged && length === 0) return emptyRange(command);
  switch (command.name) {
    case 'read': {
      const lease = await stage.read(offset, length, slab);
      if (lease.bytes.length !== length) lease.release();
      assert(lease.bytes.length === length, 'a stage reads just what was asked for');
      return { kind: 'data', lease };
    }
    case 'write':
      assert(payload !== undefined && 'lease' in payload, 'a write comes with data');
      await stage.write(offset, payload.lease, fua);
      return DONE;
    case 'flush':
      await stage.flush();
      return DONE;
    case 'trim':
      await stage.trim(offset, length, fua);
      return DONE;
    case 'write-zeroes':
      await stage.zero(offset, length, fua, (flags & COMMAND_FLAG.noHole) !== 0);
      return DONE;
    case 'block-status': {
      const extents = await stage.extents(offset, length);
      const chunk = encodeBlockStatus(request.cookie, extents, length, (flags & COMMAND_FLAG.reqOne) !== 0);
      assert(chunk !== undefined, 'a stage tells at least one extent');
      return { kind: 'status', chunk };
    }
    case 'holdfast': {
      assert(
        payload !== undefined && 'control' in payload && opened.control !== undefined,
        'a private command is taken',
      );
      const bytes = await opened.control(payload.control);
      assert(bytes.length <= MAX_CONTROL_BYTES, 'the answer to a private command is at most 1 MiB');
      return { kind: 'control', bytes };
    }
    case 'disconnect':
      return DONE;
  }
}

/** The protocol leaves open what an empty range does; here it does nothing, but there is no status of nothing. */
function emptyRange(command: Command): Result {
  if (command.name !== 'block-status') return DONE;
  return { kind: 'error', error: { errno: ERRNO.EINVAL, message: 'block status of an empty range' } };
}
