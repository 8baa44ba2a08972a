import type { HoldfastError } from '../../src/base/errors.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import type { Deliverer } from './sim-clock.js';
import type { Link, NetworkHost } from './sim-link.js';

/** Bytes that one direction takes in before the receiver has asked for them: both kernels' buffers together. */
const BUFFER_BYTES = 256 * 1024;
/** Between a write and its bytes' way into the kernel, which goes by turns of the event loop. */
const MAX_FLUSH_MS = 0.02;
/** After an outage, TCP tries again within about this time. */
const MAX_RETRY_MS = 500;

const NOTHING = new Uint8Array(0);

/** What a connection needs of the network. */
export interface Wire {
  readonly schedule: Schedule;
  readonly random: Prng;
  latency(link: Link): number;
}

export interface Segment {
  readonly at: number;
  /** `open`: with it the server has a connection to accept. */
  readonly kind: 'open' | 'data' | 'end';
  bytes: Uint8Array;
}

/** The end that sends. */
export interface Sender {
  readonly process: Deliverer;
  /** From it to the receiver. */
  readonly link: Link;
  /** The kernel knows it no more. */
  readonly isGone: boolean;
  break(reason: string): void;
  /** Nothing is on its way any more. */
  sentAll(): void;
}

/** The end that receives. */
export interface Receiver {
  readonly host: NetworkHost;
  /** From it to the sender. */
  readonly link: Link;
  /** The kernel knows it no more. */
  readonly isGone: boolean;
  accept(segment: Segment): void;
}

interface PendingWrite {
  readonly parts: readonly Uint8Array[];
  readonly resolve: () => void;
  readonly reject: (error: HoldfastError) => void;
  /** How far it has been taken in. */
  part: number;
  offset: number;
}

/** One direction of a connection: what waits to be sent, and what is on its way. */
export class Outgoing {
  readonly #writes: PendingWrite[] = [];
  #flushPlanned = false;
  /** Bytes taken in here and not yet handed out there. */
  #unread = 0;
  /** Of those, what has been handed out there, while this side can't hear of it. */
  #unheard = 0;
  readonly #segments: Segment[] = [];
  #disarm: (() => void) | undefined;
  /** What is on its way doesn't get through and is sent again when that may help. */
  #stuck = false;
  /** The sender's machine has died: nothing is sent again. */
  #silent = false;

  constructor(
    private readonly wire: Wire,
    private readonly from: Sender,
    private readonly to: Receiver,
  ) {}

  get isEmpty(): boolean {
    return this.#segments.length === 0;
  }

  /** Something on its way is held up. */
  get isStuck(): boolean {
    return this.#stuck;
  }

