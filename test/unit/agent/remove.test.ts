import { beforeEach, describe, expect, it } from 'vitest';
import { removeUnnamed } from '../../../src/agent/remove.js';
import { KeyedMutex } from '../../../src/base/mutex.js';
import { volumeKey, type VolumeId } from '../../../src/model/ids.js';
import type { VolumeRecord } from '../../../src/model/records.js';
import type { RemovalReason, Replicas } from '../../../src/replica/replicas.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { volumeRecord } from '../csi/node-fakes.js';

const VOLUME = `vol-${'a'.repeat(32)}`;
const [DISK, OTHER_DISK] = ['disk-1', 'disk-2'];
const SUMMARY = { capacityBytes: 1, epoch: 1, crashMark: false, openRegions: 0, damagedBlocks: 0, writerHeard: false };

/** Disks with a replica of the volume. */
let disks: Set<string>;
let store: MemoryStore;
const turns = new KeyedMutex<VolumeId>();
const replicas: Pick<Replicas, 'remove' | 'list'> = {
  remove: (volume: string, reason: RemovalReason, disk?: string) => {
    expect([volume, reason]).toEqual([VOLUME, 'deleted']);
    for (const held of [...disks]) if (disk === undefined || disk === held) disks.delete(held);
    return Promise.resolve();
  },
  list: () => Promise.resolve([...disks].map((disk) => ({ volume: VOLUME, disk, ...SUMMARY }))),
};

beforeEach(() => {
  disks = new Set([DISK]);
  store = new MemoryStore();
});

function record(phase: VolumeRecord['phase'], id = VOLUME, node = 'node-1', disk = DISK): Promise<unknown> {
  const replica = { node, disk, inSync: true };
  return store.create('volume', volumeKey(VOLUME), { ...volumeRecord(id), phase, replicas: [replica] });
}

function remove(): Promise<void> {
  return removeUnnamed({ store, replicas: replicas as Replicas, turns, nodeName: 'node-1' }, VOLUME);
}

describe('a request to remove a replica', () => {
  it.each(['creating', 'ready'] as const)('is refused where the record of a volume in %s names it', async (phase) => {
    await record(phase);
    await expect(remove()).rejects.toMatchObject({ code: 'failed-precondition' });
    expect([...disks]).toEqual([DISK]);
  });

  it('is refused where the record names its disk as being on the node that it was moved from', async () => {
    await record('ready', VOLUME, 'node-2');
    await expect(remove()).rejects.toMatchObject({ code: 'failed-precondition' });
    expect([...disks]).toEqual([DISK]);
  });

  it.each(['creating', 'ready'] as const)(
    'takes away what lies on another disk, and nothing else (%s)',
    async (phase) => {
      disks.add(OTHER_DISK);
      await record(phase);
      await remove();
      expect([...disks]).toEqual([DISK]);
      await expect(remove()).rejects.toMatchObject({ code: 'failed-precondition' });
    },
  );

  it('is carried out where the volume is being deleted, or its record names other nodes', async () => {
    await record('deleting');
    await remove();
    expect([...disks]).toEqual([]);
    disks.add(DISK);
    store = new MemoryStore();
    await record('creating', VOLUME, 'node-2', OTHER_DISK);
    await remove();
    expect([...disks]).toEqual([]);
  });

  it('is carried out where there is no record, or that of another volume under its name', async () => {
    await remove();
    expect([...disks]).toEqual([]);
    disks.add(DISK);
    await record('ready', `${VOLUME.slice(0, 28)}bbbbbbbb`);
    await remove();
    expect([...disks]).toEqual([]);
  });

  it('does not take one that is made while the store is slow to answer', async () => {
    let answer = (): void => undefined;
    const slow = { get: () => new Promise<undefined>((resolve) => (answer = () => resolve(undefined))) };
    const removal = removeUnnamed({ store: slow, replicas: replicas as Replicas, turns, nodeName: 'node-1' }, VOLUME);
    const made = turns.run(VOLUME, () => Promise.resolve(disks.add(DISK)));
    await Promise.resolve();
    answer();
    await Promise.all([removal, made]);
    expect([...disks]).toEqual([DISK]);
  });
});
