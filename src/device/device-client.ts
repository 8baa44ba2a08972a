import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { mkdir, readFile, readdir, rename, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { credentials } from '@grpc/grpc-js';
import { HoldfastError, asHoldfastError, codeOf } from '../base/errors.js';
import { invoke } from '../base/grpc.js';
import type { Log } from '../base/log.js';
import type { DeviceProcessClient as DeviceStub } from '../generated/holdfast/v1/DeviceProcess.js';
import type { Device__Output } from '../generated/holdfast/v1/Device.js';
import type { ListDevicesResponse__Output } from '../generated/holdfast/v1/ListDevicesResponse.js';
import type { VolumeId } from '../model/ids.js';
import type { BlockDevice, BlockDevices, ExportAddress } from './device.js';
import { devicePaths } from './device-paths.js';
import { holdfastProto } from './device-service.js';

/** Child processes with deadlines of their own stand behind these calls. */
const CHANGE_TIMEOUT_MS = 60_000;
const FAIL_TIMEOUT_MS = 10_000;
const LIST_TIMEOUT_MS = 5_000;
const START_TIMEOUT_MS = 20_000;
const STOP_TIMEOUT_MS = 20_000;
const STEP_MS = 50;
const LOG_LIMIT_BYTES = 8 * 1024 * 1024;

/** The device process of a node, as its plugin uses it. `unavailable`: it does not answer. */
export class DeviceProcessClient implements BlockDevices {
  readonly #stub: DeviceStub;

  /** Connects when first used. */
  constructor(stateDirectory: string) {
    const { DeviceProcess } = holdfastProto();
    this.#stub = new DeviceProcess(`unix:${devicePaths(stateDirectory).socket}`, credentials.createInsecure(), {
      'grpc.initial_reconnect_backoff_ms': STEP_MS,
      'grpc.max_reconnect_backoff_ms': 1_000,
    });
  }

  async create(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    const request = {
      volume_id: volume,
      socket_path: address.socketPath,
      export_name: address.exportName,
      size_bytes: sizeBytes,
      read_only: readOnly,
    };
    return heard(await this.#ask((...call) => this.#stub.CreateDevice(...call), request, CHANGE_TIMEOUT_MS));
  }

  async grow(volume: VolumeId, sizeBytes: number): Promise<void> {
    const request = { volume_id: volume, size_bytes: sizeBytes };
    await this.#ask((...call) => this.#stub.GrowDevice(...call), request, CHANGE_TIMEOUT_MS);
  }

  async fail(volume: VolumeId): Promise<void> {
    await this.#ask((...call) => this.#stub.FailDevice(...call), { volume_id: volume }, FAIL_TIMEOUT_MS);
  }

  async remove(volume: VolumeId): Promise<void> {
    await this.#ask((...call) => this.#stub.RemoveDevice(...call), { volume_id: volume }, CHANGE_TIMEOUT_MS);
  }

  async list(): Promise<BlockDevice[]> {
    const answer: ListDevicesResponse__Output = await this.#ask(
      (...call) => this.#stub.ListDevices(...call),
      {},
      LIST_TIMEOUT_MS,
    );
    return answer.devices.map(heard);
  }

  #ask<Request, Response>(method: Method<Request, Response>, request: Request, timeoutMs: number): Promise<Response> {
    return invoke(this.#stub, method, request, timeoutMs);
  }

  close(): void {
    this.#stub.close();
  }
}

type Method<Request, Response> = Parameters<typeof invoke<Request, Response>>[1];

/**
 * The device process of this state directory, started if none answers. It gets a session and output of its own
 * (device.log), so that it outlives its starter. `command`: what to start, for tests.
 */
export async function ensureDeviceProcess(
  stateDirectory: string,
  log: Log,
  command: readonly string[] = holdfastCommand(stateDirectory),
): Promise<DeviceProcessClient> {
  if (!(await answers(stateDirectory))) {
    const child = await start(stateDirectory, command);
    log.info({ pid: child.pid, stateDirectory }, 'device process started');
    await untilAnswer(stateDirectory, child);
  }
  return new DeviceProcessClient(stateDirectory);
}

/**
 * Ends the device process of this state directory in good order. None there: nothing happens.
 * `failed-precondition`: it has devices; remove them first.
 */
