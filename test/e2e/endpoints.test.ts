import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.js';
import { run } from '../../src/base/run.js';
import { exportChecksum } from '../../src/demo/checksums.js';
import { Orchestrator, type ProvisionedVolume } from '../../src/dev/orchestrator.js';
import { inNamespace } from '../../src/dev/network.js';
import { RunningDev } from '../support/dev-cluster.js';

const SIZE = 256 * 1024 ** 2;
const TIMEOUT_MS = 100_000;

/** Other people's NBD tools against the endpoints of an attached volume with three replicas. */
describe('the NBD endpoints of a volume', () => {
  let dev: RunningDev;
  let kubernetes: Orchestrator;
  let volume: ProvisionedVolume;
  let scratch: string;
  let writer: string;
  let replicas: { namespace: string; uri: string }[];

  beforeAll(async () => {
    scratch = await mkdtemp(join(tmpdir(), 'nbd-'));
    dev = await RunningDev.start('--disk-size', '10GiB');
    kubernetes = new Orchestrator(await dev.description());
    volume = await kubernetes.createVolume({ name: 'tools', capacityBytes: SIZE, parameters: { replicas: '3' } });
    await kubernetes.mountFor('a', volume, AbortSignal.timeout(TIMEOUT_MS));
    const view = await kubernetes.view(volume);
    writer = present(view.attachment, 'it is attached').nbd_uri;
    replicas = view.replicas.map((replica) => ({
      namespace: kubernetes.node(replica.node).networkNamespace,
      uri: replica.nbd_uri,
    }));
  });
  afterAll(async () => {
    kubernetes.close();
    await dev.remove();
    await rm(scratch, { recursive: true, force: true });
  });

  const tool = async (command: string, ...args: string[]): Promise<string> =>
    (await run(command, args, { timeoutMs: TIMEOUT_MS })).stdout;

  it('of the writer: nbdinfo tells its size, that it can be written, and its allocation', async () => {
    expect((await tool('nbdinfo', '--size', writer)).trim()).toBe(String(SIZE));
    expect(await tool('nbdinfo', '--json', writer)).toMatch(/"is_read_only": false/);
    expect(await tool('nbdinfo', '--map', writer)).toMatch(/hole,zero/);
  });

  it('of the writer: nbdcopy in and out, and qemu-img compare, agree', async () => {
    const image = join(scratch, 'image');
    await tool('fio', '--name=make', `--filename=${image}`, '--rw=write', '--bs=1M', '--size=32M', '--minimal');
    await tool('truncate', `--size=${SIZE}`, image);
    await tool('nbdcopy', '--', image, writer);
    await tool('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', image, writer);
    await tool('nbdcopy', '--', writer, join(scratch, 'copy'));
    await tool('cmp', image, join(scratch, 'copy'));
  });

  it("of the writer: fio's nbd engine writes with verification, over several jobs", async () => {
    const jobs = ['--numjobs=2', '--offset_increment=64M', '--size=32M', '--iodepth=16', '--bs=4k'];
    const verify = ['--rw=randwrite', '--verify=crc32c', '--do_verify=1', '--verify_fatal=1'];
    await tool('fio', '--name=nbd', '--ioengine=nbd', `--uri=${writer}`, ...jobs, ...verify);
  });

  it("of the writer: nbdkit's nbd plugin serves it on", async () => {
    const info = `--run=nbdinfo --size "$uri"`;
    expect((await tool('nbdkit', '--exit-with-parent', 'nbd', `uri=${writer}`, '-U', '-', info)).trim()).toBe(
      String(SIZE),
    );
  });

  it('of each replica: is read-only, refuses writes, and holds the same bytes', async () => {
    const sums = await Promise.all(replicas.map(({ namespace, uri }) => exportChecksum(namespace, uri)));
    expect(new Set(sums.map(({ sha256 }) => sha256)).size).toBe(1);
    for (const { namespace, uri } of replicas) {
      const [command, info] = inNamespace(namespace, ['nbdinfo', '--json', uri]);
      expect(await tool(command, ...info)).toMatch(/"is_read_only": true/);
      const [, write] = inNamespace(namespace, ['qemu-io', '-f', 'raw', '-c', 'write 0 4096', uri]);
      const { code } = await run(command, write, { timeoutMs: TIMEOUT_MS, okCodes: [0, 1] });
      expect(code).toBe(1);
    }
  });
});
