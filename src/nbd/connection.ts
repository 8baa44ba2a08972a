import { codeOf, messageOf, type ErrorCode } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock, Slab, Stream } from '../io/io.js';
import { viewOf } from './bytes.js';
import type { Budget } from './budget.js';
import { carryOut, type Payload, type Result } from './carry-out.js';
import { CHUNK, type Command } from './commands.js';
import { encodeErrorChunk } from './encode.js';
import { replyErrorOf } from './error-codes.js';
import { negotiate, type Opened } from './negotiate.js';
import { REQUEST_HEADER_BYTES, judgeRequest, parseRequest, type RawRequest, type Rules } from './parse-request.js';
import { ReplyBuffer } from './reply-buffer.js';
import type { ExportClient, Exports } from './stage.js';

const DISCARD_STEP_BYTES = 64 * 1024;

export interface ConnectionOptions {
  readonly stream: Stream;
  readonly clock: Clock;
  readonly exports: Exports;
  readonly slab: Slab;
  /** Bounds the memory of private commands, over all connections. */
  readonly controlBudget: Budget;
  readonly maxInFlight: number;
  readonly log: Log;
}

/**
 * One client of the server: a loop reads requests and begins them, as many at once as allowed; each is answered when it
 * has been carried out. The wait for slab memory and for a free slot is what holds a fast client back.
 *
 * The connection has ended when no further request will be begun; it is drained when, besides, none is under way.
 */
export class Connection implements ExportClient {
  readonly drained: Promise<void>;
  #resolveDrained: () => void = () => undefined;
  #ended = false;
  #opened: Opened | undefined;
  /** Requests that the export has begun and not settled. */
  #underWay = 0;
  /** Requests read and not answered yet. */
  #unanswered = 0;
  #whenAnswered: (() => void) | undefined;
  readonly #idleBuffers: ReplyBuffer[] = [];
  /** Since when a payload, or replies, have been in transfer without progress. */
  #payloadSince = Infinity;
  #replySince = Infinity;
  #replying = 0;
  /** Commands whose unexpected failure is in the log already. */
  readonly #reported = new Set<string>();

