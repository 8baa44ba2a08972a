import { expect, it } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';
import { Layout } from '../../../src/model/layout.js';
import { RangeLocks } from '../../../src/writer/range-locks.js';
import { RegionCloser } from '../../../src/writer/region-closer.js';
import type { ReplicaSet } from '../../../src/writer/replica-set.js';
import { DEFAULT_TIMING } from '../../../src/writer/timing.js';

it('the closing of all regions ends when the writer does, though a request still holds one of them', async () => {
  const locks = new RangeLocks();
  const asked: string[] = [];
  const set = { fanOut: { run: () => Promise.resolve(asked.push('replicas')) } } as unknown as ReplicaSet;
  const layout = new Layout(4096, 8192, 4096);
  const { clock } = createNodeIo();
  const none = (): boolean => false;
  const closer = new RegionCloser(clock, DEFAULT_TIMING, layout, locks, set, none, () => undefined);
  closer.touch(0, 3);
  const release = await locks.acquire(4096, 4096, 'exclusive');
  const closed = closer.closeAll();
  closer.stop();
  release();
  await closed;
  expect(closer.openCount).toBe(4);
  expect(asked).toEqual([]);
});
