import { spawn, type ChildProcess } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { controlNode, type DevVerb } from '../../src/dev/control.js';
import type { DevDescription } from '../../src/dev/description.js';
import { devLayout } from '../../src/dev/layout.js';
import { heldBy } from '../../src/dev/leftovers.js';
import { namespacesOf } from '../../src/dev/network.js';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const START_TIMEOUT_MS = 120_000;

/** A `holdfast dev` process on a directory of its own, as a person would run it. */
export class RunningDev {
  #child: ChildProcess | undefined;
  #said = '';

  private constructor(
    readonly directory: string,
    private readonly args: readonly string[],
  ) {}

  static start(...args: string[]): Promise<RunningDev> {
    return RunningDev.prepared(args);
  }

  /** `prepare` is given the directory before anything runs there. */
  static async prepared(
    args: readonly string[],
    prepare: (directory: string) => Promise<void> = () => Promise.resolve(),
  ): Promise<RunningDev> {
    const directory = await mkdtemp(join(tmpdir(), 'dev-'));
    await chmod(directory, 0o755);
    const dev = new RunningDev(directory, args);
    try {
      await prepare(directory);
      await dev.startAgain();
      return dev;
    } catch (error) {
      await dev.remove();
      throw error;
    }
  }

  /** Starts it (again) on its directory; resolves when it is ready. */
  async startAgain(): Promise<void> {
    this.#said = '';
    const child = spawn(process.execPath, [MAIN, 'dev', '--dir', this.directory, ...this.args], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => (this.#said += text));
    }
    const end = Date.now() + START_TIMEOUT_MS;
    while (!this.#said.includes('ready: ')) {
      if (child.exitCode !== null || Date.now() > end) throw new Error(`holdfast dev did not start: ${this.#said}`);
      await sleep(50);
    }
  }

  async description(): Promise<DevDescription> {
    return JSON.parse(await readFile(join(this.directory, 'dev.json'), 'utf8')) as DevDescription;
  }

  control(node: string, verb: DevVerb): Promise<void> {
    return controlNode(devLayout(this.directory), node, verb);
  }

  /** Ends it with a signal; resolves to its exit code. What it says meanwhile is in `said`. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const ended = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
    child.kill(signal);
    return ended;
  }

  get said(): string {
    return this.#said;
  }

  /** What the kernel still holds for it, in words. */
  async leftovers(): Promise<string[]> {
    const held = await heldBy(this.directory);
    const namespaces = await namespacesOf(devLayout(this.directory));
    return [...held.mounts.map((mount) => mount.mountPoint), ...held.loops, ...namespaces];
  }

  /** Ends it and removes its files. */
  async remove(): Promise<void> {
    await this.end();
    await rm(this.directory, { recursive: true, force: true });
  }
}
