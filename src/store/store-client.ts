import {
  connectivityState,
  credentials,
  type CallOptions,
  type ClientReadableStream,
  type Metadata,
  type ServiceError,
} from '@grpc/grpc-js';
import { HoldfastError, asHoldfastError, codeOf, messageOf, type ErrorCode } from '../base/errors.js';
import { fromServiceError, invoke, loadProto } from '../base/grpc.js';
import type { ProtoGrpcType } from '../generated/holdfast.js';
import type { ChangeEvent__Output } from '../generated/holdfast/v1/ChangeEvent.js';
import type { CreateRequest } from '../generated/holdfast/v1/CreateRequest.js';
import type { DeleteRequest } from '../generated/holdfast/v1/DeleteRequest.js';
import type { DeleteResponse__Output } from '../generated/holdfast/v1/DeleteResponse.js';
import type { GetRequest } from '../generated/holdfast/v1/GetRequest.js';
import type { GetResponse__Output } from '../generated/holdfast/v1/GetResponse.js';
import type { ListRequest } from '../generated/holdfast/v1/ListRequest.js';
import type { ListResponse__Output } from '../generated/holdfast/v1/ListResponse.js';
import type { UpdateRequest } from '../generated/holdfast/v1/UpdateRequest.js';
import type { StoreClient } from '../generated/holdfast/v1/Store.js';
import type { StoredRecord__Output } from '../generated/holdfast/v1/StoredRecord.js';
import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';
import { checkKey, decodeRecord, encodeRecord } from './records.js';
import type { Change, RecordStore } from './store.js';

const CALL_TIMEOUT_MS = 5_000;

/** All records of a kind come in one answer. */
const MAX_ANSWER_BYTES = 512 * 1024 * 1024;

/**
 * A cut network is noticed by a ping without answer, within keepalive time + time-out. A lost connection is made again
 * when a call needs it; tries are at most the maximum back-off apart, however long the server was away. Nothing is
 * sent twice on its own: a repeat whose first copy came through would be told `conflict`, which is said to be definite.
 */
const CHANNEL_OPTIONS = {
  'grpc.keepalive_time_ms': 2_000,
  'grpc.keepalive_timeout_ms': 2_000,
  'grpc.keepalive_permit_without_calls': 1,
  'grpc.initial_reconnect_backoff_ms': 200,
  'grpc.max_reconnect_backoff_ms': 2_000,
  'grpc.enable_retries': 0,
  'grpc.service_config_disable_resolution': 1,
  'grpc.use_local_subchannel_pool': 1,
  'grpc.enable_http_proxy': 0,
  'grpc.max_receive_message_length': MAX_ANSWER_BYTES,
};

/** Refusals of the server, after which it is certain that nothing was changed. */
const DEFINITE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'invalid-argument',
  'out-of-range',
  'not-found',
  'already-exists',
  'failed-precondition',
  'conflict',
  'corrupt',
  'unimplemented',
]);

type UnaryMethod<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: CallOptions,
  callback: (error: ServiceError | null, response?: Response) => void,
) => unknown;

/** The record store that the controller serves at `host:port`. Calls fail with `unavailable` after `timeoutMs`. */
export class RemoteStore implements RecordStore {
  #client: StoreClient;
  readonly #timeoutMs: number;
  #closed = false;

  constructor(
    private readonly address: string,
    options: { timeoutMs?: number } = {},
  ) {
    this.#client = connect(address);
    this.#timeoutMs = options.timeoutMs ?? CALL_TIMEOUT_MS;
  }

