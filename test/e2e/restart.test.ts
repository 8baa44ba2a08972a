import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.js';
import { run } from '../../src/base/run.js';
import { Orchestrator, type ProvisionedVolume } from '../../src/dev/orchestrator.js';
import { inNamespace } from '../../src/dev/network.js';
import { RunningDev } from '../support/dev-cluster.js';

const CAPACITY_BYTES = 512 * 1024 ** 2;

describe('a restart', () => {
  let dev: RunningDev;
  let kubernetes: Orchestrator;
  let volume: ProvisionedVolume;
  let mounted: string;
  const signal = (): AbortSignal => AbortSignal.timeout(120_000);

  beforeEach(async () => {
    dev = await RunningDev.start('--disk-size', '10GiB');
    kubernetes = new Orchestrator(await dev.description());
    volume = await kubernetes.createVolume({ name: 'v', capacityBytes: CAPACITY_BYTES, filesystem: 'ext4' });
    mounted = await kubernetes.mountFor('a', volume, signal());
  });
  afterEach(async () => {
    kubernetes.close();
    await dev.remove();
    expect(await dev.leftovers()).toEqual([]);
  });

  it('of a killed node plugin is a pause for the pod, and no error', async () => {
    const node = kubernetes.node('a');
    const fio = ['fio', '--name=verify', `--directory=${mounted}`, '--size=48m', '--rw=randwrite', '--bs=4k'];
    const how = ['--direct=1', '--iodepth=1', '--rate_iops=1500', '--fsync=50', '--verify=crc32c', '--do_verify=1'];
    const [command, args] = inNamespace(node.networkNamespace, [...fio, ...how, '--verify_fatal=1']);
    const load = run(command, args, { timeoutMs: 180_000 });
    load.catch(() => undefined);
    for (let i = 0; i < 2; i++) {
      await sleep(2_000);
      const { nodes } = await dev.description();
      process.kill(present(nodes.find((one) => one.name === 'a')?.pid, 'node a has a process'), 'SIGKILL');
      await sleep(500);
      await dev.control('a', 'start');
    }
    await load;
    expect((await kubernetes.view(volume)).replicas.every((replica) => replica.in_sync)).toBe(true);
    await kubernetes.unmountFor('a', volume);
  });

  it('of the whole dev cluster keeps the volumes, and meanwhile nothing of it is left in the kernel', async () => {
    await writeFile(join(mounted, 'file'), 'kept');
    expect(await dev.end('SIGTERM')).toBe(0);
    expect(await dev.leftovers()).toEqual([]);
    await startAgain();
    const again = await kubernetes.mountFor('b', volume, signal());
    expect(await readFile(join(again, 'file'), 'utf8')).toBe('kept');
  });

  it('of a killed dev clears what it left, and keeps what was flushed', async () => {
    await run('sh', ['-c', 'echo kept >"$1" && sync "$1"', 'sh', join(mounted, 'file')], { timeoutMs: 30_000 });
    await dev.end('SIGKILL');
    expect(await dev.leftovers()).not.toEqual([]);
    await startAgain();
    const again = await kubernetes.mountFor('c', volume, signal());
    expect(await readFile(join(again, 'file'), 'utf8')).toBe('kept\n');
  });

  it('beside a live dev on the same directory is refused, and harms nothing', async () => {
    const main = join(import.meta.dirname, '../../dist/main.js');
    const second = run(process.execPath, [main, 'dev', '--dir', dev.directory], { timeoutMs: 60_000 });
    await expect(second).rejects.toThrow(/a dev cluster runs on .* already/);
    await writeFile(join(mounted, 'file'), 'kept');
  });

  async function startAgain(): Promise<void> {
    kubernetes.close();
    await dev.startAgain();
    kubernetes = new Orchestrator(await dev.description());
  }
});
