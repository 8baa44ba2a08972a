import { spawn, type ChildProcess } from 'node:child_process';
import { chmod, mkdir, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError, messageOf } from '../base/errors.js';
import { run } from '../base/run.js';
import { inNamespace } from '../dev/network.js';
import { pause } from '../dev/orchestrator.js';

const USER = 'postgres';
const TOOL_TIMEOUT_MS = 300_000;
const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 60_000;

export interface PostgresOptions {
  /** Folder with PostgreSQL's programs. */
  readonly programs: string;
  /** On the volume. */
  readonly dataDirectory: string;
  /** For the unix socket, the only way in. */
  readonly socketDirectory: string;
  readonly log: string;
  /** The server lives there, as a pod lives on its node: whatever ends the node ends the server. */
  readonly networkNamespace: string;
}

/** A PostgreSQL server, with all its settings for durability as they come. */
export class Postgres {
  #server: ChildProcess | undefined;

  constructor(private readonly options: PostgresOptions) {}

  /** Makes a database cluster with data checksums in the (missing) data directory. */
  async create(): Promise<void> {
    const { programs, dataDirectory, networkNamespace } = this.options;
    await run('install', ['-d', '-o', USER, '-g', USER, '-m', '0700', dataDirectory], { timeoutMs: TOOL_TIMEOUT_MS });
    const args = ['--pgdata', dataDirectory, '--username', USER, '--auth', 'trust', '--data-checksums'];
    const [command, rest] = inNamespace(networkNamespace, asUser(join(programs, 'initdb'), args));
    await run(command, rest, { timeoutMs: TOOL_TIMEOUT_MS });
  }

  /** Starts the server and waits until it answers; after a crash it recovers first. */
  async start(signal: AbortSignal): Promise<void> {
    const { programs, dataDirectory, socketDirectory, networkNamespace } = this.options;
    await mkdir(socketDirectory, { recursive: true });
    await chmod(socketDirectory, 0o777);
    const log = await open(this.options.log, 'a');
    const settings = { listen_addresses: '', unix_socket_directories: socketDirectory, shared_buffers: '32MB' };
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const [command, rest] = inNamespace(
      networkNamespace,
      asUser(join(programs, 'postgres'), ['-D', dataDirectory, ...flags]),
    );
    const server = spawn(command, rest, { detached: true, stdio: ['ignore', log.fd, log.fd] });
    server.once('error', () => undefined);
    await log.close();
    this.#server = server;
    await this.#untilAnswering(server, signal);
  }

  /** Stops the server in good order (fast shutdown: a checkpoint, then the end). One that has ended is no error. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined || hasEnded(server)) return;
    const ended = new Promise<void>((resolve) => server.once('exit', () => resolve()));
    const late = setTimeout(() => server.kill('SIGKILL'), STOP_TIMEOUT_MS);
    server.kill('SIGINT');
    await ended;
    clearTimeout(late);
  }

  /** Runs SQL and resolves to the rows, one a line, columns apart by '|'. */
  async query(sql: string): Promise<string[]> {
    const { stdout } = await run(join(this.options.programs, 'psql'), [...this.clientArguments(), '-c', sql], {
      timeoutMs: TOOL_TIMEOUT_MS,
    });
    return stdout.split('\n').filter((line) => line !== '');
  }

  /** Checks every table and index, and that every row is found in its indexes. `io-error` names what is corrupt. */
  async amcheck(): Promise<void> {
    const args = ['--host', this.options.socketDirectory, '--username', USER, '--install-missing', '--heapallindexed'];
    await run(join(this.options.programs, 'pg_amcheck'), [...args, '--all'], { timeoutMs: TOOL_TIMEOUT_MS });
  }

  /** What psql needs to be told to speak to this server, and to print bare rows. */
  clientArguments(): string[] {
    const host = this.options.socketDirectory;
    return ['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-h', host, '-U', USER, '-d', 'postgres'];
  }

  get psql(): string {
    return join(this.options.programs, 'psql');
  }

  async #untilAnswering(server: ChildProcess, signal: AbortSignal): Promise<void> {
    const end = Date.now() + START_TIMEOUT_MS;
    while (!hasEnded(server)) {
      try {
        await this.query('select 1');
        return;
      } catch (error) {
        if (Date.now() > end) {
          throw new HoldfastError('deadline-exceeded', `PostgreSQL does not answer: ${messageOf(error)}`);
        }
      }
      await pause(100, signal);
    }
    const lines = (await readFile(this.options.log, 'utf8')).trimEnd().split('\n');
    throw new HoldfastError('unavailable', `PostgreSQL did not start: ${lines.slice(-3).join(' / ')}`);
  }
}

function asUser(program: string, args: readonly string[]): string[] {
  // Unlike su and runuser it becomes the program, which so is the child that gets signals and is waited for.
  return ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups', '--', program, ...args];
}

function hasEnded(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}
