import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Address, Io, Listener, Slab, Stream } from '../io/io.js';
import { Budget } from './budget.js';
import { MAX_PAYLOAD_BYTES } from './commands.js';
import { Connection } from './connection.js';
import type { Exports } from './stage.js';

const DEFAULT_MAX_IN_FLIGHT = 128;
/** One for each replica with a writer elsewhere, or each device: thousands. An idle one takes about 10 KiB of memory. */
const DEFAULT_MAX_CONNECTIONS = 32_768;
/** Above that, for the export that has room of its own: one for each peer. */
const KEPT_CONNECTIONS = 1_024;
/** Memory for the payloads of private commands, over all connections. */
const CONTROL_BUDGET_BYTES = 32 * 1024 * 1024;
/** A client that holds memory for a payload or a reply without moving it for so long is cut off. */
const STALL_LIMIT_MS = 30_000;
const STALL_CHECK_MS = 10_000;

export interface NbdServerOptions {
  readonly io: Io;
  readonly address: Address;
  readonly exports: Exports;
  /** Data in transfer; at least MAX_PAYLOAD_BYTES. */
  readonly slab: Slab;
  /** Requests of one connection that are begun and not answered; default 128. */
  readonly maxInFlight?: number;
  /** Default 32,768; a client above it is turned away. */
  readonly maxConnections?: number;
  /** Name of an export that those who use the others depend on: it is served above `maxConnections` too. */
  readonly roomFor?: string;
  readonly log: Log;
}

export interface NbdServer extends Listener {
  /** Connections that are not drained. */
  readonly connectionCount: number;
  /** Their requests that were begun and not carried out yet. */
  readonly requestsUnderWay: number;
  /** Stops listening, ends every connection, and resolves when all are drained. */
  close(): Promise<void>;
}

/** Serves NBD on an address. `already-exists`, `unavailable`: can't listen there. */
export async function serveNbd(options: NbdServerOptions): Promise<NbdServer> {
  if (options.slab.capacityBytes < MAX_PAYLOAD_BYTES) {
    const told = `slab of ${options.slab.capacityBytes} bytes`;
    throw new HoldfastError('invalid-argument', `${told}: a server needs at least ${MAX_PAYLOAD_BYTES}`);
  }
  const connections = new Connections(options);
  const listener = await options.io.network.listen(options.address, (stream) => connections.accept(stream));
  return {
    address: listener.address,
    get connectionCount() {
      return connections.count;
    },
    get requestsUnderWay() {
      return connections.requestsUnderWay;
    },
    close: async () => {
      // The connections end in this very call: whoever stops what serves them can do so next, and no reply tells of it.
      const drained = connections.close();
      await listener.close();
      await drained;
    },
  };
}

class Connections {
  readonly #live = new Map<Connection, Promise<void>>();
  readonly #controlBudget = new Budget(CONTROL_BUDGET_BYTES);
  #closing = false;
  #turnedAway = 0;
  #cancelCheck: (() => void) | undefined;

  constructor(private readonly options: NbdServerOptions) {}

  get count(): number {
    return this.#live.size;
  }

  get requestsUnderWay(): number {
    let sum = 0;
    for (const connection of this.#live.keys()) sum += connection.underWay;
    return sum;
  }

  accept(stream: Stream): void {
    const { io, exports, slab, log, roomFor } = this.options;
    const above = this.#live.size - this.#maxConnections;
    if (this.#closing || above >= (roomFor === undefined ? 0 : KEPT_CONNECTIONS)) {
      if (!this.#closing) this.#turnsAway();
      stream.close();
      return;
    }
    const connection = new Connection({
      stream,
      clock: io.clock,
      exports: roomFor !== undefined && above >= 0 ? this.#onlyOne(roomFor) : exports,
      slab,
      controlBudget: this.#controlBudget,
      maxInFlight: this.options.maxInFlight ?? DEFAULT_MAX_IN_FLIGHT,
      log,
    });
    this.#live.set(
      connection,
      connection.run().then(() => this.#ended(connection)),
    );
    this.#cancelCheck ??= this.#planCheck();
  }

  async close(): Promise<void> {
    this.#closing = true;
    for (const connection of this.#live.keys()) connection.close();
    await Promise.all(this.#live.values());
  }

  get #maxConnections(): number {
    return this.options.maxConnections ?? DEFAULT_MAX_CONNECTIONS;
  }

  #turnsAway(): void {
    if (this.#turnedAway++ === 0) this.options.log.warn({ connections: this.#live.size }, 'clients turned away');
  }

  /** What a client above the bound is offered. It has no need of the list. */
  #onlyOne(name: string): Exports {
    const { exports } = this.options;
    const refuseOthers = (asked: string): void => {
      if (asked === name) return;
      this.#turnsAway();
      throw new HoldfastError('unavailable', `there are ${this.#maxConnections} connections already`);
    };
    return {
      list: () => [],
      describe: async (asked) => {
        refuseOthers(asked);
        return exports.describe(asked);
      },
      open: async (asked, client) => {
        refuseOthers(asked);
        return exports.open(asked, client);
      },
    };
  }

  #ended(connection: Connection): void {
    this.#live.delete(connection);
    if (this.#turnedAway > 0 && this.#live.size < this.#maxConnections) {
      this.options.log.warn({ count: this.#turnedAway }, 'clients were turned away');
      this.#turnedAway = 0;
    }
    if (this.#live.size > 0) return;
    this.#cancelCheck?.();
    this.#cancelCheck = undefined;
  }

  #planCheck(): () => void {
    return this.options.io.clock.timer(STALL_CHECK_MS, () => {
      const limit = this.options.io.clock.now() - STALL_LIMIT_MS;
      for (const connection of this.#live.keys()) {
        if (!connection.stalledSince(limit)) continue;
        this.options.log.warn('a client that moves no data is cut off');
        connection.close();
      }
      this.#cancelCheck = this.#planCheck();
    });
  }
}
