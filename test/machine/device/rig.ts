import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLog } from '../../../src/base/log.js';
import { readMountTable } from '../../../src/base/mount-table.js';
import { run } from '../../../src/base/run.js';
import type { BlockDevice, ExportAddress } from '../../../src/device/device.js';
import { unmount } from '../../../src/device/filesystem.js';
import { FuseLoopDevices } from '../../../src/device/fuse-loop-devices.js';
import { listLoops } from '../../../src/device/loop.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { serveNbd, type NbdServer } from '../../../src/nbd/server.js';
import type { Stage } from '../../../src/nbd/stage.js';
import { NamedExports } from '../../support/memory-stage.js';
import { holdOpen, type Holder } from './holder.js';

export const MIB = 1024 * 1024;
export const GIB = 1024 * MIB;
export const VOLUME = `vol-${'0'.repeat(31)}1`;
export const OTHER_VOLUME = `vol-${'0'.repeat(31)}2`;

/** A directory of its own with block devices, served by this process, and NBD servers. It leaves nothing behind. */
export class Rig {
  readonly #servers: NbdServer[] = [];
  readonly #children: ChildProcess[] = [];
  readonly #holders: Holder[] = [];

  private constructor(
    readonly directory: string,
    readonly devices: FuseLoopDevices,
  ) {}

  static async start(): Promise<Rig> {
    const directory = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-device-')));
    return new Rig(directory, await FuseLoopDevices.start(createNodeIo(), join(directory, 'fuse'), silentLog()));
  }

  get socketPath(): string {
    return join(this.directory, 'nbd.sock');
  }

  get address(): ExportAddress {
    return { socketPath: this.socketPath, exportName: 'volume' };
  }

  /** Serves the stages by name on the socket; the returned function ends that. */
  async serve(exports: Record<string, Stage>): Promise<() => Promise<void>> {
    const io = createNodeIo();
    const server = await serveNbd({
      io,
      address: { kind: 'unix', path: this.socketPath },
      exports: new NamedExports(
        Object.fromEntries(Object.entries(exports).map(([name, stage]) => [name, { stage, readOnly: false }])),
      ),
      slab: io.slab(16 * MIB),
      log: silentLog(),
    });
    this.#servers.push(server);
    return () => server.close();
  }

  /** A device of VOLUME on a stage. */
  async device(stage: Stage): Promise<BlockDevice> {
    await this.serve({ volume: stage });
    return this.devices.create(VOLUME, this.address, stage.sizeBytes, false);
  }

  /** An nbdkit process on the socket; its export has every name. Resolves when it serves. */
  async nbdkit(...args: string[]): Promise<ChildProcess> {
    await rm(this.socketPath, { force: true });
    const child = spawn('nbdkit', ['--foreground', '--unix', this.socketPath, ...args], { stdio: 'ignore' });
    this.#children.push(child);
    const probe = ['--json', `nbd+unix:///volume?socket=${this.socketPath}`];
    for (let tries = 0; tries < 200; tries++) {
      const { code } = await run('nbdinfo', probe, { timeoutMs: 5_000, okCodes: [0, 1] });
      if (code === 0) return child;
      await sleep(25);
    }
    throw new Error('nbdkit does not serve');
  }

  /** Somebody who has the device open, not exclusively. */
  async holder(path: string): Promise<Holder> {
    const holder = await holdOpen(path);
    this.#holders.push(holder);
    return holder;
  }

  folder(name: string): string {
    return join(this.directory, name);
  }

  async end(): Promise<void> {
    for (const holder of this.#holders) await holder.close();
    for (const { volume } of await this.devices.list()) await this.devices.fail(volume);
    await this.#unmountAll();
    for (const { volume } of await this.devices.list()) await this.devices.remove(volume);
    this.devices.retire();
    await this.devices.close();
    await Promise.all(this.#servers.map((server) => server.close()));
    for (const child of this.#children) await killed(child);
    await rm(this.directory, { recursive: true });
  }

  /** What is mounted in the directory, but for the mounts below the loop devices. */
  async #unmountAll(): Promise<void> {
    const table = await readMountTable();
    for (const { mountPoint } of table.toReversed()) {
      if (!mountPoint.startsWith(`${this.directory}/`) || mountPoint.startsWith(this.folder('fuse'))) continue;
      await unmount(mountPoint, { lazy: true });
    }
  }
}

export async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await gone;
}

/** Loop devices and mounts below a directory. */
export async function leftBelow(directory: string): Promise<string[]> {
  const loops = (await listLoops()).filter(({ backingFile }) => backingFile.startsWith(directory));
  const mounts = (await readMountTable()).filter(({ mountPoint }) => mountPoint.startsWith(directory));
  return [...loops.map(({ path }) => path), ...mounts.map(({ mountPoint }) => mountPoint)];
}

export interface FioRun {
  readonly child: ChildProcess;
  /** Resolves to the exit code. */
  readonly done: Promise<number | null>;
}

/** fio on a device or file: random writes of 4 KiB with verification, unless `changes` say otherwise. */
export function fio(path: string, changes: Record<string, string | number> = {}): FioRun {
  const settings = {
    ...{ name: 'verify', filename: path, rw: 'randwrite', bs: '4k', size: '32M', iodepth: 32 },
    ...{ ioengine: 'libaio', direct: 1, verify: 'crc32c', verify_fatal: 1, verify_state_save: 0, output: '/dev/null' },
    ...changes,
  };
  const args = Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
  const child = spawn('fio', args, { stdio: 'ignore' });
  return { child, done: new Promise((resolve) => child.once('exit', resolve)) };
}

export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(10);
}

/** Runs a tool that is expected to succeed or fail; its exit code. */
export async function codeOfRun(command: string, args: string[]): Promise<number> {
  const okCodes = Array.from({ length: 256 }, (_, code) => code);
  return (await run(command, args, { timeoutMs: 60_000, okCodes })).code;
}
