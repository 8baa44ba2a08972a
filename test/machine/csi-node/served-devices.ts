import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from '../../../src/base/run.js';
import type { VolumeId } from '../../../src/model/ids.js';
import { LoopDevices } from './loop-devices.js';

interface Server {
  readonly nbdkit: ChildProcess;
  readonly nbdfuse: ChildProcess;
  readonly directory: string;
}

/**
 * Loop devices on files that an NBD server serves, so that reads can be made to fail, or all I/O to stand still, as in
 * an outage of the data path.
 */
export class ServedDevices extends LoopDevices {
  readonly #servers = new Map<VolumeId, Server>();
  /** What befalls a volume's device from its beginning on. */
  readonly plan = new Map<VolumeId, 'reads fail' | 'stands still'>();

  protected override async backing(volume: VolumeId): Promise<string> {
    const directory = `${this.file(volume)}.${String(Date.now())}.served`;
    const socket = join(directory, 'socket');
    const mountPoint = join(directory, 'mount');
    await mkdir(mountPoint, { recursive: true });
    if (this.plan.get(volume) === 'reads fail') await writeFile(join(directory, 'fail'), '');
    const filter = ['--filter=error', 'file', this.file(volume), 'error=EIO', 'error-pread-rate=100%'];
    const nbdkit = spawn('nbdkit', ['-f', '-U', socket, ...filter, `error-file=${join(directory, 'fail')}`], {
      stdio: 'ignore',
    });
    await appears(socket);
    const nbdfuse = spawn('nbdfuse', [join(mountPoint, 'file'), `nbd+unix:///?socket=${socket}`], { stdio: 'ignore' });
    await appears(join(mountPoint, 'file'));
    this.#servers.set(volume, { nbdkit, nbdfuse, directory });
    return join(mountPoint, 'file');
  }

  override async create(...given: Parameters<LoopDevices['create']>): ReturnType<LoopDevices['create']> {
    const device = await super.create(...given);
    if (this.plan.get(given[0]) === 'stands still') this.#servers.get(given[0])?.nbdkit.kill('SIGSTOP');
    return device;
  }

  /** The server dies: what waits for it fails. */
  override async fail(volume: VolumeId): Promise<void> {
    const known = this.devices.get(volume);
    if (known === undefined) return;
    this.#servers.get(volume)?.nbdkit.kill('SIGKILL');
    this.devices.set(volume, { ...known, failed: true });
    return Promise.resolve();
  }

  override async remove(volume: VolumeId): Promise<void> {
    await super.remove(volume);
    await this.#end(volume);
  }

  override async destroy(): Promise<void> {
    for (const server of this.#servers.values()) server.nbdkit.kill('SIGKILL');
    await super.destroy();
    for (const volume of this.#servers.keys()) await this.#end(volume);
  }

  async #end(volume: VolumeId): Promise<void> {
    const server = this.#servers.get(volume);
    if (server === undefined) return;
    server.nbdkit.kill('SIGKILL');
    await run('umount', ['--lazy', join(server.directory, 'mount')], { timeoutMs: 5_000 }).catch(() => undefined);
    server.nbdfuse.kill('SIGKILL');
    await rm(server.directory, { recursive: true, force: true });
    this.#servers.delete(volume);
  }
}

async function appears(path: string): Promise<void> {
  for (let tries = 0; tries < 200; tries++) {
    if ((await stat(path).catch(() => undefined)) !== undefined) return;
    await sleep(25);
  }
  throw new Error(`${path} does not appear`);
}
