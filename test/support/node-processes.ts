import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { adminClient } from '../../src/cli/service-client.js';
import type { DevDescription } from '../../src/dev/description.js';
import { inNamespace } from '../../src/dev/network.js';

const READY_TIMEOUT_MS = 30_000;
const POLL_MS = 50;

/** The controller of a dev cluster, which is killed and started again with the same arguments. */
export class ControllerProcess {
  private constructor(
    private readonly cluster: DevDescription,
    private readonly command: readonly string[],
    private pid: number,
  ) {}

  static async of(cluster: DevDescription): Promise<ControllerProcess> {
    const text = await readFile(`/proc/${cluster.controllerPid}/cmdline`, 'utf8');
    return new ControllerProcess(cluster, text.split('\0').slice(0, -1), cluster.controllerPid);
  }

  /** Resolves when it has ended and left its files and ports. */
  async kill(): Promise<void> {
    process.kill(this.pid, 'SIGKILL');
    await until('the controller has ended', async () => (await processState(this.pid)) === undefined);
  }

  /** Makes sure that it runs. */
  async ensure(): Promise<void> {
    if ((await processState(this.pid)) === undefined) await this.start();
  }

  /** Starts it again; resolves when it answers. The dev cluster ends it with all else that runs in its network. */
  async start(): Promise<void> {
    const [command, args] = inNamespace(this.cluster.switchNamespace, this.command);
    // It is told everything by flags, as the dev cluster does it; a setting of the tests would be refused.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('HOLDFAST_')));
    const child = spawn(command, args, { stdio: 'ignore', detached: true, env });
    this.pid = child.pid ?? 0;
    const client = adminClient(this.cluster.controllerSocket);
    try {
      await until('the controller answers', async () => {
        await client.call('GetStatus', {}, 1_000);
        return true;
      });
    } finally {
      client.close();
    }
  }
}

/** qemu-nbd on a block device, with direct I/O: an independent way from an NBD client to the device and back. */
export class DeviceServer {
  private constructor(
    private readonly directory: string,
    private readonly child: ChildProcess,
  ) {}

  static async start(device: string): Promise<DeviceServer> {
    const directory = await mkdtemp(join(tmpdir(), 'device-'));
    const socket = join(directory, 'nbd');
    const how = ['--format=raw', '--cache=none', '--aio=threads', '--discard=unmap', '--persistent', '--shared=4'];
    const child = spawn('qemu-nbd', [...how, `--socket=${socket}`, device], { stdio: 'ignore' });
    const server = new DeviceServer(directory, child);
    await until('qemu-nbd listens', async () => (await stat(socket).catch(() => undefined)) !== undefined);
    return server;
  }

  get uri(): string {
    return `nbd+unix:///?socket=${join(this.directory, 'nbd')}`;
  }

  async end(): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = new Promise((resolve) => this.child.once('exit', resolve));
      this.child.kill('SIGTERM');
      await ended;
    }
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** Undefined: it has ended. */
async function processState(pid: number): Promise<string | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  const [state] = text.slice(text.lastIndexOf(')') + 2);
  return state === 'Z' || state === 'X' ? undefined : state;
}

async function until(what: string, claim: () => Promise<boolean>): Promise<void> {
  const limit = Date.now() + READY_TIMEOUT_MS;
  while (!(await claim().catch(() => false))) {
    if (Date.now() > limit) throw new Error(`not so in time: ${what}`);
    await sleep(POLL_MS);
  }
}