  write(parts: readonly Uint8Array[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#writes.push({ parts, part: 0, offset: 0, resolve, reject });
      this.#flushSoon(this.wire.random.between(0, MAX_FLUSH_MS));
    });
  }

  send(kind: 'open' | 'end'): void {
    this.#send(kind, NOTHING);
  }

  /** Fails the writes that have not been taken in. */
  failWrites(error: HoldfastError): void {
    for (const write of this.#writes.splice(0)) write.reject(error);
  }

  /** The sender's process has ended it: what is on its way gets there or not, and then the end. */
  end(): void {
    if (this.wire.random.chance(0.5)) this.#loseSome();
    this.send('end');
  }

  /** The sender's machine has lost its power: what is on its way may arrive, but is not sent again. */
  vanish(): void {
    this.#silent = true;
    if (this.#stuck) this.#segments.length = 0;
    this.#stuck = false;
    this.#loseSome();
  }

  /** What is on its way is lost. */
  drop(): void {
    this.#segments.length = 0;
    this.#stuck = false;
    this.#disarm?.();
    this.#disarm = undefined;
  }

  /** What is held is sent again after a while. */
  retry(): void {
    if (!this.#stuck) return;
    this.#stuck = false;
    this.#arm(this.wire.random.between(0, MAX_RETRY_MS));
  }

  /** The receiver's process has taken bytes, which makes room once this side knows. */
  taken(length: number): void {
    if (this.to.link.cut) this.#unheard += length;
    else this.#release(length);
  }

  /** The way from the other end is free again. */
  hear(): void {
    this.#release(this.#unheard);
    this.#unheard = 0;
  }

  #release(length: number): void {
    this.#unread -= length;
    if (length > 0 && this.#writes.length > 0) this.#flushSoon(this.wire.latency(this.to.link));
  }

  #flushSoon(delayMs: number): void {
    if (this.#flushPlanned) return;
    this.#flushPlanned = true;
    this.wire.schedule.after(delayMs, () => this.from.process.deliver(this.#flush));
  }

  /** Takes in what there is room for. Memory is free for its owner from then on. */
  readonly #flush = (): void => {
    this.#flushPlanned = false;
    if (this.from.isGone) return;
    const writes = this.#writes;
    const room = BUFFER_BYTES - this.#unread;
    let length = 0;
    for (const write of writes) {
      length += remaining(write);
      if (length >= room) break;
    }
    if (length > room) length = room;
    const bytes = length > 0 ? Buffer.allocUnsafe(length) : NOTHING;
    let filled = 0;
    let done = 0;
    for (const write of writes) {
      filled = take(write, bytes, filled);
      if (write.part < write.parts.length) break;
      done++;
    }
    if (length > 0) {
      this.#unread += length;
      this.#send('data', bytes);
    }
    for (const write of writes.splice(0, done)) write.resolve();
  };

  #send(kind: Segment['kind'], bytes: Uint8Array): void {
    const delay = this.wire.latency(this.from.link);
    // One that would be faster than those before it arrives together with them.
    this.#segments.push({ at: this.wire.schedule.now + delay, kind, bytes });
    if (this.#disarm === undefined && !this.#stuck) this.#arm(delay);
  }

  #arm(delayMs: number): void {
    this.#disarm = this.wire.schedule.after(delayMs, this.#arrive);
  }

  readonly #arrive = (): void => {
    this.#disarm = undefined;
    const { from, to } = this;
    const { now } = this.wire.schedule;
    for (;;) {
      const [segment] = this.#segments;
      if (segment === undefined) break;
      if (segment.at > now) {
        this.#arm(segment.at - now);
        return;
      }
      const unknown = !from.isGone && to.isGone;
      if (from.link.cut || !to.host.up || (unknown && to.link.cut)) {
        this.#hold();
        return;
      }
      this.#segments.shift();
      if (unknown) this.#beReset();
      else to.accept(segment);
    }
    from.sentAll();
  };

  #hold(): void {
    if (this.#silent) {
      this.#segments.length = 0;
      this.from.sentAll();
    } else this.#stuck = true;
  }

  /** The other side has got bytes of a connection that it doesn't know, and answers so. */
  #beReset(): void {
    const back = this.to.link;
    this.wire.schedule.after(this.wire.latency(back), () => {
      if (!back.cut) this.from.break('the peer has reset the connection');
    });
  }

  /** Drops a random end of what is on its way. */
  #loseSome(): void {
    const { random } = this.wire;
    let left = 0;
    for (const { bytes } of this.#segments) left += bytes.length;
    let keep = random.below(left + 1);
    for (let index = 0; index < this.#segments.length; index++) {
      const segment = this.#segments[index] as Segment;
      if (segment.kind === 'data' && keep < segment.bytes.length) {
        segment.bytes = segment.bytes.subarray(0, keep);
        this.#segments.length = keep > 0 ? index + 1 : index;
        return;
      }
      keep -= segment.bytes.length;
    }
  }
}

function remaining(write: PendingWrite): number {
  let length = -write.offset;
  for (let part = write.part; part < write.parts.length; part++) length += write.parts[part]?.length ?? 0;
  return length;
}

/** Moves bytes of the write to `into` from `filled` on, as many as there is room for; how far it is filled then. */
function take(write: PendingWrite, into: Uint8Array, filled: number): number {
  let at = filled;
  for (let part = write.parts[write.part]; part !== undefined; part = write.parts[write.part]) {
    const count = Math.min(part.length - write.offset, into.length - at);
    into.set(count === part.length ? part : part.subarray(write.offset, write.offset + count), at);
    at += count;
    write.offset += count;
    if (write.offset < part.length) break;
    write.part++;
    write.offset = 0;
  }
  return at;
}
