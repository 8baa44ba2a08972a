import { HoldfastError, asHoldfastError, messageOf } from '../base/errors.js';
import type { Address, Clock, Extent, Io, Lease, Slab, Stream } from '../io/io.js';
import { viewOf } from './bytes.js';
import { clientHandshake, type Session } from './client-handshake.js';
import { COMMANDS, COMMAND_FLAG, MAX_CONTROL_BYTES, type Command } from './commands.js';
import { putRequest } from './encode.js';
import { PendingOther, PendingRead, type Pending } from './pending.js';
import { REQUEST_HEADER_BYTES } from './parse-request.js';
import { ReplyReader } from './reply-reader.js';
import type { RequestMeter } from './request-meter.js';
import type { Stage } from './stage.js';

/** How long the word of a closing client may take to be sent. */
const CLOSE_LIMIT_MS = 1_000;
/** Cookies run from 1 to here and begin anew. */
const MAX_COOKIE = 0xffffffff;

export interface NbdClientOptions {
  readonly io: Io;
  readonly address: Address;
  readonly exportName: string;
  /** For connecting and the whole handshake. */
  readonly timeoutMs: number;
  /** Told of each request when its answer has come. */
  readonly meter?: RequestMeter | undefined;
}

/**
 * An export of another server as a stage. Requests are pipelined: as many as callers begin are sent, and each settles
 * when its reply comes, in any order. Callers keep to 4 MiB for each read or write and bound how many they begin.
 */
export class NbdClient implements Stage {
  readonly readOnly: boolean;
  readonly sizeBytes: number;
  /**
   * Resolves when the connection has ended, whoever ended it, after every unanswered request was rejected with
   * `unavailable`. The error says why.
   */
  readonly lost: Promise<HoldfastError>;
  readonly #pending = new Map<number, Pending>();
  readonly #idleHeaders: IdleHeader[] = [];
  #cookie = 0;
  /** Why no further request is sent. */
  #ended: HoldfastError | undefined;

  private constructor(
    private readonly stream: Stream,
    private readonly clock: Clock,
    private readonly session: Session,
    private readonly meter: RequestMeter | undefined,
  ) {
    this.readOnly = session.readOnly;
    this.sizeBytes = session.sizeBytes;
    this.lost = this.#receive();
  }

  /**
   * Connects and opens the export. `unavailable`: no connection, or not within the time; `not-found`, `fenced` and
   * others: as the server refuses; `corrupt`, `unimplemented`: no server that Holdfast can work with.
   */
  static async connect(options: NbdClientOptions): Promise<NbdClient> {
    const { io, address, exportName, timeoutMs } = options;
    const start = io.clock.now();
    const stream = await io.network.connect(address, timeoutMs);
    const left = Math.max(0, timeoutMs - (io.clock.now() - start));
    const cancel = io.clock.timer(left, () => stream.close());
    try {
      return new NbdClient(stream, io.clock, await shakeHands(stream, exportName), options.meter);
    } catch (error) {
      stream.close();
      if (io.clock.now() - start < timeoutMs) throw error;
      throw new HoldfastError('unavailable', `no NBD handshake within ${timeoutMs} ms`, { cause: error });
    } finally {
      cancel();
    }
  }

