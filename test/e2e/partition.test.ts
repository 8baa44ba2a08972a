import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exportChecksum } from '../../src/demo/checksums.js';
import { Orchestrator } from '../../src/dev/orchestrator.js';
import { RunningDev } from '../support/dev-cluster.js';
import { RecordWriter } from '../support/records.js';

const TIMEOUT_MS = 120_000;

describe('a node that is cut off from the network while it writes', () => {
  let dev: RunningDev;
  let kubernetes: Orchestrator;

  beforeAll(async () => {
    dev = await RunningDev.start('--nodes', '3', '--disk-size', '10GiB');
    kubernetes = new Orchestrator(await dev.description());
  });
  afterAll(async () => {
    kubernetes.close();
    await dev.remove();
  });

  it('acknowledges nothing that the next writer does not have, and comes back by itself', async () => {
    const volume = await kubernetes.createVolume({ name: 'v', capacityBytes: 512 * 1024 ** 2, filesystem: 'ext4' });
    const [first = '', second = ''] = (await kubernetes.view(volume)).replicas.map((replica) => replica.node);
    const mounted = await kubernetes.mountFor(first, volume, AbortSignal.timeout(TIMEOUT_MS));
    const writer = new RecordWriter(kubernetes.node(first).networkNamespace, `${mounted}/records`, 0, 2_000);
    await expect.poll(() => writer.acknowledged, { timeout: 30_000 }).toBeGreaterThan(10);

    await dev.control(first, 'cut');
    const again = await kubernetes.mountFor(second, volume, AbortSignal.timeout(TIMEOUT_MS));
    await sleep(3_000);
    expect(await writer.missing(`${again}/records`)).toEqual([]);

    await dev.control(first, 'heal');
    // Its attachment has ended: the pod there gets errors, and its kubelet clears up.
    await writer.ended;
    expect(await writer.missing(`${again}/records`)).toEqual([]);
    await kubernetes.unmountFor(first, volume);
    await kubernetes.untilInSync(volume, 2, AbortSignal.timeout(TIMEOUT_MS));
    await kubernetes.unmountFor(second, volume);
    const { replicas } = await kubernetes.view(volume);
    const sums = await Promise.all(
      replicas.map((replica) => exportChecksum(kubernetes.node(replica.node).networkNamespace, replica.nbd_uri)),
    );
    expect(sums[0]).toEqual(sums[1]);
    await kubernetes.deleteVolume(volume);
  });
});
