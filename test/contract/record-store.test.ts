import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../src/base/log.js';
import { serveTcp } from '../../src/base/unix-server.js';
import { LevelStore } from '../../src/store/level-store.js';
import { MemoryStore } from '../../src/store/memory-store.js';
import type { LogBounds } from '../../src/store/record-table.js';
import { RemoteStore } from '../../src/store/store-client.js';
import { addStoreService } from '../../src/store/store-server.js';
import { recordStoreContract, type StoreUnderTest } from './record-store.js';

recordStoreContract('memory', (bounds) =>
  Promise.resolve({
    store: new MemoryStore(bounds === undefined ? {} : { bounds }),
    close: () => Promise.resolve(),
  }),
);

recordStoreContract('level', startLevel);

recordStoreContract('remote over level', async (bounds) => {
  const level = await startLevel(bounds);
  let server = await serveTcp('127.0.0.1', 0, (grpc) => addStoreService(grpc, level.store, silentLog()));
  const port = server.port;
  const store = new RemoteStore(`127.0.0.1:${port}`);
  return {
    store,
    restart: async () => {
      await server.stop();
      const again = await level.restart();
      server = await serveTcp('127.0.0.1', port, (grpc) => addStoreService(grpc, again, silentLog()));
      return store;
    },
    close: async () => {
      store.close();
      await server.stop();
      await level.close();
    },
  };
});

async function startLevel(bounds?: LogBounds): Promise<StoreUnderTest & { restart: () => Promise<LevelStore> }> {
  const directory = await mkdtemp(join(tmpdir(), 'holdfast-store-'));
  let store = await LevelStore.open(directory, bounds);
  return {
    store,
    restart: async () => {
      await store.close();
      return (store = await LevelStore.open(directory, bounds));
    },
    close: async () => {
      await store.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
