import { assert } from '../../src/base/assert.js';
import { HoldfastError } from '../../src/base/errors.js';
import type { Stream } from '../../src/io/io.js';
import type { Deliverer } from './sim-clock.js';
import type { Link, NetworkHost } from './sim-link.js';
import { Outgoing, type Receiver, type Segment, type Sender, type Wire } from './sim-outgoing.js';

const DONE = Promise.resolve();

/** Where one end of a connection is. */
export interface Place {
  readonly process: Deliverer;
  readonly host: NetworkHost;
  /** From there to the other end. */
  readonly link: Link;
}

export class Connection {
  readonly client: Endpoint;
  readonly server: Endpoint;

  /**
   * `open` is called with the server's end when the client's first packet has come; false: nobody listens any more.
   * `ended`: nothing is left to happen on the connection.
   */
  constructor(
    wire: Wire,
    client: Place,
    server: Place,
    calls: { open: (server: Endpoint) => boolean; ended: (connection: Connection) => void },
  ) {
    const sentAll = (): void => {
      const { ends } = this;
      if (ends.every((end) => end.isGone && end.hasSentAll)) calls.ended(this);
    };
    this.client = new Endpoint(client, { open: () => true, sentAll });
    this.server = new Endpoint(server, { open: calls.open, sentAll });
    this.client.join(wire, this.server);
    this.server.join(wire, this.client);
    this.client.sendOpen();
  }

  get isOpen(): boolean {
    return this.client.isOpen || this.server.isOpen;
  }

  get ends(): readonly [Endpoint, Endpoint] {
    return [this.client, this.server];
  }
}

interface PendingRead {
  readonly into: Uint8Array;
  filled: number;
  readonly resolve: () => void;
  readonly reject: (error: HoldfastError) => void;
}

/** One end of a connection. */
export class Endpoint implements Stream, Sender, Receiver {
  readonly closed: Promise<void>;
  readonly process: Deliverer;
  readonly host: NetworkHost;
  readonly link: Link;
  #peer: Endpoint | undefined;
  #outgoing: Outgoing | undefined;
  #resolveClosed: () => void = () => undefined;
  /** Why it is over, for this process; what it received before may still be read. */
  #over: string | undefined;
  /** The kernel knows it no more: it was closed or broke, or its process or machine has died. */
  #gone = false;
  /** The process knows of it: a server's does when the client's first packet has come. */
  #known = false;
  readonly #received: Uint8Array[] = [];
  /** Bytes of the first that were handed out. */
  #consumed = 0;
  #read: PendingRead | undefined;

  constructor(
    place: Place,
    private readonly calls: { open: (self: Endpoint) => boolean; sentAll: () => void },
  ) {
    this.process = place.process;
    this.host = place.host;
    this.link = place.link;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
  }

  join(wire: Wire, peer: Endpoint): void {
    this.#peer = peer;
    this.#outgoing = new Outgoing(wire, this, peer);
  }

  get peer(): Endpoint {
    assert(this.#peer !== undefined, 'an end has a peer');
    return this.#peer;
  }

  /** What is on its way from here to the peer. */
  get outgoing(): Outgoing {
    assert(this.#outgoing !== undefined, 'an end has a peer');
    return this.#outgoing;
  }

  /** Holds a descriptor of a live process. */
  get isOpen(): boolean {
    return this.#known && this.process.alive && this.#over === undefined;
  }

  get isGone(): boolean {
    return this.#gone;
  }

  get hasSentAll(): boolean {
    return this.outgoing.isEmpty;
  }

  // The process' side.

  read(into: Uint8Array): Promise<void> {
    if (!this.process.alive) return new Promise(() => undefined);
    assert(this.#read === undefined, 'one read at a time on a stream');
    const filled = this.#copy(into, 0);
    if (filled === into.length) return DONE;
    if (this.#over !== undefined) return Promise.reject(this.#lost());
    return new Promise((resolve, reject) => (this.#read = { into, filled, resolve, reject }));
  }

  write(parts: readonly Uint8Array[]): Promise<void> {
    if (!this.process.alive) return new Promise(() => undefined);
    if (this.#over !== undefined) return Promise.reject(this.#lost());
    return this.outgoing.write(parts);
  }

  close(): void {
    if (!this.process.alive || this.#over !== undefined) return;
    this.#received.length = 0;
    this.#consumed = 0;
    this.#endFor('the stream was closed');
    this.leave();
  }

  // The kernel's side.

  sendOpen(): void {
    this.#known = true;
    this.outgoing.send('open');
  }

  /** The process ends it or has died. */
  leave(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.outgoing.end();
  }

  /** The machine has lost its power. */
  vanish(): void {
    this.#gone = true;
    this.outgoing.vanish();
    this.sentAll();
  }

  /** The connection breaks, as seen from here. */
  break(reason: string): void {
    this.outgoing.drop();
    if (!this.#gone) {
      this.#gone = true;
      this.process.deliver(() => this.#endFor(reason));
    }
    this.sentAll();
  }

  sentAll(): void {
    this.calls.sentAll();
  }

  /** A segment has arrived here. */
  accept(segment: Segment): void {
    if (this.#gone) return;
    switch (segment.kind) {
      case 'open':
        this.#known = this.calls.open(this);
        if (!this.#known) this.leave();
        return;
      case 'end':
        this.break('the peer has ended the connection');
        return;
      case 'data':
        this.#received.push(segment.bytes);
        if (this.#read) this.process.deliver(this.#fill);
    }
  }

  #endFor(reason: string): void {
    if (this.#over !== undefined) return;
    this.#over = reason;
    const read = this.#read;
    this.#read = undefined;
    read?.reject(this.#lost());
    this.outgoing.failWrites(this.#lost());
    this.#resolveClosed();
  }

  readonly #fill = (): void => {
    const read = this.#read;
    if (read === undefined) return;
    read.filled = this.#copy(read.into, read.filled);
    if (read.filled < read.into.length) return;
    this.#read = undefined;
    read.resolve();
  };

  /** Moves received bytes to `into` from `filled` on; resolves to how far it is filled then. */
  #copy(into: Uint8Array, filled: number): number {
    let at = filled;
    while (at < into.length) {
      const [chunk] = this.#received;
      if (chunk === undefined) break;
      const count = Math.min(chunk.length - this.#consumed, into.length - at);
      const whole = count === chunk.length;
      into.set(whole ? chunk : chunk.subarray(this.#consumed, this.#consumed + count), at);
      at += count;
      this.#consumed += count;
      if (this.#consumed === chunk.length) {
        this.#received.shift();
        this.#consumed = 0;
      }
    }
    if (at > filled) this.peer.outgoing.taken(at - filled);
    return at;
  }

  #lost(): HoldfastError {
    return new HoldfastError('unavailable', this.#over ?? 'the connection has ended');
  }
}
