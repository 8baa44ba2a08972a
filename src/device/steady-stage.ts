import { HoldfastError, codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock, Extent, Lease, Slab } from '../io/io.js';
import type { Stage } from '../nbd/stage.js';

/** A stage behind a connection that can be lost. Then every unanswered request is rejected with `unavailable`. */
export interface ConnectedStage extends Stage {
  readonly lost: Promise<HoldfastError>;
  close(): void;
}

const FIRST_DELAY_MS = 50;
const LONGEST_DELAY_MS = 1_000;

/**
 * A stage that outlives its connections. While there is none, requests wait; those that were unanswered when it was
 * lost are sent again on the next one (R11). What the export itself answers, errors too, is passed on unchanged.
 * It waits for ever: only `fail` ends that.
 */
export class SteadyStage implements Stage {
  sizeBytes: number;
  #connection: ConnectedStage | undefined;
  #failure: HoldfastError | undefined;
  #connecting = false;
  #delayMs = FIRST_DELAY_MS;
  #connectedAt = 0;
  #cancelDelay: (() => void) | undefined;
  #waiting: (() => void)[] = [];

  constructor(
    private readonly parts: {
      readonly connect: () => Promise<ConnectedStage>;
      readonly clock: Clock;
      readonly log: Log;
      readonly sizeBytes: number;
    },
  ) {
    this.sizeBytes = parts.sizeBytes;
  }

  get failed(): boolean {
    return this.#failure !== undefined;
  }

  /** The first connection; throws as `connect` does where the export can't be opened now. */
  async open(): Promise<void> {
    this.#use(await this.parts.connect());
  }

  /** Every waiting and future request fails with `fenced`, at once. Repeats do nothing. */
  fail(reason: string): void {
    if (this.#failure !== undefined) return;
    this.#failure = new HoldfastError('fenced', reason);
    this.#cancelDelay?.();
    this.#connection?.close();
    this.#connection = undefined;
    this.#release();
  }

  read(offset: number, length: number, slab: Slab): Promise<Lease> {
    return this.#carry((stage) => stage.read(offset, length, slab));
  }

  write(offset: number, data: Lease, fua: boolean): Promise<void> {
    return this.#carry((stage) => stage.write(offset, data, fua));
  }

  flush(): Promise<void> {
    return this.#carry((stage) => stage.flush());
  }

  trim(offset: number, length: number, fua: boolean): Promise<void> {
    return this.#carry((stage) => stage.trim(offset, length, fua));
  }

  zero(offset: number, length: number, fua: boolean, allocate: boolean): Promise<void> {
    return this.#carry((stage) => stage.zero(offset, length, fua, allocate));
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.#carry((stage) => stage.extents(offset, length));
  }

  async #carry<T>(request: (stage: Stage) => Promise<T>): Promise<T> {
    for (;;) {
      const connection = this.#connection ?? (await this.#connected());
      try {
        return await request(connection);
      } catch (error) {
        if (this.#failure !== undefined) throw this.#failure;
        if (codeOf(error) !== 'unavailable') throw error;
        this.#drop(connection, messageOf(error));
      }
    }
  }

  async #connected(): Promise<ConnectedStage> {
    while (this.#failure === undefined) {
      if (this.#connection !== undefined) return this.#connection;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    throw this.#failure;
  }

  #use(connection: ConnectedStage): void {
    if (this.#failure !== undefined) {
      connection.close();
      return;
    }
    this.#connection = connection;
    this.#connectedAt = this.parts.clock.now();
    void connection.lost.then((reason) => this.#drop(connection, reason.message));
    this.#release();
  }

  /** A connection that rejected a request is not used again, so that nothing is sent twice side by side. */
  #drop(connection: ConnectedStage, reason: string): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    connection.close();
    if (this.#failure === undefined && !this.#connecting) void this.#reconnect(connection.lost, reason);
  }

  /** Rejections of the old connection come before the new one is made. Never rejects. */
  async #reconnect(ended: Promise<unknown>, reason: string): Promise<void> {
    const { clock, log } = this.parts;
    this.#connecting = true;
    const since = clock.now();
    log.warn({ reason }, 'export lost; I/O waits');
    await ended;
    // An export that ends every connection soon after it was made is not asked again at once.
    if (since - this.#connectedAt < LONGEST_DELAY_MS) await this.#pause();
    else this.#delayMs = FIRST_DELAY_MS;
    const connection = await this.#nextConnection();
    this.#connecting = false;
    if (connection === undefined) return;
    log.info({ waitedMs: Math.round(clock.now() - since) }, 'export is back');
    this.#use(connection);
  }

  /** Tries for ever; undefined after `fail`. */
  async #nextConnection(): Promise<ConnectedStage | undefined> {
    let told = '';
    while (this.#failure === undefined) {
      try {
        return await this.parts.connect();
      } catch (error) {
        const reason = messageOf(error);
        if (reason !== told) this.parts.log.info({ reason }, 'export is not back yet');
        told = reason;
      }
      await this.#pause();
    }
    return undefined;
  }

  /** Waits with a back-off that `fail` cuts short. */
  #pause(): Promise<void> {
    if (this.#failure !== undefined) return Promise.resolve();
    const delayMs = this.#delayMs;
    this.#delayMs = Math.min(2 * delayMs, LONGEST_DELAY_MS);
    return new Promise((resolve) => {
      const cancel = this.parts.clock.timer(delayMs, resolve);
      this.#cancelDelay = () => {
        cancel();
        resolve();
      };
    });
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resume of waiting) resume();
  }
}
