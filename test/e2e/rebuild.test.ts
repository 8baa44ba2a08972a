import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run } from '../../src/base/run.js';
import { exportChecksum } from '../../src/demo/checksums.js';
import { inNamespace } from '../../src/dev/network.js';
import { Orchestrator, type ProvisionedVolume } from '../../src/dev/orchestrator.js';
import type { VolumeView__Output } from '../../src/generated/holdfast/v1/VolumeView.js';
import { RunningDev } from '../support/dev-cluster.js';
import { RecordWriter } from '../support/records.js';

const MIB = 1024 ** 2;
const TIMEOUT_MS = 240_000;
const MAIN = join(import.meta.dirname, '../../dist/main.js');

/** Nodes die and come back, people change their minds, and nobody repairs anything by hand. */
describe('volumes heal by themselves', () => {
  let dev: RunningDev;
  let kubernetes: Orchestrator;
  const soon = (): AbortSignal => AbortSignal.timeout(TIMEOUT_MS);

  beforeAll(async () => {
    dev = await RunningDev.start('--nodes', '3', '--disk-size', '10GiB', '--rebuild-grace', '6s');
    kubernetes = new Orchestrator(await dev.description());
  });
  afterAll(async () => {
    kubernetes.close();
    await dev.remove();
    expect(await dev.leftovers()).toEqual([]);
  });

  it('a volume in use gets more and fewer replicas as asked, and every byte is right all the time', async () => {
    const volume = await block('more', 2);
    const [writer] = nodesOf(await kubernetes.view(volume));
    const mounted = await kubernetes.mountFor(writer ?? '', volume, soon());
    const fio = ['fio', '--name=verify', `--filename=${mounted}`, '--size=64m', '--rw=randwrite', '--bs=4k'];
    const how = [
      '--direct=1',
      '--iodepth=1',
      '--rate_iops=400',
      '--verify=crc32c',
      '--do_verify=1',
      '--verify_fatal=1',
      '--verify_state_save=0',
    ];
    const [command, args] = inNamespace(kubernetes.node(writer ?? '').networkNamespace, [
      ...[...fio, ...how],
      ...['--time_based=1', '--runtime=10', '--fsync=50', '--randrepeat=1'],
    ]);
    const load = run(command, args, { timeoutMs: TIMEOUT_MS });
    load.catch(() => undefined);
    await sleep(1_000);
    expect(await holdfast('volume', 'set-replicas', volume.id, '3', '--wait')).toContain('has 3 replicas, in sync');
    expect(nodesOf(await kubernetes.view(volume))).toHaveLength(3);
    expect(await holdfast('volume', 'set-replicas', volume.id, '1', '--wait')).toContain('has 1 replica, in sync');
    expect(nodesOf(await kubernetes.view(volume))).toEqual([writer]);
    await load;
    const told = await holdfast('volume', 'why', volume.id);
    expect(told).toMatch(/is healthy[^]*1 of 1 replicas are in sync[^]*1 replica is wanted instead of 3/);
    await kubernetes.unmountFor(writer ?? '', volume);
  });

  it('what a node held is brought back within the grace, used or not; after it, it is rebuilt elsewhere', async () => {
    const used = await block('used', 2);
    const idle = await block('idle', 3);
    const nodes = nodesOf(await kubernetes.view(used));
    const [writer = '', other = ''] = nodes;
    const third = ['a', 'b', 'c'].find((name) => !nodes.includes(name)) ?? '';
    const records = new RecordWriter(
      kubernetes.node(writer).networkNamespace,
      await kubernetes.mountFor(writer, used, soon()),
      0,
      2_000,
    );
    const idleNodes = nodesOf(await kubernetes.view(idle));
    const idleWriter = idleNodes.find((name) => name !== other) ?? '';
    await write(idleWriter, idle, await kubernetes.mountFor(idleWriter, idle, soon()));

    await dev.control(other, 'kill');
    await write(idleWriter, idle, kubernetes.targetPath(idleWriter, idle));
    await kubernetes.unmountFor(idleWriter, idle);
    expect(inSync(await kubernetes.view(idle))).not.toContain(other);
    await dev.control(other, 'start');
    await until(async () => inSync(await kubernetes.view(idle)).length === 3);
    await until(async () => inSync(await kubernetes.view(used)).length === 2);
    expect(nodesOf(await kubernetes.view(used))).toEqual(nodes);
    await equal(idle);

    await dev.control(other, 'kill');
    await until(async () => inSync(await kubernetes.view(used)).includes(third));
    await until(async () => nodesOf(await kubernetes.view(used)).length === 2);
    const told = await holdfast('volume', 'why', used.id, '--json');
    expect(told).toMatch(new RegExp(`a new replica is made on ${third}: node ${other} does not renew its lease`));
    await dev.control(other, 'start');
    await until(async () => !(await replicasAt(other)).includes(used.id));
    expect(nodesOf(await kubernetes.view(used)).toSorted()).toEqual([writer, third].toSorted());
    await records.kill();
    expect(await records.missing()).toEqual([]);
    await kubernetes.unmountFor(writer, used);
    await equal(used);
  });

  it('a power cut of all nodes leaves nothing for anybody to mend', async () => {
    const volume = await block('all', 3);
    const mounted = await kubernetes.mountFor('a', volume, soon());
    const records = new RecordWriter(kubernetes.node('a').networkNamespace, mounted, 0, 2_000);
    await expect.poll(() => records.acknowledged, { timeout: 30_000 }).toBeGreaterThan(20);
    await Promise.all(['a', 'b', 'c'].map((name) => dev.control(name, 'kill')));
    await records.ended;
    await Promise.all(['a', 'b', 'c'].map((name) => dev.control(name, 'start')));
    await until(async () => {
      const status = JSON.parse(await holdfast('status', '--json')) as {
        volumes_degraded: number;
        volumes_attached: number;
      };
      const { health, record_json: json } = await kubernetes.view(volume);
      // The writer that mended it had to take it over: the epoch grew, and nobody is left in the record.
      const healed = health === 'healthy' && !json.includes('"maintenance"') && json.includes('without a device');
      return healed && status.volumes_degraded === 0 && status.volumes_attached === 0;
    });
    await equal(volume);
    const again = await kubernetes.mountFor('b', volume, soon());
    expect(await records.missing(again)).toEqual([]);
    await kubernetes.unmountFor('b', volume);
  });

  function block(name: string, replicas: number): Promise<ProvisionedVolume> {
    return kubernetes.createVolume({ name, capacityBytes: 128 * MIB, parameters: { replicas: String(replicas) } });
  }

  async function write(node: string, volume: ProvisionedVolume, path: string): Promise<void> {
    const { networkNamespace } = kubernetes.node(node);
    const dd = [
      'dd',
      'if=/dev/urandom',
      `of=${path}`,
      'bs=1M',
      'count=24',
      'seek=8',
      'oflag=direct',
      'conv=fsync,notrunc',
    ];
    const [command, args] = inNamespace(networkNamespace, dd);
    await run(command, args, { timeoutMs: TIMEOUT_MS });
    expect(volume.capacityBytes).toBeGreaterThan(32 * MIB);
  }

  async function holdfast(...args: string[]): Promise<string> {
    const { stdout } = await run(process.execPath, [MAIN, ...args, '--dir', dev.directory], { timeoutMs: TIMEOUT_MS });
    return stdout;
  }

  async function until(claim: () => Promise<boolean>): Promise<void> {
    const signal = soon();
    while (!(await claim())) {
      if (signal.aborted) throw new Error(`never so: ${claim.toString()}`);
      await sleep(250);
    }
  }

  /** Volumes of which the node still serves a replica, whatever the records say. */
  async function replicasAt(name: string): Promise<string[]> {
    const { stdout } = await run('ls', [join(dev.directory, 'nodes', name, 'pool')], { timeoutMs: TIMEOUT_MS });
    const found = await Promise.all(
      stdout
        .split('\n')
        .filter((disk) => disk !== '')
        .map((disk) =>
          run('ls', [join(dev.directory, 'nodes', name, 'pool', disk, 'replicas')], { timeoutMs: TIMEOUT_MS }),
        ),
    );
    return found.flatMap((one) => one.stdout.split('\n'));
  }

  /** Nobody writes; all replicas are the same, byte for byte. */
  async function equal(volume: ProvisionedVolume): Promise<void> {
    const { replicas } = await kubernetes.view(volume);
    const sums = await Promise.all(
      replicas.map((replica) => exportChecksum(kubernetes.node(replica.node).networkNamespace, replica.nbd_uri)),
    );
    expect(sums.length).toBeGreaterThan(1);
    expect(new Set(sums.map((sum) => JSON.stringify(sum))).size).toBe(1);
  }
});

function nodesOf(view: VolumeView__Output): string[] {
  return view.replicas.map((replica) => replica.node);
}

function inSync(view: VolumeView__Output): string[] {
  return view.replicas.filter((replica) => replica.in_sync).map((replica) => replica.node);
}
