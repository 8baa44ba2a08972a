import { closeSync, writeSync, writevSync } from 'node:fs';
import { codeOf, type ErrorCode } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Lease, Slab } from '../io/io.js';
import type { Stage } from '../nbd/stage.js';
import { ERRNO, actionOf, type FuseAction, type FuseFile } from './fuse-file.js';
import { replyHeader, writeBody } from './fuse-reply.js';
import { parseFuseRequest, type FuseHeader, type FuseRequest } from './fuse-request.js';
import type { Readiness, Watch } from './readiness.js';
import { SystemCallFailed, readNow } from './system-calls.js';

/** Room for the header of a request beside its data. */
const HEADER_ROOM_BYTES = 4096;
/** Data up to here is copied out of the memory that a request is received in; above, that memory goes along. */
const COPY_BYTES = 64 * 1024;
/** NBD's lengths have 32 bits; a multiple of every region and slice keeps the pieces whole. */
const LARGEST_PIECE_BYTES = 1024 * 1024 * 1024;

const EMPTY = new Uint8Array(0);

/** How a failed request is told to the kernel. What is not named is EIO. */
const TOLD: Partial<Record<ErrorCode, number>> = {
  'no-space': ERRNO.ENOSPC,
  'invalid-argument': ERRNO.EINVAL,
  unimplemented: ERRNO.EOPNOTSUPP,
};

export interface FuseChannelParts {
  /** An open /dev/fuse in non-blocking mode. The channel closes it. */
  readonly fd: number;
  /** Asked anew for each request: the size may grow. */
  readonly file: () => FuseFile;
  readonly stage: Stage;
  readonly readiness: Readiness;
  /** Memory for requests: at least 4 KiB more than twice the largest transfer. */
  readonly received: Slab;
  /** Memory for answers to READ. Of its own, so that a waiting write never keeps a read from being answered. */
  readonly answers: Slab;
  readonly log: Log;
}

/**
 * Serves one FUSE connection: reads requests, carries them out on the stage, any number at once, and answers each
 * once. While there is no memory for a further request none is read, and the kernel waits.
 */
export class FuseChannel {
  /** Resolves when the kernel has ended the connection (after an unmount). Never rejects. */
  readonly ended: Promise<void>;
  readonly #watch: Watch;
  #open = true;

  constructor(private readonly parts: FuseChannelParts) {
    this.#watch = parts.readiness.watch(parts.fd);
    this.ended = this.#serve();
  }

  async #serve(): Promise<void> {
    const { fd, log } = this.parts;
    try {
      for (;;) {
        await this.#watch.readable();
        if (!(await this.#drain())) break;
      }
    } catch (error) {
      log.error({ err: error }, 'FUSE connection given up');
    }
    // Answers that come later must not reach whatever gets this number next.
    this.#open = false;
    this.#watch.stop();
    closeSync(fd);
  }

  /** Takes all requests that are there; false at the end of the connection. */
  async #drain(): Promise<boolean> {
    const { received, file } = this.parts;
    for (;;) {
      const lease = await received.take(HEADER_ROOM_BYTES + file().limits.maxTransferBytes);
      try {
        for (;;) {
          const length = readRequest(this.parts.fd, lease.bytes);
          if (length === 'again') return true;
          if (length === 'ended') return false;
          if (length === 'gone') continue;
          const request = parseFuseRequest(lease.bytes.subarray(0, length));
          if (request !== undefined && (await this.#begin(request, lease)) === 'lease-given-away') break;
        }
      } finally {
        lease.release();
      }
    }
  }

  /** Begins one request; a big write keeps the memory it was received in. */
  async #begin(request: FuseRequest, lease: Lease): Promise<'begun' | 'lease-given-away'> {
    const action = actionOf(request, this.parts.file());
    if (action.kind !== 'write') {
      this.#act(request, action);
      return 'begun';
    }
    const { offset, data } = action;
    if (data.length > COPY_BYTES) {
      lease.retain();
      this.#write(request, offset, part(lease, data));
      return 'lease-given-away';
    }
    const copy = await this.parts.received.take(data.length);
    copy.bytes.set(data);
    this.#write(request, offset, copy);
    return 'begun';
  }

  #act(request: FuseHeader, action: Exclude<FuseAction, { kind: 'write' }>): void {
    const { stage } = this.parts;
    switch (action.kind) {
      case 'silent':
        break;
      case 'reply':
        this.#answer(request, action.errno, action.body);
        break;
      case 'read':
        this.#read(request, action.offset, action.length);
        break;
      case 'flush':
        this.#answerWhen(request, stage.flush());
        break;
      case 'trim':
        this.#answerWhen(
          request,
          inPieces(action, (offset, length) => stage.trim(offset, length, false)),
        );
        break;
      case 'zero':
        this.#answerWhen(
          request,
          inPieces(action, (offset, length) => stage.zero(offset, length, false, true)),
        );
    }
  }

  #read(request: FuseHeader, offset: number, length: number): void {
    this.parts.stage.read(offset, length, this.parts.answers).then(
      (lease) => {
        this.#answer(request, 0, lease.bytes);
        lease.release();
      },
      (error: unknown) => this.#refuse(request, error),
    );
  }

  #write(request: FuseHeader, offset: number, data: Lease): void {
    this.parts.stage.write(offset, data, false).then(
      () => {
        this.#answer(request, 0, writeBody(data.bytes.length));
        data.release();
      },
      (error: unknown) => {
        this.#refuse(request, error);
        data.release();
      },
    );
  }

  #answerWhen(request: FuseHeader, done: Promise<void>): void {
    done.then(
      () => this.#answer(request, 0, EMPTY),
      (error: unknown) => this.#refuse(request, error),
    );
  }

  #refuse(request: FuseHeader, error: unknown): void {
    this.#answer(request, TOLD[codeOf(error)] ?? ERRNO.EIO, EMPTY);
  }

  #answer(request: FuseHeader, errno: number, body: Uint8Array): void {
    if (!this.#open) return;
    const header = replyHeader(request, errno, body.length);
    try {
      if (body.length === 0) writeSync(this.parts.fd, header);
      else writevSync(this.parts.fd, [header, body]);
    } catch (error) {
      // The kernel no longer waits for this answer: the mount ended, or whoever asked was killed.
      this.parts.log.debug({ err: error }, 'answer not taken');
    }
  }
}

/** `gone`: a request was withdrawn while it was read. `ended`: the filesystem is unmounted. */
function readRequest(fd: number, into: Uint8Array): number | 'again' | 'gone' | 'ended' {
  try {
    return readNow(fd, into);
  } catch (error) {
    const errno = error instanceof SystemCallFailed ? error.errno : 0;
    if (errno === ERRNO.ENOENT) return 'gone';
    if (errno === ENODEV || errno === ECONNABORTED) return 'ended';
    throw error;
  }
}

const ENODEV = 19;
const ECONNABORTED = 103;

/** A part of a lease, with the references of the whole. */
function part(whole: Lease, bytes: Uint8Array): Lease {
  return { bytes, retain: () => whole.retain(), release: () => whole.release() };
}

async function inPieces(
  range: { offset: number; length: number },
  each: (offset: number, length: number) => Promise<void>,
): Promise<void> {
  const end = range.offset + range.length;
  for (let offset = range.offset; offset < end; offset += LARGEST_PIECE_BYTES) {
    await each(offset, Math.min(LARGEST_PIECE_BYTES, end - offset));
  }
}
