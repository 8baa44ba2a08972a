import { describe, expect, it } from 'vitest';
import { dataServices } from '../../../src/agent/data-services.js';
import { publishNode } from '../../../src/agent/announce.js';
import { silentLog } from '../../../src/base/log.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { volumeKey } from '../../../src/model/ids.js';
import { LeaseObserver } from '../../../src/store/lease.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { RecordCache } from '../../../src/store/watch.js';
import { volumeRecord } from '../csi/node-fakes.js';

const VOLUME = `vol-${'a'.repeat(32)}`;

function setUp() {
  const { clock, random } = createNodeIo();
  const log = silentLog();
  const store = new MemoryStore();
  const asked: string[] = [];
  const agents = {
    of: ({ name }: { name: string }) => ({
      yieldVolume: (volume: string) => Promise.resolve(asked.push(`${name} ${volume}`) > 0),
    }),
  };
  const nodes = new RecordCache(store, 'node', { clock, random, log });
  const services = dataServices({ store, nodes, leases: new LeaseObserver({ store, clock, log }), clock, agents });
  return { store, services, asked };
}

describe('what data threads ask of the main thread', () => {
  it('a volume is changed by compare-and-swap', async () => {
    const { store, services } = setUp();
    expect(await services.getVolume(VOLUME)).toBeUndefined();
    const { record, version } = await store.create('volume', volumeKey(VOLUME), volumeRecord(VOLUME));
    await services.updateVolume({ ...record, epoch: 2 }, version);
    expect((await services.getVolume(VOLUME))?.record.epoch).toBe(2);
    await expect(services.updateVolume(record, version)).rejects.toMatchObject({ code: 'conflict' });
  });

  it('the record of another volume, which has the name by now, is none', async () => {
    const { store, services } = setUp();
    await store.create('volume', volumeKey(VOLUME), volumeRecord(VOLUME.replace(/.{8}$/, '00000000')));
    expect(await services.getVolume(VOLUME)).toBeUndefined();
  });

  it('a lease that is not seen to expire within any time, a fraction of a millisecond too, is not expired', async () => {
    const { services } = setUp();
    for (const timeoutMs of [20.5, 0, -3]) expect(await services.leaseExpired('node-2', timeoutMs)).toBe(false);
  });

  it('the node of a writer without a device is asked to give the volume up, where it is known', async () => {
    const { store, services, asked } = setUp();
    const node = { name: 'node-2', nodeUid: 'u', topology: {}, host: '10.0.0.2', agentPort: 1, dataPorts: [7] };
    await publishNode(store, node);
    await services.askToYield('node-2', VOLUME);
    expect(asked).toEqual([`node-2 ${VOLUME}`]);
    await expect(services.askToYield('node-3', VOLUME)).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('a node is found where it announced itself, and an unknown one is unavailable', async () => {
    const { store, services } = setUp();
    const node = { name: 'node-2', nodeUid: 'u', topology: {}, host: '10.0.0.2', agentPort: 1, dataPorts: [7, 8] };
    await publishNode(store, node);
    expect(await services.dataAddress('node-2', 1)).toEqual({ kind: 'tcp', host: '10.0.0.2', port: 8 });
    await expect(services.dataAddress('node-2', 2)).rejects.toMatchObject({ code: 'unavailable' });
    await expect(services.dataAddress('node-3', 0)).rejects.toMatchObject({ code: 'unavailable' });
  });
});
