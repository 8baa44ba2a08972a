import { codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock, Stream } from '../io/io.js';
import { MAX_OPTION_BYTES, OPTION, OPTION_ERROR } from './commands.js';
import { optionErrorOf } from './error-codes.js';
import { OPTION_HEADER_BYTES, parseOptionHeader } from './parse-option.js';
import { CLIENT_FLAGS_BYTES, ServerHandshake, encodeOptionError, type Decision } from './server-handshake.js';
import type { Export, ExportClient, Exports } from './stage.js';

/** What a client may take for its own part of the handshake; looking up and opening an export does not count. */
const CLIENT_TIME_MS = 10_000;
/** Options of one handshake; a client that sends more is cut off. */
const MAX_OPTIONS = 256;
/** An option's data above MAX_OPTION_BYTES is skipped up to here; beyond, the connection ends. */
const MAX_SKIPPED_BYTES = 1024 * 1024;

/** An export opened by a client, and what was agreed on. */
export interface Opened {
  readonly name: string;
  readonly export: Export;
  readonly structured: boolean;
  readonly blockStatus: boolean;
}

/**
 * Leads one client through the handshake. Undefined: it ended without an export being opened.
 * Rejects only where the stream ends or runs out of time; an export opened by then was handed to `opened`.
 */
export async function negotiate(options: {
  stream: Stream;
  clock: Clock;
  exports: Exports;
  client: ExportClient;
  log: Log;
  opened: (opened: Opened) => void;
}): Promise<Opened | undefined> {
  const { exports, client, log } = options;
  const handshake = new ServerHandshake();
  const peer = new TimedPeer(options.stream, options.clock);
  await peer.send(handshake.greeting());
  if (!handshake.clientFlags(await peer.receive(CLIENT_FLAGS_BYTES))) return undefined;
  for (let count = 0; count < MAX_OPTIONS; count++) {
    const header = parseOptionHeader(await peer.receive(OPTION_HEADER_BYTES));
    if (header === undefined) return undefined;
    if (header.length > MAX_OPTION_BYTES) {
      if (header.length > MAX_SKIPPED_BYTES || header.option === OPTION.exportName) return undefined;
      for (let left = header.length; left > 0; left -= MAX_OPTION_BYTES) {
        await peer.receive(Math.min(left, MAX_OPTION_BYTES));
      }
      await peer.send(encodeOptionError(header.option, OPTION_ERROR.tooBig, `at most ${MAX_OPTION_BYTES} bytes`));
      continue;
    }
    const decision = handshake.option(header.option, await peer.receive(header.length), () => exports.list());
    if (decision.kind === 'end') return undefined;
    if (decision.kind !== 'export') {
      await peer.send(decision.bytes);
      if (decision.kind === 'abort') return undefined;
      continue;
    }
    const { opened, answer } = await enter(handshake, decision, exports, client, log);
    if (opened !== undefined) options.opened(opened);
    if (answer === undefined) return undefined;
    await peer.send(answer);
    if (opened !== undefined) return opened;
  }
  return undefined;
}

/** Looks the export up or opens it. Without an answer the connection ends. */
async function enter(
  handshake: ServerHandshake,
  decision: Extract<Decision, { kind: 'export' }>,
  exports: Exports,
  client: ExportClient,
  log: Log,
): Promise<{ opened?: Opened; answer?: Uint8Array }> {
  const { option, name, infos } = decision;
  try {
    if (option === OPTION.info) {
      return { answer: handshake.accept(option, name, infos, await exports.describe(name)) };
    }
    const found = await exports.open(name, client);
    const facts = { sizeBytes: found.stage.sizeBytes, readOnly: found.readOnly };
    return {
      opened: {
        name,
        export: found,
        structured: handshake.structured,
        blockStatus: handshake.blockStatus(name),
      },
      answer: handshake.accept(option, name, infos, facts),
    };
  } catch (error) {
    if (codeOf(error) === 'internal') log.error({ export: name, err: error }, 'export could not be opened');
    else log.debug({ export: name, code: codeOf(error), message: messageOf(error) }, 'export refused');
    if (option === OPTION.exportName) return {};
    return { answer: encodeOptionError(option, optionErrorOf(error), messageOf(error)) };
  }
}

/** The client on a stream, which is closed when the client has used up its time. */
class TimedPeer {
  #leftMs = CLIENT_TIME_MS;

  constructor(
    private readonly stream: Stream,
    private readonly clock: Clock,
  ) {}

  async receive(count: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(count);
    if (count > 0) await this.#timed(this.stream.read(bytes));
    return bytes;
  }

  send(bytes: Uint8Array): Promise<void> {
    return this.#timed(this.stream.write([bytes]));
  }

  async #timed(transfer: Promise<void>): Promise<void> {
    const start = this.clock.now();
    const cancel = this.clock.timer(Math.max(this.#leftMs, 0), () => this.stream.close());
    try {
      await transfer;
    } finally {
      cancel();
      this.#leftMs -= this.clock.now() - start;
    }
  }
}
