import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, open, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from '../../src/base/run.js';

const TIMEOUT_MS = 15_000;
const POLL_MS = 20;

/**
 * A disk whose device can hang, fail or be taken away under its user, by other people's tools:
 *
 *     file ── nbdkit (filters: pause, error) ── nbdfuse ── file that a node takes for its disk
 *
 * `path` is a link to that file, so that nothing but this object ever unmounts it.
 */
export class FaultDisk {
  #server: ChildProcess | undefined;
  #fuse: ChildProcess | undefined;

  private constructor(private readonly directory: string) {}

  static async create(path: string, sizeBytes: number): Promise<FaultDisk> {
    const disk = new FaultDisk(await mkdtemp(join(tmpdir(), 'disk-')));
    await writeFile(disk.#place('content'), '');
    await truncate(disk.#place('content'), sizeBytes);
    await writeFile(disk.#place('disk'), '');
    await disk.#start();
    await mkdir(dirname(path), { recursive: true });
    await symlink(disk.#place('disk'), path);
    return disk;
  }

  /** Requests get no answer until `resume`. */
  async hang(): Promise<void> {
    await this.#tell('p', 'P');
  }

  async resume(): Promise<void> {
    await this.#tell('r', 'R');
  }

  /** Every request fails until `mend`. */
  async fail(): Promise<void> {
    await writeFile(this.#place('failing'), '');
  }

  async mend(): Promise<void> {
    await rm(this.#place('failing'), { force: true });
  }

  /** The device is gone, in mid-request. */
  async remove(): Promise<void> {
    await end(this.#server);
    this.#server = undefined;
  }

  /** After `remove`, when nothing uses the old device any more: the same disk is there again. */
  async putBack(): Promise<void> {
    await this.#unplug();
    await this.#start();
  }

  /** Hangs and fails no more. One that was taken away stays away. */
  async recover(): Promise<void> {
    await this.mend();
    if (this.#server !== undefined) await this.resume();
  }

  /** The disk and all that belongs to it goes; nothing may use it any more. */
  async end(): Promise<void> {
    await this.recover();
    await this.#unplug();
    await rm(this.directory, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    const socket = this.#place('nbd.sock');
    for (const name of ['nbd.sock', 'pause.sock']) await rm(this.#place(name), { force: true });
    const filters = ['--filter=pause', '--filter=error', 'file', this.#place('content')];
    const pause = `pause-control=${this.#place('pause.sock')}`;
    const error = ['error=EIO', 'error-rate=100%', `error-file=${this.#place('failing')}`];
    this.#server = start('nbdkit', ['--foreground', '--exit-with-parent', '-U', socket, ...filters, pause, ...error]);
    await until(() => exists(socket));
    this.#fuse = start('nbdfuse', [this.#place('disk'), '--unix', socket]);
    await until(async () => (await stat(this.#place('disk'))).size > 0);
  }

  async #unplug(): Promise<void> {
    const { stdout } = await run('losetup', ['--associated', this.#place('disk'), '--noheadings', '--output', 'NAME'], {
      timeoutMs: TIMEOUT_MS,
    });
    for (const loop of stdout.split('\n').filter((name) => name !== '')) {
      await run('losetup', ['--detach', loop.trim()], { timeoutMs: TIMEOUT_MS });
    }
    // A loop device goes when its last user does, which may take a moment.
    await until(async () => {
      const { code } = await run('umount', [this.#place('disk')], { timeoutMs: TIMEOUT_MS, okCodes: [0, 32] });
      return code === 0;
    });
    await end(this.#fuse);
    await this.remove();
  }

  /** One word to the pause filter, and its answer. */
  async #tell(word: string, answer: string): Promise<void> {
    const socket = connect(this.#place('pause.sock'));
    try {
      const told = new Promise<string>((resolve, reject) => {
        socket.once('data', (data: Buffer) => resolve(data.toString()));
        socket.once('error', reject);
        socket.once('close', () => {
          reject(new Error('nbdkit ended the control connection'));
        });
      });
      socket.write(word);
      const said = await told;
      if (said !== answer) throw new Error(`nbdkit answered ${said} to ${word}`);
    } finally {
      socket.destroy();
    }
  }

  #place(name: string): string {
    return join(this.directory, name);
  }
}

/** Takes all free space of the filesystem at a directory, to the last byte. Resolves to a function that gives it back. */
export async function fillDirectory(directory: string): Promise<() => Promise<void>> {
  const path = join(directory, 'full');
  const file = await open(path, 'w');
  const give = async (): Promise<void> => {
    await file.close();
    await rm(path);
  };
  let size = 0;
  // Ever smaller pieces, until not even one block is left.
  for (let piece = 2 ** 30; piece >= 4096;) {
    const { code } = await run('fallocate', ['--offset', String(size), '--length', String(piece), path], {
      timeoutMs: TIMEOUT_MS,
      okCodes: [0, 1],
    });
    if (code === 0) size += piece;
    else piece /= 2;
  }
  return give;
}

function start(command: string, args: readonly string[]): ChildProcess {
  return spawn(command, args, { stdio: 'ignore' });
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}

async function until(claim: () => Promise<boolean>): Promise<void> {
  const limit = Date.now() + TIMEOUT_MS;
  while (!(await claim())) {
    await sleep(POLL_MS);
    if (Date.now() > limit) throw new Error('the disk did not start, or end, in time');
  }
}