  constructor(private readonly options: ConnectionOptions) {
    this.drained = new Promise((resolve) => (this.#resolveDrained = resolve));
    void options.stream.closed.then(() => this.close());
  }

  /** Serves the client from its first byte to its last; resolves when drained. Never rejects. */
  async run(): Promise<void> {
    try {
      const opened = await negotiate({
        ...this.options,
        client: this,
        opened: (open) => {
          if (this.#ended) this.#tellClosed(open);
          else this.#opened = open;
        },
      });
      if (opened !== undefined) await this.#serve(opened);
    } catch (error) {
      // The stream's end is every connection's way to go; anything else is a defect.
      if (codeOf(error) !== 'unavailable') this.options.log.error({ err: error }, 'connection failed');
    }
    this.close();
    await this.drained;
  }

  close(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.options.stream.close();
    this.#whenAnswered?.();
    this.#checkDrained();
  }

  /** Requests that were begun and not carried out yet. */
  get underWay(): number {
    return this.#underWay;
  }

  /** A payload or a reply has made no progress since before `time`: the client holds memory and does nothing with it. */
  stalledSince(time: number): boolean {
    return this.#payloadSince < time || this.#replySince < time;
  }

  #checkDrained(): void {
    if (!this.#ended || this.#underWay > 0) return;
    const opened = this.#opened;
    this.#opened = undefined;
    if (opened !== undefined) this.#tellClosed(opened);
    this.#resolveDrained();
  }

  #tellClosed(opened: Opened): void {
    try {
      opened.export.closed?.();
    } catch (error) {
      this.options.log.error({ export: opened.name, err: error }, 'export failed to end');
    }
  }

  /** The transmission phase. Resolves when the connection has to end. */
  async #serve(opened: Opened): Promise<void> {
    const { stream, maxInFlight, log } = this.options;
    const { stage, readOnly, control } = opened.export;
    const rules: Rules = {
      // The export may grow while it is served.
      get sizeBytes() {
        return stage.sizeBytes;
      },
      readOnly,
      structured: opened.structured,
      blockStatus: opened.blockStatus,
      control: control !== undefined,
    };
    const header = new Uint8Array(REQUEST_HEADER_BYTES);
    const view = viewOf(header);
    while (!this.#ended) {
      await this.#untilUnanswered(maxInFlight - 1);
      await stream.read(header);
      const request = parseRequest(view);
      if (request === undefined) {
        log.warn({ export: opened.name }, 'a request does not begin as one; the connection ends');
        return;
      }
      const verdict = judgeRequest(request, rules);
      if (verdict.kind === 'end') {
        log.warn({ export: opened.name, reason: verdict.reason }, 'the connection ends');
        return;
      }
      if (verdict.kind === 'refuse') {
        log.debug({ export: opened.name, ...verdict.error }, 'request refused');
        await this.#discard(verdict.payloadBytes);
        this.#unanswered++;
        void this.#answer(opened, request, { kind: 'error', error: verdict.error });
      } else if (verdict.command.name === 'disconnect') {
        // What was begun is carried out and answered first.
        await this.#untilUnanswered(0);
        return;
      } else {
        const payload = await this.#receivePayload(verdict.command, request);
        this.#begin(opened, verdict.command, request, payload);
      }
    }
  }

  async #untilUnanswered(count: number): Promise<void> {
    while (this.#unanswered > count && !this.#ended) {
      await new Promise<void>((resolve) => (this.#whenAnswered = resolve));
    }
  }

  /** Waits for memory, then for the payload. Where the connection ends meanwhile nothing is kept. */
  async #receivePayload(command: Command, request: RawRequest): Promise<Payload> {
    if (!command.payload) return undefined;
    if (command.name === 'holdfast') {
      await this.options.controlBudget.take(request.length);
      return this.#receive(
        new Uint8Array(request.length),
        (control) => ({ control }),
        () => this.options.controlBudget.give(request.length),
      );
    }
    if (request.length === 0) return undefined;
    const lease = await this.options.slab.take(request.length);
    return this.#receive(
      lease.bytes,
      () => ({ lease }),
      () => lease.release(),
    );
  }

  async #receive(into: Uint8Array, made: (bytes: Uint8Array) => Payload, giveBack: () => void): Promise<Payload> {
    try {
      this.#payloadSince = this.options.clock.now();
      await this.options.stream.read(into);
    } catch (error) {
      giveBack();
      throw error;
    } finally {
      this.#payloadSince = Infinity;
    }
    return made(into);
  }

  /** Reads the payload of a refused request, in bounded memory. */
  async #discard(count: number): Promise<void> {
    if (count === 0) return;
    const scratch = new Uint8Array(Math.min(count, DISCARD_STEP_BYTES));
    for (let left = count; left > 0; left -= scratch.length) {
      await this.#receive(
        left < scratch.length ? scratch.subarray(0, left) : scratch,
        () => undefined,
        () => undefined,
      );
    }
  }

  #begin(opened: Opened, command: Command, request: RawRequest, payload: Payload): void {
    // Closed while its payload came: thrown away.
    if (this.#ended) {
      this.#giveBack(payload);
      return;
    }
    this.#unanswered++;
    this.#underWay++;
    void this.#carryOut(opened, command, request, payload);
  }

  async #carryOut(opened: Opened, command: Command, request: RawRequest, payload: Payload): Promise<void> {
    const { clock, slab } = this.options;
    const began = clock.now();
    let result: Result;
    let code: ErrorCode | undefined;
    try {
      result = await carryOut(opened.export, command, request, payload, slab);
    } catch (error) {
      code = codeOf(error);
      this.#report(opened, command, error);
      result = { kind: 'error', error: replyErrorOf(error, opened.export.control !== undefined) };
    }
    opened.export.meter?.answered(command.name, request.length, clock.now() - began, code);
    this.#giveBack(payload);
    this.#underWay--;
    this.#checkDrained();
    await this.#answer(opened, request, result);
  }

  #giveBack(payload: Payload): void {
    if (payload === undefined) return;
    if ('lease' in payload) payload.lease.release();
    else this.options.controlBudget.give(payload.control.length);
  }

  #report(opened: Opened, command: Command, error: unknown): void {
    const event = { export: opened.name, command: command.name };
    if (codeOf(error) !== 'internal') {
      this.options.log.debug({ ...event, code: codeOf(error), message: messageOf(error) }, 'request failed');
    } else if (!this.#reported.has(command.name)) {
      this.#reported.add(command.name);
      this.options.log.error({ ...event, err: error }, 'request failed for a defect; its like are not told again');
    }
  }

  /** Sends the reply, frees what it carried and makes room for a further request. Never rejects. */
  async #answer(opened: Opened, request: RawRequest, result: Result): Promise<void> {
    const buffer = this.#idleBuffers.pop() ?? new ReplyBuffer();
    if (this.#replying++ === 0) this.#replySince = this.options.clock.now();
    try {
      if (!this.#ended) await this.options.stream.write(encodeReply(buffer, opened.structured, request, result));
    } catch (error) {
      if (codeOf(error) !== 'unavailable') this.options.log.error({ err: error }, 'reply could not be sent');
    }
    if (result.kind === 'data') result.lease.release();
    this.#replySince = --this.#replying === 0 ? Infinity : this.options.clock.now();
    this.#idleBuffers.push(buffer);
    this.#unanswered--;
    this.#whenAnswered?.();
  }
}

function encodeReply(buffer: ReplyBuffer, structured: boolean, request: RawRequest, result: Result): Uint8Array[] {
  const { cookie, offset } = request;
  switch (result.kind) {
    case 'done':
      return [structured ? buffer.chunk(cookie, CHUNK.none, 0) : buffer.simple(cookie, 0)];
    case 'error':
      return [structured ? encodeErrorChunk(cookie, result.error) : buffer.simple(cookie, result.error.errno)];
    case 'data': {
      const { bytes } = result.lease;
      return [structured ? buffer.dataChunk(cookie, offset, bytes.length) : buffer.simple(cookie, 0), bytes];
    }
    case 'control':
      return [buffer.chunk(cookie, CHUNK.holdfast, result.bytes.length), result.bytes];
    case 'status':
      return [result.chunk];
  }
}
