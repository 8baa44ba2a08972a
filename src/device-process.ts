import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { mkdir, realpath } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { HoldfastError, messageOf } from './base/errors.js';
import type { Log } from './base/log.js';
import { serveUnix } from './base/unix-server.js';
import { devicePaths } from './device/device-paths.js';
import { addDeviceService } from './device/device-service.js';
import { FuseLoopDevices } from './device/fuse-loop-devices.js';
import { becomeIoFlusher, tryLock } from './device/system-calls.js';
import { createNodeIo } from './io/node-io.js';

const LOCK_WAIT_MS = 2_000;
const LOCK_STEP_MS = 50;

export interface DeviceProcessOptions {
  readonly stateDirectory: string;
  readonly logLevel: string;
}

/**
 * The device process: serves the block devices of this node until it gets SIGTERM or SIGINT while it has none; with
 * devices it stays, since its end would be the end of their I/O. It handles signals itself. `already-exists`: another
 * one serves this state directory.
 */
export async function runDeviceProcess(options: DeviceProcessOptions): Promise<void> {
  const log = createSafeLog(options.logLevel);
  // Threads made from here on inherit it.
  prepareForMemoryPressure(log);
  await mkdir(options.stateDirectory, { recursive: true, mode: 0o700 });
  const stateDirectory = await realpath(options.stateDirectory);
  const paths = devicePaths(stateDirectory);
  const lock = await takeLock(paths.pid);
  // The end of this process is the end of all I/O of its devices, so a defect beside the data path must not end it.
  const goOn = (error: unknown): void => log.error({ err: error }, 'defect; the device process goes on');
  process.on('uncaughtException', goOn);
  try {
    const devices = await FuseLoopDevices.start(createNodeIo(), paths.mounts, log);
    const server = await serveUnix(paths.socket, (grpc) => addDeviceService(grpc, devices, log), log);
    log.info({ stateDirectory, pid: process.pid }, 'device process serves');
    await untilEnd(devices, log);
    await server.stop();
    await devices.close();
    // It stays, empty: removing it could leave two processes with a lock on two files of this name.
    ftruncateSync(lock);
    log.info('device process ends');
  } finally {
    process.off('uncaughtException', goOn);
    closeSync(lock);
  }
}

/** As every log of Holdfast, but a full disk below the log is no error of whatever is logged: I/O goes on. */
function createSafeLog(level: string): Log {
  const output = pino.destination({ dest: 2, sync: true });
  output.on('error', () => undefined);
  return pino({ name: 'device', level }, output);
}

/**
 * This process writes back the dirty memory of others: it must neither wait for that itself, nor be the one that is
 * killed for want of memory.
 */
function prepareForMemoryPressure(log: Log): void {
  if (!becomeIoFlusher()) log.warn('PR_SET_IO_FLUSHER is not permitted (CAP_SYS_RESOURCE); going on without');
  try {
    writeFileSync('/proc/self/oom_score_adj', '-999');
  } catch (error) {
    log.warn({ reason: messageOf(error) }, 'oom_score_adj can not be lowered (CAP_SYS_RESOURCE); going on without');
  }
}

/** The pid file, locked; the kernel drops the lock with the process, however that ends, which may take a moment. */
async function takeLock(path: string): Promise<number> {
  const fd = openSync(path, 'a+', 0o600);
  for (let waitedMs = 0; !tryLock(fd); waitedMs += LOCK_STEP_MS) {
    if (waitedMs >= LOCK_WAIT_MS) {
      closeSync(fd);
      throw new HoldfastError('already-exists', `${path} is locked: another device process serves this directory`);
    }
    await sleep(LOCK_STEP_MS);
  }
  ftruncateSync(fd);
  writeSync(fd, `${process.pid}\n`);
  return fd;
}

function untilEnd(devices: FuseLoopDevices, log: Log): Promise<void> {
  return new Promise((resolve) => {
    const end = (signal: string): void => {
      if (!devices.retire()) {
        log.warn({ signal }, 'still has devices; goes on until they are removed and it is told again');
        return;
      }
      for (const name of SIGNALS) process.removeAllListeners(name);
      resolve();
    };
    for (const name of SIGNALS) process.on(name, end);
  });
}

const SIGNALS = ['SIGTERM', 'SIGINT'] as const;