  async get<K extends RecordKind>(kind: K, key: string): Promise<Versioned<RecordTypes[K]> | undefined> {
    checkKey(kind, key);
    const { item } = await this.#call<GetRequest, GetResponse__Output>((...call) => this.#client.Get(...call), {
      kind,
      key,
    });
    return item === null ? undefined : fromWire(kind, item);
  }

  async list<K extends RecordKind>(kind: K): Promise<{ items: Versioned<RecordTypes[K]>[]; revision: string }> {
    const { items, revision } = await this.#call<ListRequest, ListResponse__Output>(
      (...call) => this.#client.List(...call),
      { kind },
    );
    return { items: items.map((item) => fromWire(kind, item)), revision };
  }

  async create<K extends RecordKind>(kind: K, key: string, record: RecordTypes[K]): Promise<Versioned<RecordTypes[K]>> {
    const request = { kind, key, json: encodeRecord(kind, key, record) };
    return fromWire(
      kind,
      await this.#call<CreateRequest, StoredRecord__Output>((...call) => this.#client.Create(...call), request),
    );
  }

  async update<K extends RecordKind>(
    kind: K,
    key: string,
    record: RecordTypes[K],
    version: string,
  ): Promise<Versioned<RecordTypes[K]>> {
    const request = { kind, key, json: encodeRecord(kind, key, record), version };
    return fromWire(
      kind,
      await this.#call<UpdateRequest, StoredRecord__Output>((...call) => this.#client.Update(...call), request),
    );
  }

  async delete(kind: RecordKind, key: string, version?: string): Promise<void> {
    checkKey(kind, key);
    const request = { kind, key, version: version ?? '' };
    await this.#call<DeleteRequest, DeleteResponse__Output>((...call) => this.#client.Delete(...call), request);
  }

  async *watch<K extends RecordKind>(
    kind: K,
    revision: string,
    signal: AbortSignal,
  ): AsyncGenerator<Change<RecordTypes[K]>, void> {
    if (signal.aborted) return;
    if (this.#closed) throw this.#unknown(new Error('the client is closed'));
    const stream = this.#client.Watch({ kind, revision });
    // May come before anybody reads, or when nobody reads any more; then the stream itself just ends.
    let failure: Error | undefined;
    stream.on('error', (error) => (failure = error));
    const cancel = (): void => stream.cancel();
    signal.addEventListener('abort', cancel);
    try {
      if (!(await this.#begun(stream))) throw this.#silent('no answer to a watch');
      for await (const event of stream as AsyncIterable<ChangeEvent__Output>) {
        if (isAborted(signal)) return;
        yield fromEvent(kind, event);
      }
    } catch (error) {
      failure ??= asError(error);
    } finally {
      signal.removeEventListener('abort', cancel);
      stream.cancel();
    }
    if (isAborted(signal)) return;
    if (failure === undefined) throw this.#unknown(new Error('the server ended the watch'));
    throw isServiceError(failure) ? this.#unknown(fromServiceError(failure)) : failure;
  }

  /** Ends the connection; running calls and watches fail. Repeats do nothing. */
  close(): void {
    this.#closed = true;
    this.#client.close();
  }

  /** The server sends its header at once; without one in time there is nobody (false). */
  #begun(stream: ClientReadableStream<ChangeEvent__Output>): Promise<boolean> {
    return new Promise((resolve) => {
      const late = setTimeout(() => resolve(false), this.#timeoutMs);
      const begun = (): void => {
        clearTimeout(late);
        resolve(true);
      };
      stream.once('metadata', begun);
      stream.once('error', begun);
      stream.once('end', begun);
    });
  }

  async #call<Request, Response>(method: UnaryMethod<Request, Response>, request: Request): Promise<Response> {
    try {
      return await invoke(this.#client, method, request, this.#timeoutMs);
    } catch (error) {
      if (codeOf(error) === 'deadline-exceeded') throw this.#silent(messageOf(error));
      throw this.#unknown(error);
    }
  }

  /**
   * There was no answer in time. Where the channel has no connection either, it waits for one that may be slow to fail
   * (a first packet that got lost in a cut network is sent again only after up to a minute): the next call tries anew.
   */
  #silent(why: string): HoldfastError {
    const connected = this.#client.getChannel().getConnectivityState(false) === connectivityState.READY;
    if (!connected && !this.#closed) {
      this.#client.close();
      this.#client = connect(this.address);
    }
    return this.#unknown(new Error(why));
  }

  /** Definite refusals as they are; all else is `unavailable`: whether a change was carried out is not known. */
  #unknown(error: unknown): HoldfastError {
    const told = asHoldfastError(error);
    if (DEFINITE.has(told.code)) return told;
    return new HoldfastError('unavailable', `store ${this.address}: ${told.message}`, { cause: error });
  }
}

let definition: ProtoGrpcType | undefined;

function connect(address: string): StoreClient {
  definition ??= loadProto('holdfast.proto') as unknown as ProtoGrpcType;
  return new definition.holdfast.v1.Store(address, credentials.createInsecure(), CHANNEL_OPTIONS);
}

function fromWire<K extends RecordKind>(kind: K, item: StoredRecord__Output): Versioned<RecordTypes[K]> {
  return { key: item.key, version: item.version, record: decodeRecord(kind, item.key, item.json) };
}

function fromEvent<K extends RecordKind>(kind: K, event: ChangeEvent__Output): Change<RecordTypes[K]> {
  return event.item === null
    ? { type: 'delete', revision: event.revision, key: event.deleted_key }
    : { type: 'put', revision: event.revision, item: fromWire(kind, event.item) };
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

function isAborted(signal: AbortSignal): boolean {
  return signal.aborted;
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && 'details' in error && 'metadata' in error;
}
