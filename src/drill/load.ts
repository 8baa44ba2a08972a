import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { HoldfastError, type ErrorCode } from '../base/errors.js';
import { inNamespace } from '../dev/network.js';

/** Writes stamps to an area of a volume, on and on. */
export interface LoadOrder {
  readonly kind: 'write';
  readonly path: string;
  readonly drill: number;
  readonly first: number;
  readonly blocks: number;
  readonly writers: number;
  readonly writesPerSecond: number;
}

/** Reads areas and holds them against their ledgers. */
export interface ReadOrder {
  readonly kind: 'read';
  readonly path: string;
  readonly drill: number;
  readonly ledgers: readonly string[];
}

/** What a load tells. Times are those of the machine's clock, in milliseconds; 0: not yet. */
export type LoadMessage =
  | LoadState
  | { readonly kind: 'error'; readonly at: number; readonly code: ErrorCode; readonly message: string }
  | { readonly kind: 'end'; readonly ledger: string }
  | CheckResult;

export interface LoadState {
  readonly kind: 'state';
  readonly acknowledged: number;
  readonly firstAt: number;
  readonly lastAt: number;
  /** Between two answers. */
  readonly longestPauseMs: number;
}

export interface CheckResult {
  readonly kind: 'checked';
  /** Blocks that had to hold an acknowledged write. */
  readonly blocks: number;
  readonly lost: number;
  readonly damaged: number;
  readonly examples: readonly string[];
}

const PROCESS = fileURLToPath(new URL('../../dist/drill/load-process.js', import.meta.url));
const CHECK_TIMEOUT_MS = 60_000;
const END_TIMEOUT_MS = 10_000;

/** A process in a node's network, as a pod's would be. */
class LoadProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<void>;
  #said = '';

  constructor(namespace: string, order: LoadOrder | ReadOrder, onMessage: (message: LoadMessage) => void) {
    const [command, args] = inNamespace(namespace, [process.execPath, PROCESS]);
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.ended = new Promise((resolve) => {
      this.#child.once('error', () => resolve());
      this.#child.once('close', () => resolve());
    });
    // It may be gone at any moment; what it had told stands.
    this.#child.stdin.on('error', () => undefined);
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#said += text));
    createInterface({ input: this.#child.stdout }).on('line', (line) => onMessage(JSON.parse(line) as LoadMessage));
    this.send(JSON.stringify(order));
  }

  send(line: string): void {
    this.#child.stdin.write(`${line}\n`);
  }

  get said(): string {
    return this.#said.trim().split('\n').at(-1) ?? '';
  }

  /** SIGKILL. One that hangs in the kernel ends when its I/O does; nobody waits longer than `limitMs` for that. */
  async kill(limitMs: number): Promise<void> {
    this.#child.kill('SIGKILL');
    await Promise.race([this.ended, sleep(limitMs, undefined, { ref: false })]);
  }
}

/** A load that runs on a node. */
export class Load {
  readonly #process: LoadProcess;
  #state: LoadState = { kind: 'state', acknowledged: 0, firstAt: 0, lastAt: 0, longestPauseMs: 0 };
  #error: { readonly at: number; readonly message: string } | undefined;
  #ledger: string | undefined;

  constructor(
    readonly node: string,
    namespace: string,
    order: LoadOrder,
  ) {
    this.#process = new LoadProcess(namespace, order, (message) => {
      if (message.kind === 'state') this.#state = message;
      else if (message.kind === 'error') this.#error ??= message;
      else if (message.kind === 'end') this.#ledger = message.ledger;
    });
  }

  get state(): LoadState {
    return this.#state;
  }

  /** Why it writes no more. */
  get error(): { readonly at: number; readonly message: string } | undefined {
    return this.#error;
  }

  /** Lets it end; resolves to its ledger. `internal` where it has none. */
  async stop(): Promise<string> {
    this.#process.send('stop');
    for (const end = Date.now() + END_TIMEOUT_MS; this.#ledger === undefined && Date.now() < end;) await sleep(20);
    if (this.#ledger === undefined) {
      throw new HoldfastError('internal', `the load on node ${this.node} told no ledger: ${this.#process.said}`);
    }
    return this.#ledger;
  }

  kill(limitMs: number): Promise<void> {
    return this.#process.kill(limitMs);
  }
}

/** Holds what is on a volume against ledgers. `io-error`: it can't be read; `deadline-exceeded`: not in time. */
export async function checkVolume(namespace: string, order: ReadOrder): Promise<CheckResult> {
  let result: CheckResult | undefined;
  let failure = 'it ended without an answer';
  const reader = new LoadProcess(namespace, order, (message) => {
    if (message.kind === 'checked') result = message;
    if (message.kind === 'error') failure = message.message;
  });
  const late = new AbortController();
  const timeout = sleep(CHECK_TIMEOUT_MS, 'late', { signal: late.signal }).catch(() => undefined);
  const outcome = await Promise.race([reader.ended, timeout]);
  late.abort();
  if (outcome === 'late') {
    await reader.kill(0);
    throw new HoldfastError('deadline-exceeded', `${order.path} could not be read within ${CHECK_TIMEOUT_MS / 1000} s`);
  }
  if (result === undefined) throw new HoldfastError('io-error', `${order.path}: ${failure} ${reader.said}`.trim());
  return result;
}
