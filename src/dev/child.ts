import { spawn } from 'node:child_process';
import { open, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { HoldfastError } from '../base/errors.js';
import { inNamespace, processesIn } from './network.js';

/** A process of a dev cluster. */
export interface Child {
  readonly pid: number;
  readonly log: string;
  /** Resolves when it has ended, to how it ended in words. */
  readonly ended: Promise<string>;
  readonly running: () => boolean;
}

/** The program that `holdfast` commands run: src/ is compiled to dist/, and only that can be started. */
const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));

const LOG_TAIL_BYTES = 4_096;
const POLL_MS = 20;

/**
 * Starts `holdfast …` in a network namespace. It gets a session of its own, so that Ctrl-C in the terminal reaches only
 * the dev process, which then stops the parts in their order.
 */
export async function startChild(namespace: string, args: readonly string[], log: string): Promise<Child> {
  const file = await open(log, 'a');
  try {
    const [command, commandArgs] = inNamespace(namespace, [process.execPath, MAIN, ...args]);
    const child = spawn(command, commandArgs, {
      detached: true,
      stdio: ['ignore', file.fd, file.fd],
      // Node reads its number of threads for files before any program of its own could set it.
      env: { UV_THREADPOOL_SIZE: '128', ...withoutSettings(process.env) },
    });
    const ended = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(`can't be started: ${error.message}`));
      child.once('exit', (code, signal) =>
        resolve(signal === null ? `exited with ${code ?? 0}` : `ended by ${signal}`),
      );
    });
    let running = child.pid !== undefined;
    void ended.then(() => (running = false));
    return { pid: child.pid ?? 0, log, ended, running: () => running };
  } finally {
    await file.close();
  }
}

/** The last line of a child's log, for the one that reads why it ended. */
export async function lastLogLine(log: string): Promise<string> {
  const text = await readFile(log, 'utf8').catch(() => '');
  const line = text.slice(-LOG_TAIL_BYTES).trimEnd().split('\n').at(-1) ?? '';
  try {
    const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } };
    return [msg, err?.message].filter((part) => part !== undefined).join(': ');
  } catch {
    return line;
  }
}

/** Asks a child to end; after `graceMs` it is killed. */
export async function stopChild(child: Child, graceMs: number): Promise<void> {
  signal(child.pid, 'SIGTERM');
  const abort = new AbortController();
  await Promise.race([child.ended, sleep(graceMs, undefined, { signal: abort.signal }).catch(() => undefined)]);
  abort.abort();
  if (child.running()) signal(child.pid, 'SIGKILL');
  await child.ended;
}

/**
 * Kills everything that lives in a network namespace and waits for its end. `deadline-exceeded` where a process does
 * not die: it hangs in the kernel.
 */
export async function killAllIn(namespace: string, timeoutMs: number): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const ids = await processesIn(namespace);
    if (ids.length === 0) return;
    if (Date.now() > end) {
      throw new HoldfastError('deadline-exceeded', `processes ${ids.join(', ')} of ${namespace} do not die`);
    }
    for (const id of ids) signal(id, 'SIGKILL');
    await sleep(POLL_MS);
  }
}

/**
 * Ends what runs in a node's namespace beside Holdfast's own processes (what a pod is to a real node): first asked,
 * then killed.
 */
export async function endPodsIn(namespace: string, graceMs: number): Promise<void> {
  const end = Date.now() + graceMs;
  for (let told = false; ; told = true) {
    const ids = await podProcesses(namespace);
    if (ids.length === 0) return;
    const late = Date.now() > end;
    if (late || !told) for (const id of ids) signal(id, late ? 'SIGKILL' : 'SIGTERM');
    // One that does not even die hangs in the kernel; the mounts' clearing will tell.
    if (Date.now() > end + graceMs) return;
    await sleep(POLL_MS);
  }
}

async function podProcesses(namespace: string): Promise<number[]> {
  const ids = await processesIn(namespace);
  const commands = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => MAIN)));
  return ids.filter((_, index) => commands[index]?.includes(MAIN) === false);
}

function signal(pid: number, name: NodeJS.Signals): void {
  if (pid <= 0) return;
  try {
    process.kill(pid, name);
  } catch (error) {
    // It has ended meanwhile, which is what was wanted.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Children are told everything by flags; a setting meant for another process must not slip in. */
function withoutSettings(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith('HOLDFAST_')));
}
