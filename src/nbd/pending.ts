import { HoldfastError } from '../base/errors.js';
import type { Extent, Lease } from '../io/io.js';
import type { CommandName } from './commands.js';

/** Chunks of data that one read may come in. */
const MAX_DATA_CHUNKS = 1_024;

/** A request that was sent and is not answered: how its reply is taken in. */
export type Pending = PendingRead | PendingOther;

interface Answer<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: HoldfastError) => void;
}

/** A read fills a lease that was taken before the request was sent, so that no answer ever waits for memory. */
export class PendingRead {
  readonly kind = 'read';
  readonly command = 'read';
  /** When it was sent, by the client's clock. */
  sentAt = 0;
  error: HoldfastError | undefined;
  #covered = 0;
  readonly #chunks: { offset: number; end: number }[] = [];

  constructor(
    readonly offset: number,
    readonly lease: Lease,
    private readonly answer: Answer<Lease>,
  ) {}

  get length(): number {
    return this.lease.bytes.length;
  }

  /** Where the bytes at `offset` of the export belong; undefined where they were not asked for, or came before. */
  place(offset: number, length: number): Uint8Array | undefined {
    const end = offset + length;
    const { bytes } = this.lease;
    if (length === 0 || offset < this.offset || end > this.offset + bytes.length) return undefined;
    if (this.#chunks.length === MAX_DATA_CHUNKS) return undefined;
    if (this.#chunks.some((chunk) => offset < chunk.end && chunk.offset < end)) return undefined;
    this.#chunks.push({ offset, end });
    this.#covered += length;
    return bytes.subarray(offset - this.offset, end - this.offset);
  }

  /** The reply is complete; false where it claims success and lacks data. */
  finish(): boolean {
    if (this.error === undefined && this.#covered !== this.lease.bytes.length) return false;
    if (this.error === undefined) this.answer.resolve(this.lease);
    else this.fail(this.error);
    return true;
  }

  fail(error: HoldfastError): void {
    this.lease.release();
    this.answer.reject(error);
  }
}

export type OtherKind = 'plain' | 'extents' | 'control';

/** A request whose reply carries nothing, extents, or a control message. */
export class PendingOther {
  sentAt = 0;
  error: HoldfastError | undefined;
  extents: Extent[] | undefined;
  control: Uint8Array | undefined;

  constructor(
    readonly kind: OtherKind,
    readonly command: CommandName,
    readonly length: number,
    private readonly answer: Answer<PendingOther>,
  ) {}

  finish(): boolean {
    if (this.error === undefined) {
      if (this.kind === 'extents' && this.extents === undefined) return false;
      if (this.kind === 'control' && this.control === undefined) return false;
      this.answer.resolve(this);
    } else this.fail(this.error);
    return true;
  }

  fail(error: HoldfastError): void {
    this.answer.reject(error);
  }
}
