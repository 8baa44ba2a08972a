import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exportChecksum } from '../../src/demo/checksums.js';
import { Orchestrator, type ProvisionedVolume } from '../../src/dev/orchestrator.js';
import { RunningDev } from '../support/dev-cluster.js';
import { RecordWriter } from '../support/records.js';

/** How often each kind of volume goes through it; set HOLDFAST_KILL_RUNS for more. */
const RUNS = Number(process.env['HOLDFAST_KILL_RUNS'] ?? '1');
const CAPACITY_BYTES = 512 * 1024 ** 2;
const SLOTS = 2_000;
const FAILOVER_TIMEOUT_MS = 120_000;

describe('a power cut of the node that writes', () => {
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

  const kinds = [{ filesystem: 'ext4' }, { filesystem: 'xfs' }, {}] as const;
  const cases = kinds.flatMap((kind) => Array.from({ length: RUNS }, (_, run) => ({ kind, run })));

  it.each(cases)(
    'loses no acknowledged write, and the replicas end up equal: $kind, run $run',
    async ({ kind, run }) => {
      const signal = AbortSignal.timeout(FAILOVER_TIMEOUT_MS);
      const name = `${'filesystem' in kind ? kind.filesystem : 'block'}-${run}`;
      const volume = await kubernetes.createVolume({ name, capacityBytes: CAPACITY_BYTES, ...kind });
      const [first = '', second = ''] = (await kubernetes.view(volume)).replicas.map((replica) => replica.node);

      const writer = await write(first, volume, await kubernetes.mountFor(first, volume, signal), 0);
      await sleep(1_000 + Math.random() * 3_000);
      await dev.control(first, 'kill');
      await dev.control(first, 'cut');
      await writer.ended;
      expect(writer.acknowledged).toBeGreaterThan(10);

      const again = await kubernetes.mountFor(second, volume, signal);
      expect(await writer.missing(pathOf(volume, again))).toEqual([]);
      const later = await write(second, volume, again, writer.acknowledged + 1 + SLOTS);
      await dev.control(first, 'heal');
      await dev.control(first, 'start');
      await kubernetes.untilInSync(volume, 2, AbortSignal.timeout(FAILOVER_TIMEOUT_MS));
      await later.kill();
      expect(await later.missing(pathOf(volume, again))).toEqual([]);

      await kubernetes.unmountFor(second, volume);
      const { replicas } = await kubernetes.view(volume);
      const sums = await Promise.all(
        replicas.map((replica) => exportChecksum(kubernetes.node(replica.node).networkNamespace, replica.nbd_uri)),
      );
      expect(sums).toHaveLength(2);
      expect(sums[0]).toEqual(sums[1]);
      await kubernetes.deleteVolume(volume);
    },
  );

  async function write(node: string, volume: ProvisionedVolume, mounted: string, first: number): Promise<RecordWriter> {
    const { networkNamespace } = kubernetes.node(node);
    const writer = new RecordWriter(networkNamespace, pathOf(volume, mounted), first, SLOTS);
    await expect.poll(() => writer.acknowledged, { timeout: 30_000 }).toBeGreaterThan(first + 10);
    return writer;
  }

  function pathOf(volume: ProvisionedVolume, mounted: string): string {
    return volume.capability.block === undefined ? `${mounted}/records` : mounted;
  }
});
