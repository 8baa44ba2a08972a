import type { ErrorCode } from '../base/errors.js';
import type { Counter, Histogram, Meters } from '../base/meters.js';
import type { CommandName } from './commands.js';

/** Counts the requests of an export, or those of a client. */
export interface RequestMeter {
  /** A request of `bytes` was answered, `ms` after it was begun; `code`: it failed. */
  answered(command: CommandName, bytes: number, ms: number, code: ErrorCode | undefined): void;
}

/** Meters by command or code, each asked for at its first use: after that, counting allocates nothing. */
export class Kinds<Kind extends string, T> {
  readonly #known = new Map<Kind, T>();

  constructor(private readonly make: (kind: Kind) => T) {}

  of(kind: Kind): T {
    const known = this.#known.get(kind);
    if (known !== undefined) return known;
    const made = this.make(kind);
    this.#known.set(kind, made);
    return made;
  }
}

/** Requests of clients to the writer of one volume. */
export class ClientRequests implements RequestMeter {
  readonly #ops: Kinds<CommandName, { seconds: Histogram; requests: Counter; bytes: Counter }>;
  readonly #errors: Kinds<ErrorCode, { volume: Counter; side: Counter }>;
  readonly #fenced: Counter;
  #toldFenced = false;

  constructor(
    meters: Meters,
    volume: string,
    /** The first request was refused since the writer is fenced. */
    private readonly onFenced: () => void,
  ) {
    this.#ops = new Kinds((op) => ({
      seconds: meters.histogram('holdfast_client_request_seconds', { op }),
      requests: meters.counter('holdfast_volume_requests_total', { volume, op }),
      bytes: meters.counter('holdfast_volume_bytes_total', { volume, op }),
    }));
    this.#errors = new Kinds((code) => ({
      volume: meters.counter('holdfast_volume_errors_total', { volume, code }),
      side: meters.counter('holdfast_nbd_errors_total', { side: 'client', code }),
    }));
    this.#fenced = meters.counter('holdfast_fenced_requests_total', { side: 'writer' });
  }

  answered(command: CommandName, bytes: number, ms: number, code: ErrorCode | undefined): void {
    const { seconds, requests, bytes: moved } = this.#ops.of(command);
    requests.add();
    if (code === undefined) {
      seconds.observe(ms / 1_000);
      moved.add(bytes);
      return;
    }
    const errors = this.#errors.of(code);
    errors.volume.add();
    errors.side.add();
    if (code !== 'fenced') return;
    this.#fenced.add();
    if (!this.#toldFenced) this.onFenced();
    this.#toldFenced = true;
  }
}

/** Requests of writers elsewhere to replicas here. */
export class PeerRequests implements RequestMeter {
  readonly #seconds: Kinds<CommandName, Histogram>;
  readonly #errors: Kinds<ErrorCode, Counter>;
  readonly #fenced: Counter;

  constructor(meters: Meters) {
    this.#seconds = new Kinds((op) => meters.histogram('holdfast_replica_request_seconds', { op }));
    this.#errors = new Kinds((code) => meters.counter('holdfast_nbd_errors_total', { side: 'peer', code }));
    this.#fenced = meters.counter('holdfast_fenced_requests_total', { side: 'replica' });
  }

  answered(command: CommandName, _bytes: number, ms: number, code: ErrorCode | undefined): void {
    if (code === undefined) this.#seconds.of(command).observe(ms / 1_000);
    else this.#errors.of(code).add();
    if (code === 'fenced') this.#fenced.add();
  }
}

/** Requests of writers here to the replica on one other node, until its answer. */
export class PeerAnswers implements RequestMeter {
  readonly #seconds: Kinds<CommandName, Histogram>;

  constructor(meters: Meters, replica: string) {
    this.#seconds = new Kinds((op) => meters.histogram('holdfast_peer_request_seconds', { replica, op }));
  }

  answered(command: CommandName, _bytes: number, ms: number): void {
    this.#seconds.of(command).observe(ms / 1_000);
  }
}
