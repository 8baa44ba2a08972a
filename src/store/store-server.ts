import { once } from 'node:events';
import { Metadata, type Server, type ServerWritableStream } from '@grpc/grpc-js';
import { loadProto, toServiceError, unary } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { ProtoGrpcType } from '../generated/holdfast.js';
import type { ChangeEvent } from '../generated/holdfast/v1/ChangeEvent.js';
import type { CreateRequest__Output } from '../generated/holdfast/v1/CreateRequest.js';
import type { DeleteRequest__Output } from '../generated/holdfast/v1/DeleteRequest.js';
import type { DeleteResponse } from '../generated/holdfast/v1/DeleteResponse.js';
import type { GetRequest__Output } from '../generated/holdfast/v1/GetRequest.js';
import type { GetResponse } from '../generated/holdfast/v1/GetResponse.js';
import type { ListRequest__Output } from '../generated/holdfast/v1/ListRequest.js';
import type { ListResponse } from '../generated/holdfast/v1/ListResponse.js';
import type { StoredRecord } from '../generated/holdfast/v1/StoredRecord.js';
import type { StoreHandlers } from '../generated/holdfast/v1/Store.js';
import type { UpdateRequest__Output } from '../generated/holdfast/v1/UpdateRequest.js';
import type { WatchRequest__Output } from '../generated/holdfast/v1/WatchRequest.js';
import type { RecordKind, RecordTypes, Versioned } from '../model/records.js';
import { acceptRecord, decodeRecord, parseKind } from './records.js';
import type { Change, RecordStore } from './store.js';

/**
 * Serves a record store to the other processes of the cluster (service Store of proto/holdfast.proto). Records travel
 * as JSON text; each is checked before it is stored, so that one wrong client can't spoil a list for all.
 */
export function addStoreService(server: Server, store: RecordStore, log: Log): void {
  const definition = loadProto('holdfast.proto') as unknown as ProtoGrpcType;
  const handlers: StoreHandlers = {
    Get: unary<GetRequest__Output, GetResponse>(log, 'Store.Get', async ({ kind, key }) => {
      const item = await store.get(parseKind(kind), key);
      return { item: item === undefined ? null : toWire(item) };
    }),
    List: unary<ListRequest__Output, ListResponse>(log, 'Store.List', async ({ kind }) => {
      const { items, revision } = await store.list(parseKind(kind));
      return { items: items.map(toWire), revision };
    }),
    Create: unary<CreateRequest__Output, StoredRecord>(log, 'Store.Create', async (request) => {
      const { kind, record } = fromWire(request);
      return toWire(await store.create(kind, request.key, record));
    }),
    Update: unary<UpdateRequest__Output, StoredRecord>(log, 'Store.Update', async (request) => {
      const { kind, record } = fromWire(request);
      return toWire(await store.update(kind, request.key, record, request.version));
    }),
    Delete: unary<DeleteRequest__Output, DeleteResponse>(log, 'Store.Delete', async ({ kind, key, version }) => {
      await store.delete(parseKind(kind), key, version === '' ? undefined : version);
      return {};
    }),
    Watch: (call) => void serveWatch(store, call, log),
  };
  server.addService(definition.holdfast.v1.Store.service, { ...handlers });
}

/** Sends changes as fast as the client takes them, until one side ends the call. */
async function serveWatch(
  store: RecordStore,
  call: ServerWritableStream<WatchRequest__Output, ChangeEvent>,
  log: Log,
): Promise<void> {
  const gone = new AbortController();
  call.once('cancelled', () => gone.abort());
  call.once('close', () => gone.abort());
  call.on('error', () => gone.abort());
  // Tells the client at once that the watch stands; the first change may be long in coming.
  call.sendMetadata(new Metadata());
  try {
    for await (const change of store.watch(parseKind(call.request.kind), call.request.revision, gone.signal)) {
      if (!call.write(toEvent(change))) await once(call, 'drain', { signal: gone.signal });
    }
    call.end();
  } catch (error) {
    if (gone.signal.aborted) return;
    log.debug({ rpc: 'Store.Watch', kind: call.request.kind, err: error }, 'watch ended');
    call.emit('error', toServiceError(error));
  }
}

function fromWire(request: { kind: string; key: string; json: string }): {
  kind: RecordKind;
  record: RecordTypes[RecordKind];
} {
  const kind = parseKind(request.kind);
  acceptRecord(kind, request.key, request.json);
  return { kind, record: decodeRecord(kind, request.key, request.json) };
}

function toWire(item: Versioned<RecordTypes[RecordKind]>): StoredRecord {
  return { key: item.key, version: item.version, json: JSON.stringify(item.record) };
}

function toEvent(change: Change<RecordTypes[RecordKind]>): ChangeEvent {
  return change.type === 'put'
    ? { revision: change.revision, item: toWire(change.item) }
    : { revision: change.revision, deleted_key: change.key };
}
