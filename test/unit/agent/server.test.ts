import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NodeAgentClient } from '../../../src/agent/client.js';
import { addAgentService, nbdUri, type AgentOptions, type AgentVolumes } from '../../../src/agent/server.js';
import { HoldfastError } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import { KeyedMutex } from '../../../src/base/mutex.js';
import { serveTcp } from '../../../src/base/unix-server.js';
import { volumeKey } from '../../../src/model/ids.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { volumeRecord } from '../csi/node-fakes.js';
import { HeldReplicas } from './held-replicas.js';

const VOLUME = `vol-${'a'.repeat(32)}`;

const attached: AgentVolumes = {
  grow: (volume) => Promise.resolve(volume === VOLUME ? 4096 : 0),
  end: (volume) =>
    volume === VOLUME
      ? Promise.resolve()
      : Promise.reject(new HoldfastError('unavailable', 'the store does not answer')),
  attachment: (volume) =>
    Promise.resolve(
      volume === VOLUME
        ? {
            status: {
              state: 'serving',
              epoch: 7,
              inSync: ['node-1'],
              regionsOpen: 3,
              regionsToReconcile: 2,
              resync: { node: 'node-2', regionsTotal: 10, regionsDone: 4 },
              waitsFor: ['the store'],
            },
            address: { socketPath: '/run/a b/socket', exportName: 'volume/1' },
          }
        : undefined,
    ),
};

/** What is asked of the data threads, in words. */
const asked: string[] = [];
const attachments: AgentOptions['attachments'] = {
  refresh: (volume) => Promise.resolve(void asked.push(`refresh ${volume}`)),
  dropReplica: (volume, node, why) => Promise.resolve(void asked.push(`drop ${node} from ${volume}: ${why}`)),
  maintain: (volume, drop) => Promise.resolve(void asked.push(`maintain ${volume}, drop ${drop.join()}`)),
  yieldUp: (volume) => Promise.resolve(volume === VOLUME),
};

describe('the node agent', () => {
  const store = new MemoryStore();
  const replicas = new HeldReplicas();
  let client: NodeAgentClient;
  let stop = (): Promise<void> => Promise.resolve();

  beforeEach(async () => {
    const log = silentLog();
    const server = await serveTcp('127.0.0.1', 0, (grpc) =>
      addAgentService(grpc, {
        nodeName: 'node-1',
        store,
        replicas,
        turns: new KeyedMutex(),
        volumes: attached,
        attachments,
        log,
      }),
    );
    client = new NodeAgentClient('node-1', `127.0.0.1:${String(server.port)}`);
    stop = async () => {
      client.close();
      await server.stop();
    };
  });
  afterEach(() => stop());

  it('makes, lists and removes replicas', async () => {
    await client.createReplica(VOLUME, 'disk-1', 1024 ** 2);
    expect(await client.listReplicas()).toMatchObject([
      { volume: VOLUME, disk: 'disk-0000000000000001', capacityBytes: 1 },
    ]);
    await client.removeReplica(VOLUME);
    expect(await client.listReplicas()).toEqual([]);
  });

  it('keeps a replica that the record of a ready volume names, however late the request comes', async () => {
    await client.createReplica(VOLUME, 'disk-1', 1024 ** 2);
    const { record, version, key } = await store.create(
      'volume',
      volumeKey(VOLUME),
      volumeRecord(VOLUME, { node: 'node-1' }),
    );
    await expect(client.removeReplica(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
    expect(await client.listReplicas()).toHaveLength(1);
    await store.update('volume', key, { ...record, phase: 'deleting' }, version);
    await client.removeReplica(VOLUME);
    expect(await client.listReplicas()).toEqual([]);
  });

  it('passes on what the controller asks of writers', async () => {
    await client.refreshVolume(VOLUME);
    await client.dropReplica(VOLUME, 'node-2', 'no longer wanted');
    await client.maintainVolume(VOLUME, ['node-3']);
    expect(asked).toEqual([
      `refresh ${VOLUME}`,
      `drop node-2 from ${VOLUME}: no longer wanted`,
      `maintain ${VOLUME}, drop node-3`,
    ]);
    expect(await client.yieldVolume(VOLUME)).toBe(true);
    expect(await client.yieldVolume(`vol-${'b'.repeat(32)}`)).toBe(false);
    await expect(client.dropReplica(VOLUME, '', '')).rejects.toMatchObject({ code: 'invalid-argument' });
  });

  it('tells how an attachment stands, and where it is served', async () => {
    expect(await client.getAttachment(VOLUME)).toMatchObject({
      state: 'serving',
      epoch: 7,
      in_sync: ['node-1'],
      regions_open: 3,
      regions_to_reconcile: 2,
      resync: { node: 'node-2', regions_total: 10, regions_done: 4 },
      waits_for: ['the store'],
      nbd_uri: nbdUri({ socketPath: '/run/a b/socket', exportName: VOLUME }),
    });
    expect(await client.getAttachment(`vol-${'b'.repeat(32)}`)).toBeNull();
  });

  it('names of sockets and exports are safe in its URI', () => {
    const uri = nbdUri({ socketPath: '/run/a b?/socket', exportName: 'volume/1' });
    expect(uri).toBe('nbd+unix:///volume%2F1?socket=%2Frun%2Fa%20b%3F%2Fsocket');
  });

  it('grows and releases; the exact refusal reaches the controller', async () => {
    expect(await client.growVolume(VOLUME)).toBe(4096);
    expect(await client.growVolume(`vol-${'b'.repeat(32)}`)).toBe(0);
    await client.releaseVolume(VOLUME);
    await expect(client.releaseVolume(`vol-${'b'.repeat(32)}`)).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('refuses what is no volume, no disk or no capacity', async () => {
    await expect(client.createReplica('other', 'disk-1', 1)).rejects.toMatchObject({ code: 'invalid-argument' });
    await expect(client.createReplica(VOLUME, '', 1)).rejects.toMatchObject({ code: 'invalid-argument' });
    await expect(client.createReplica(VOLUME, 'disk-1', 0)).rejects.toMatchObject({ code: 'invalid-argument' });
  });
});
