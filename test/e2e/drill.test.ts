import { execFile, spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { DevNodeDescription } from '../../src/dev/description.js';
import { inNamespace } from '../../src/dev/network.js';
import { Orchestrator } from '../../src/dev/orchestrator.js';
import { checkVolume, Load, type CheckResult } from '../../src/drill/load.js';
import { BLOCK_BYTES } from '../../src/drill/stamp.js';
import { rowsOf } from '../../src/metrics/table.js';
import { RunningDev } from '../support/dev-cluster.js';
import { parseExposition, type ExpositionFamily } from '../support/exposition.js';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(command: string, args: readonly string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(command, args, { maxBuffer: 64 * 1024 ** 2 }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : error === null ? 0 : -1, stdout, stderr });
    });
  });
}

/** Both drills end within a minute together: the faults are as short as they can be and still show something. */
describe('a drill', () => {
  let dev: RunningDev;
  let kubernetes: Orchestrator;

  beforeAll(async () => {
    dev = await RunningDev.start('--nodes', '3', '--disk-size', '2GiB');
    kubernetes = new Orchestrator(await dev.description());
  });
  afterAll(async () => {
    kubernetes.close();
    await dev.remove();
  });

  function drill(...args: string[]): Promise<Ended> {
    return run(process.execPath, [MAIN, 'drill', '--dir', dev.directory, ...args]);
  }

  async function node(name: string): Promise<DevNodeDescription> {
    const found = (await dev.description()).nodes.find((one) => one.name === name);
    if (!found) throw new Error(`no node ${name}`);
    return found;
  }

  async function scrape(namespace: string, url: string): Promise<Map<string, ExpositionFamily>> {
    const fetching = `fetch(${JSON.stringify(url)}).then((r) => r.text()).then((t) => process.stdout.write(t))`;
    const [command, args] = inNamespace(namespace, [process.execPath, '-e', fetching]);
    return parseExposition((await run(command, args)).stdout);
  }

  async function figuresOf(name: string): Promise<Map<string, ExpositionFamily>> {
    const { networkNamespace, metrics } = await node(name);
    return scrape(networkNamespace, metrics);
  }

  function sum(family: ExpositionFamily | undefined): number {
    return (family?.lines ?? []).reduce((total, { value }) => total + value, 0);
  }

  it('refuses what it can not do, in one line, and touches no volume that it did not make', async () => {
    expect(await drill('kill', '--node', 'x')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: 'holdfast: --node: there is no node x; there are a, b, c\n',
    });
    const nowhere = await run(process.execPath, [MAIN, 'drill', '--dir', `${dev.directory}/no`, 'kill', '--node', 'a']);
    expect(nowhere.code).toBe(1);
    expect(nowhere.stderr).toMatch(/^holdfast: no dev cluster is ready on .*\n$/);
    const volume = await kubernetes.createVolume({ name: 'mine', capacityBytes: 16 * 1024 ** 2 });
    const refused = await drill('fill', '--node', 'a', '--volume', 'mine');
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('there is a volume mine already');
    expect(await kubernetes.has(volume.id)).toBe(true);
    await kubernetes.deleteVolume(volume);
  });

  it('finds what is missing and what is damaged', async () => {
    const { networkNamespace } = await node('a');
    const path = `${dev.directory}/area`;
    const file = await open(path, 'w+');
    try {
      await file.truncate(64 * BLOCK_BYTES);
      const area = { path, drill: 7, first: 0, blocks: 64 };
      const load = new Load('a', networkNamespace, { kind: 'write', ...area, writers: 2, writesPerSecond: 1_000 });
      await expect.poll(() => load.state.acknowledged, { timeout: 30_000 }).toBeGreaterThan(100);
      const ledgers = [await load.stop()];
      const check = (): Promise<CheckResult> =>
        checkVolume(networkNamespace, { kind: 'read', path, drill: 7, ledgers });
      expect(await check()).toEqual({ kind: 'checked', blocks: 64, lost: 0, damaged: 0, examples: [] });

      await file.write(new Uint8Array(BLOCK_BYTES), 0, BLOCK_BYTES, 3 * BLOCK_BYTES);
      await file.write(new Uint8Array([1]), 0, 1, 5 * BLOCK_BYTES + 100);
      await file.sync();
      expect(await check()).toMatchObject({ lost: 1, damaged: 1 });
    } finally {
      await file.close();
    }
  });

  it('of a killed plugin passes: I/O pauses and nothing is lost', async () => {
    const before = await node('b');
    const { code, stdout, stderr } = await drill('kill', '--node', 'node-b', '--seconds', '1');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('the plugin of node b is killed (SIGKILL)');
    expect(stdout).toMatch(/^lost +0$/m);
    expect(stdout).toMatch(/^verdict +PASS$/m);
    expect((await node('b')).pid).not.toBe(before.pid);
  });

  it('of a paused writer passes: another takes over, and the one that wakes up is fenced', async () => {
    const { code, stdout, stderr } = await drill('pause', '--node', 'a', '--seconds', '15');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/take-over: node \w is the writer/);
    expect(stdout).toContain('I/O on node a fails');
    expect(stdout).toMatch(/^acknowledged writes checked +[1-9]/m);
    expect(stdout).toMatch(/^verdict +PASS$/m);

    const figures = await figuresOf('a');
    expect(sum(figures.get('holdfast_writers_fenced_total'))).toBe(1);
    const refused = figures
      .get('holdfast_fenced_requests_total')
      ?.lines.find(({ labels }) => labels['side'] === 'writer');
    expect(refused?.value).toBeGreaterThan(0);
  });

  it('leaves nothing behind', async () => {
    const { stdout } = await run(process.execPath, [MAIN, 'volume', 'list', '--dir', dev.directory]);
    expect(stdout).toBe('no volumes\n');
  });

  it('is seen in the metrics, which tell every row of the table', async () => {
    for (const name of ['a', 'b', 'c']) {
      const figures = await figuresOf(name);
      for (const { name: row, type } of rowsOf('node')) expect(figures.get(row)).toMatchObject({ type });
      expect(sum(figures.get('holdfast_data_thread_answers'))).toBe(2);
      expect(sum(figures.get('holdfast_pool_disk_ready'))).toBe(1);
      expect(sum(figures.get('holdfast_lease_age_seconds'))).toBeLessThan(10);
      expect(sum(figures.get('holdfast_volume_requests_total'))).toBe(0);
    }
    const { switchNamespace, metrics } = await dev.description();
    const controller = await scrape(switchNamespace, metrics);
    for (const { name: row, type } of rowsOf('controller')) expect(controller.get(row)).toMatchObject({ type });
    const live = controller.get('holdfast_nodes')?.lines.find(({ labels }) => labels['state'] === 'live');
    expect(live?.value).toBe(3);
    const created = controller
      .get('holdfast_grpc_calls_total')
      ?.lines.find(({ labels }) => labels['method'] === 'CreateVolume' && labels['code'] === 'OK');
    expect(created?.value).toBe(3);
  });

  it('that is stopped while the pod moves ends the load there too', async () => {
    const child = spawn(process.execPath, [MAIN, 'drill', '--dir', dev.directory, 'pause', '--node', 'b'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
    await expect.poll(() => said, { timeout: 40_000 }).toContain('the pod moves to node');
    child.kill('SIGINT');
    expect(await ended).toBe(130);
    expect(said).toContain('nothing of the drill is left');
    const { stdout } = await run(process.execPath, [MAIN, 'volume', 'list', '--dir', dev.directory]);
    expect(stdout).toBe('no volumes\n');
  });
});