  async read(offset: number, length: number, slab: Slab): Promise<Lease> {
    if (this.#ended !== undefined) throw this.#ended;
    // Memory first: an answer that had to wait for it would hold up those behind it, which may be what frees it.
    const lease = await slab.take(length);
    return new Promise((resolve, reject) => {
      const pending = new PendingRead(offset, lease, { resolve, reject });
      this.#send(COMMANDS.read, this.session.unfragmented ? COMMAND_FLAG.df : 0, offset, length, pending);
    });
  }

  write(offset: number, data: Lease, fua: boolean): Promise<void> {
    return this.#change(COMMANDS.write, fuaFlag(fua), offset, data.bytes.length, data);
  }

  flush(): Promise<void> {
    return this.#change(COMMANDS.flush, 0, 0, 0);
  }

  trim(offset: number, length: number, fua: boolean): Promise<void> {
    return this.#change(COMMANDS.trim, fuaFlag(fua), offset, length);
  }

  zero(offset: number, length: number, fua: boolean, allocate: boolean): Promise<void> {
    const flags = fuaFlag(fua) | (allocate ? COMMAND_FLAG.noHole : 0);
    return this.#change(COMMANDS['write-zeroes'], flags, offset, length);
  }

  async extents(offset: number, length: number): Promise<Extent[]> {
    // All may be data where the server can't tell.
    if (this.session.contextId === undefined) return [{ length, hole: false }];
    const { extents } = await this.#ask('extents', COMMANDS['block-status'], offset, length);
    return extents ?? [];
  }

  /** Sends a private command (at most 1 MiB) and resolves to its answer. */
  async control(payload: Uint8Array): Promise<Uint8Array> {
    if (payload.length > MAX_CONTROL_BYTES) {
      throw new HoldfastError('invalid-argument', `a private command of ${payload.length} bytes; at most 1 MiB`);
    }
    if (!this.session.structured) {
      throw new HoldfastError('unimplemented', 'the server does not offer structured replies');
    }
    const { control } = await this.#ask('control', COMMANDS.holdfast, 0, payload.length, payload);
    return control ?? new Uint8Array(0);
  }

  /** Ends the connection. Unanswered requests are rejected; where there are none, the server is told. Repeats do nothing. */
  close(): void {
    if (this.#ended !== undefined) return;
    this.#ended = new HoldfastError('unavailable', 'the connection was closed');
    if (this.#pending.size > 0) {
      this.stream.close();
      return;
    }
    const header = this.#header(COMMANDS.disconnect, 0, 0, 0, 0);
    const cancel = this.clock.timer(CLOSE_LIMIT_MS, () => this.stream.close());
    const end = (): void => {
      cancel();
      this.stream.close();
    };
    this.stream.write([header.bytes]).then(end, end);
  }

  #change(command: Command, flags: number, offset: number, length: number, data?: Lease): Promise<void> {
    return new Promise((resolve, reject) => {
      const pending = new PendingOther('plain', command.name, length, { resolve: () => resolve(), reject });
      this.#send(command, flags, offset, length, pending, data);
    });
  }

  #ask(
    kind: 'extents' | 'control',
    command: Command,
    offset: number,
    length: number,
    data?: Uint8Array,
  ): Promise<PendingOther> {
    return new Promise((resolve, reject) => {
      const pending = new PendingOther(kind, command.name, length, { resolve, reject });
      this.#send(command, 0, offset, length, pending, data);
    });
  }

  #send(
    command: Command,
    flags: number,
    offset: number,
    length: number,
    pending: Pending,
    data?: Lease | Uint8Array,
  ): void {
    if (this.#ended !== undefined) {
      pending.fail(this.#ended);
      return;
    }
    const cookie = this.#nextCookie();
    pending.sentAt = this.clock.now();
    this.#pending.set(cookie, pending);
    const header = this.#header(command, flags, cookie, offset, length);
    const done = (): void => {
      this.#idleHeaders.push(header);
      if (data !== undefined && 'release' in data) data.release();
    };
    // The answer, or the connection's end, may come while the socket still uses the memory.
    if (data !== undefined && 'retain' in data) data.retain();
    const bytes = data === undefined || 'release' in data ? data?.bytes : data;
    const parts = bytes === undefined ? [header.bytes] : [header.bytes, bytes];
    // What could not be sent is rejected with all the rest when the stream ends.
    this.stream.write(parts).then(done, done);
  }

  #header(command: Command, flags: number, cookie: number, offset: number, length: number): IdleHeader {
    const header = this.#idleHeaders.pop() ?? newHeader();
    putRequest(header.view, { flags, type: command.number, cookie: { high: 0, low: cookie }, offset, length });
    return header;
  }

  #nextCookie(): number {
    do this.#cookie = this.#cookie === MAX_COOKIE ? 1 : this.#cookie + 1;
    while (this.#pending.has(this.#cookie));
    return this.#cookie;
  }

  async #receive(): Promise<HoldfastError> {
    let cause: unknown;
    try {
      const onAnswer = (pending: Pending): void => {
        const { command, length, sentAt, error } = pending;
        this.meter?.answered(command, length, this.clock.now() - sentAt, error?.code);
      };
      await new ReplyReader(this.stream, this.session, this.#pending, onAnswer).run();
    } catch (error) {
      cause = error;
    }
    const told = asHoldfastError(cause);
    const lost =
      this.#ended ??
      (told.code === 'unavailable'
        ? told
        : new HoldfastError('unavailable', `the connection was given up: ${messageOf(cause)}`, { cause }));
    this.#ended = lost;
    this.stream.close();
    await this.stream.closed;
    const unanswered = [...this.#pending.values()];
    this.#pending.clear();
    for (const pending of unanswered) pending.fail(lost);
    return lost;
  }
}

type IdleHeader = { readonly bytes: Uint8Array; readonly view: DataView };

function newHeader(): IdleHeader {
  const bytes = new Uint8Array(REQUEST_HEADER_BYTES);
  return { bytes, view: viewOf(bytes) };
}

function fuaFlag(fua: boolean): number {
  return fua ? COMMAND_FLAG.fua : 0;
}

/** Leads the handshake over a stream. */
async function shakeHands(stream: Stream, exportName: string): Promise<Session> {
  const steps = clientHandshake(exportName);
  let step = steps.next(new Uint8Array(0));
  while (step.done !== true) {
    const { send, receive } = step.value;
    if (send.length > 0) await stream.write([send]);
    const bytes = new Uint8Array(receive);
    if (receive > 0) await stream.read(bytes);
    step = steps.next(bytes);
  }
  return step.value;
}