export async function stopDeviceProcess(stateDirectory: string): Promise<void> {
  const pids = await livingPids(stateDirectory);
  if (pids.length === 0) return;
  const client = new DeviceProcessClient(stateDirectory);
  try {
    const left = await client.list();
    if (left.length > 0) {
      const names = left.map(({ volume }) => volume).join(', ');
      throw new HoldfastError(
        'failed-precondition',
        `the device process still has devices (${names}); remove them first`,
      );
    }
  } finally {
    client.close();
  }
  for (const pid of pids) tell(pid, 'SIGTERM');
  for (let waitedMs = 0; (await livingPids(stateDirectory)).length > 0; waitedMs += STEP_MS) {
    if (waitedMs >= STOP_TIMEOUT_MS) {
      throw new HoldfastError(
        'deadline-exceeded',
        `device process ${pids.join(', ')} did not end within ${STOP_TIMEOUT_MS} ms`,
      );
    }
    await sleep(STEP_MS);
  }
}

function holdfastCommand(stateDirectory: string): string[] {
  const main = fileURLToPath(new URL('../main.js', import.meta.url));
  return [process.execPath, main, 'device', '--state-directory', stateDirectory];
}

interface Started {
  readonly pid: number;
  /** How it ended, once it has. */
  readonly ended: () => string | undefined;
}

async function start(stateDirectory: string, command: readonly string[]): Promise<Started> {
  await mkdir(stateDirectory, { recursive: true });
  const output = await openOutput(devicePaths(stateDirectory).log);
  try {
    const [program = '', ...args] = command;
    const child = spawn(program, args, { detached: true, stdio: ['ignore', output, output], cwd: '/' });
    let ended: string | undefined;
    child.once('exit', (code, signal) => {
      ended = `exited with ${code ?? signal ?? 'nothing'}`;
    });
    child.once('error', (error) => {
      ended = error.message;
    });
    child.unref();
    return { pid: child.pid ?? 0, ended: () => ended };
  } finally {
    closeSync(output);
  }
}

async function openOutput(path: string): Promise<number> {
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  );
  if (size > LOG_LIMIT_BYTES) await rename(path, `${path}.1`);
  return openSync(path, 'a', 0o600);
}

async function untilAnswer(stateDirectory: string, child: Started): Promise<void> {
  const start = Date.now();
  while (Date.now() - start < START_TIMEOUT_MS) {
    if (await answers(stateDirectory)) return;
    const how = child.ended();
    // Where two were started at once, or a living one has lost its socket, one refuses and the other answers soon.
    if (how !== undefined && (await livingPids(stateDirectory)).length === 0) {
      throw new HoldfastError('unavailable', `the device process ${how}; see ${devicePaths(stateDirectory).log}`);
    }
    await sleep(STEP_MS);
  }
  const told = `the device process did not answer within ${START_TIMEOUT_MS} ms`;
  throw new HoldfastError('unavailable', `${told}; see ${devicePaths(stateDirectory).log}`);
}

async function answers(stateDirectory: string): Promise<boolean> {
  const client = new DeviceProcessClient(stateDirectory);
  try {
    await client.list();
    return true;
  } catch (error) {
    if (codeOf(error) === 'unavailable') return false;
    throw error;
  } finally {
    client.close();
  }
}

/**
 * The device processes of this directory that live: the one that serves it, and those that are about to be refused. The
 * pid file may be lost, or one of the latter's.
 */
async function livingPids(stateDirectory: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(pids.map((pid) => isDeviceProcess(pid, stateDirectory)));
  return pids.filter((_, index) => found[index]);
}

/** One that has ended meanwhile needs no telling. */
function tell(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw asHoldfastError(error);
  }
}

async function isDeviceProcess(pid: number, stateDirectory: string): Promise<boolean> {
  const words = (await readFile(join('/proc', String(pid), 'cmdline'), 'utf8').catch(() => '')).split('\0');
  return words.includes('device') && words.includes(stateDirectory);
}

function heard(device: Device__Output): BlockDevice {
  return {
    volume: device.volume_id,
    path: device.path,
    sizeBytes: device.size_bytes,
    readOnly: device.read_only,
    failed: device.failed,
  };
}
