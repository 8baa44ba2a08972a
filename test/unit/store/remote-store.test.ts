import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { credentials, type ServiceError } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fromServiceError, loadProto } from '../../../src/base/grpc.js';
import { silentLog } from '../../../src/base/log.js';
import { serveTcp, type RunningServer } from '../../../src/base/unix-server.js';
import type { ProtoGrpcType } from '../../../src/generated/holdfast.js';
import type { StoreClient } from '../../../src/generated/holdfast/v1/Store.js';
import { MemoryStore, StoreFaults } from '../../../src/store/memory-store.js';
import { RemoteStore } from '../../../src/store/store-client.js';
import { addStoreService } from '../../../src/store/store-server.js';
import { diskRecord, expectCode, take } from '../../contract/record-store.js';

/** A network between client and server that can be cut without either being told. */
class Link {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #cut = false;

  private constructor(target: number) {
    this.#server = createServer((near) => {
      const far = connect(target, '127.0.0.1');
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => this.#sockets.delete(socket));
      }
      near.on('data', (bytes) => {
        if (!this.#cut) far.write(bytes);
      });
      far.on('data', (bytes) => {
        if (!this.#cut) near.write(bytes);
      });
      near.on('close', () => far.destroy());
      far.on('close', () => near.destroy());
    });
  }

  static async to(target: number): Promise<Link> {
    const link = new Link(target);
    link.#server.listen(0, '127.0.0.1');
    await once(link.#server, 'listening');
    return link;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  cut(): void {
    this.#cut = true;
  }

  heal(): void {
    this.#cut = false;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

describe('RemoteStore', () => {
  const faults = new StoreFaults();
  let memory: MemoryStore;
  let server: RunningServer & { port: number };
  let link: Link;
  let store: RemoteStore;
  let end: AbortController;

  function serve(port: number): Promise<RunningServer & { port: number }> {
    return serveTcp('127.0.0.1', port, (grpc) => addStoreService(grpc, memory, silentLog()));
  }

  beforeEach(async () => {
    memory = new MemoryStore({ faults });
    server = await serve(0);
    link = await Link.to(server.port);
    store = new RemoteStore(`127.0.0.1:${link.port}`, { timeoutMs: 1000 });
    end = new AbortController();
  });
  afterEach(async () => {
    end.abort();
    store.close();
    link.close();
    await server.stop();
  });

  async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries++) {
      try {
        return await attempt();
      } catch (error) {
        if (tries === 100) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  it('tells calls and watches that the server is gone, and goes on when it is back', async () => {
    await store.create('disk', 'a', diskRecord(1));
    const { revision } = await store.list('disk');
    const watch = take(store.watch('disk', revision, end.signal), 1);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const { port } = server;
    const [, stopped] = await Promise.allSettled([expectCode('unavailable', watch), server.stop()]);
    expect(stopped.status).toBe('fulfilled');
    await expectCode('unavailable', store.get('disk', 'a'));
    await expectCode('unavailable', store.create('disk', 'b', diskRecord(1)));
    await expectCode('unavailable', take(store.watch('disk', revision, end.signal), 1));
    server = await serve(port);
    await eventually(() => store.get('disk', 'a'));
    const again = take(store.watch('disk', revision, end.signal), 1);
    await memory.create('disk', 'c', diskRecord(1));
    expect(await again).toMatchObject([{ type: 'put', item: { key: 'c' } }]);
  });

  it('waits for a server that is not there yet', async () => {
    const { port } = server;
    await server.stop();
    const early = new RemoteStore(`127.0.0.1:${port}`, { timeoutMs: 1000 });
    await expectCode('unavailable', early.list('disk'));
    server = await serve(port);
    await eventually(() => early.list('disk'));
    early.close();
  });

  it('notices a cut network under a silent watch, and works when it heals', async () => {
    const { revision } = await store.list('disk');
    const watch = take(store.watch('disk', revision, end.signal), 1);
    await new Promise((resolve) => setTimeout(resolve, 100));
    link.cut();
    await expectCode('unavailable', watch);
    await expectCode('unavailable', store.list('disk'));
    link.heal();
    await eventually(() => store.list('disk'));
  });

  it('answers in time when the server does not', async () => {
    let goOn: () => void = () => undefined;
    faults.next('update', { before: new Promise((resolve) => (goOn = resolve)) });
    const { version } = await store.create('disk', 'a', diskRecord(1));
    await expectCode('unavailable', store.update('disk', 'a', diskRecord(2), version));
    goOn();
    await eventually(async () => {
      expect((await store.get('disk', 'a'))?.record.usedBytes).toBe(2);
    });
  });

  it('never sends a change twice: a repeat would be told of a conflict with itself', async () => {
    const { version } = await store.create('disk', 'a', diskRecord(1));
    faults.next('update', { lose: 'answer' });
    await expectCode('unavailable', store.update('disk', 'a', diskRecord(2), version));
    expect((await store.get('disk', 'a'))?.record.usedBytes).toBe(2);
  });

  it('frees the watches of a client that goes away', async () => {
    const { revision } = await store.list('disk');
    for (let i = 0; i < 30; i++) {
      const one = new AbortController();
      const watch = take(store.watch('disk', revision, one.signal), 1);
      if (i % 2 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      one.abort();
      expect(await watch).toEqual([]);
    }
    await store.create('disk', 'a', diskRecord(1));
    expect(await take(store.watch('disk', revision, end.signal), 1)).toHaveLength(1);
  });

  it('refuses what no right client sends, naming what is wrong', async () => {
    const definition = loadProto('holdfast.proto') as unknown as ProtoGrpcType;
    const raw: StoreClient = new definition.holdfast.v1.Store(`127.0.0.1:${server.port}`, credentials.createInsecure());
    const create = (kind: string, key: string, json: string): Promise<unknown> =>
      new Promise((resolve, reject) => {
        raw.Create({ kind, key, json }, (error: ServiceError | null) =>
          error === null ? resolve(undefined) : reject(fromServiceError(error)),
        );
      });
    const json = JSON.stringify(diskRecord(1));
    await expectCode('invalid-argument', create('wolf', 'a', json), /kind wolf/);
    await expectCode('invalid-argument', create('', 'a', json), /kind \(empty\)/);
    await expectCode('invalid-argument', create('disk', '../a', json), /key \.\.\/a/);
    await expectCode('invalid-argument', create('disk', 'a', '{"schema":'), /no JSON/);
    await expectCode('invalid-argument', create('disk', 'a', '{"schema":1}'), /diskId \(missing\)/);
    await expectCode('failed-precondition', create('disk', 'a', '{"schema":9}'), /schema 9/);
    await expectCode('invalid-argument', create('disk', 'a', json + ' '.repeat(1024 * 1024)), /1048576/);
    expect((await memory.list('disk')).items).toEqual([]);
    raw.close();
  });
});
