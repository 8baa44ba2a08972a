import { spawn } from 'node:child_process';
import { HoldfastError, type ErrorCode } from './errors.js';

export interface RunOptions {
  /** The tool is killed after this time. */
  readonly timeoutMs: number;
  /** What the tool reads on its standard input; without it the input is empty. */
  readonly input?: string;
  /** Exit codes that are answers rather than failures (default: 0 alone). */
  readonly okCodes?: readonly number[];
}

export interface RunResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number;
}

/** Debian packages of the tools that Holdfast runs, for whoever has to install one. */
const PACKAGES: Readonly<Record<string, string>> = {
  blkid: 'util-linux',
  blockdev: 'util-linux',
  fallocate: 'util-linux',
  findmnt: 'util-linux',
  fsfreeze: 'util-linux',
  losetup: 'mount',
  mount: 'mount',
  umount: 'mount',
  wipefs: 'util-linux',
  'mkfs.xfs': 'xfsprogs',
  xfs_growfs: 'xfsprogs',
  xfs_admin: 'xfsprogs',
  xfs_info: 'xfsprogs',
  xfs_repair: 'xfsprogs',
  'mkfs.ext4': 'e2fsprogs',
  e2fsck: 'e2fsprogs',
  'fsck.ext4': 'e2fsprogs',
  resize2fs: 'e2fsprogs',
  tune2fs: 'e2fsprogs',
  fusermount3: 'fuse3',
  modprobe: 'kmod',
  cmp: 'diffutils',
  dumpe2fs: 'e2fsprogs',
  stat: 'coreutils',
  sync: 'coreutils',
};

/** More output than this of one stream is cut off; no tool that Holdfast runs has so much to say. */
const OUTPUT_LIMIT_CHARACTERS = 4 * 1024 * 1024;

/** How long a killed tool may take to die (it may hang in the kernel) before the caller is answered without it. */
const KILL_GRACE_MS = 2_000;

/**
 * Runs an external tool to its end, without a shell and with messages in English.
 *
 * Errors: `failed-precondition` where the tool is not installed (names the Debian package); `io-error` where it ends
 * with another code than `okCodes` or by a signal (the last line of its standard error stands in the message);
 * `deadline-exceeded` where it outlasts `timeoutMs`: it is then killed. A tool stuck in an uninterruptible kernel call
 * can't die; the caller is answered all the same, and the process ends when the kernel lets it go.
 */
export async function run(command: string, args: readonly string[], options: RunOptions): Promise<RunResult> {
  const shown = [command, ...args].join(' ');
  const ended = await runToEnd(command, args, options, shown);
  const okCodes = options.okCodes ?? [0];
  if (ended.code === null || !okCodes.includes(ended.code)) {
    const how = ended.code === null ? `was ended by ${ended.signal ?? 'a signal'}` : `exited with ${ended.code}`;
    throw new HoldfastError(
      'io-error',
      `${shown} ${how}: ${firstComplaint(ended.stderr) || firstComplaint(ended.stdout)}`,
    );
  }
  return { stdout: ended.stdout, stderr: ended.stderr, code: ended.code };
}

interface Ended {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number | null;
  readonly signal: string | null;
}

function runToEnd(command: string, args: readonly string[], options: RunOptions, shown: string): Promise<Ended> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, LC_ALL: 'C' },
    });
    let stdout = '';
    let stderr = '';
    let grace: NodeJS.Timeout | undefined;
    const late = (): HoldfastError =>
      new HoldfastError('deadline-exceeded', `${shown} did not end within ${options.timeoutMs} ms and was killed`);
    const deadline = setTimeout(() => {
      child.kill('SIGKILL');
      grace = setTimeout(() => {
        for (const stream of child.stdio) stream?.destroy();
        child.unref();
        reject(late());
      }, KILL_GRACE_MS);
    }, options.timeoutMs);
    const stopTimers = (): void => {
      clearTimeout(deadline);
      clearTimeout(grace);
    };
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout = bounded(stdout + text)));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr = bounded(stderr + text)));
    // A tool that ends without reading its input breaks the pipe; its exit code says what that means.
    child.stdin.on('error', () => undefined);
    child.stdin.end(options.input ?? '');
    child.once('error', (error: NodeJS.ErrnoException) => {
      stopTimers();
      reject(notStarted(command, shown, error));
    });
    child.once('close', (code, signal) => {
      const timedOut = grace !== undefined;
      stopTimers();
      if (timedOut) reject(late());
      else resolve({ stdout, stderr, code, signal });
    });
  });
}

function notStarted(command: string, shown: string, error: NodeJS.ErrnoException): HoldfastError {
  if (error.code === 'ENOENT') {
    const from = PACKAGES[command];
    const remedy = from === undefined ? 'install it' : `install the Debian package ${from}`;
    return new HoldfastError('failed-precondition', `${command} is not installed on this machine; ${remedy}`);
  }
  const code: ErrorCode = error.code === 'EAGAIN' || error.code === 'ENOMEM' ? 'resource-exhausted' : 'io-error';
  return new HoldfastError(code, `${shown} can't be started: ${error.message}`, { cause: error });
}

function bounded(text: string): string {
  return text.length > OUTPUT_LIMIT_CHARACTERS ? text.slice(0, OUTPUT_LIMIT_CHARACTERS) : text;
}

/** The tool's first words, less the banner with its version: usage and advice follow the reason. */
function firstComplaint(text: string): string {
  const lines = text.split('\n').map((line) => line.trim());
  return lines.find((line) => line !== '' && !BANNER.test(line)) ?? '';
}

/** e.g. "mke2fs 1.47.0 (5-Feb-2023)" */
const BANNER = /^[a-z0-9.]+ [0-9.]+ \([^)]*\)$/;
