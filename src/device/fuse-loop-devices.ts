import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { KeyedMutex } from '../base/mutex.js';
import { isVolumeId, type VolumeId } from '../model/ids.js';
import { PAGE_BYTES, type Io } from '../io/io.js';
import { NbdClient } from '../nbd/client.js';
import type { BlockDevice, BlockDevices, ExportAddress } from './device.js';
import { deviceFile, volumeOfFile } from './device-paths.js';
import { DirectoryLock } from './directory-lock.js';
import { FuseLoopDevice, clearPlace, freePlace } from './fuse-loop-device.js';
import { removeFolder } from './fuse-mount.js';
import { isLoopOn, loopSize, type LoopDevice } from './loop.js';
import { Readiness } from './readiness.js';
import { SteadyStage, type ConnectedStage } from './steady-stage.js';

const CONNECT_TIMEOUT_MS = 5_000;

interface Attached {
  readonly address: ExportAddress;
  readonly readOnly: boolean;
  readonly stage: SteadyStage;
  readonly device: FuseLoopDevice;
}

/** Block devices of FUSE files and loop devices, served by this process for as long as it lives. */
export class FuseLoopDevices implements BlockDevices {
  readonly #attached = new Map<VolumeId, Attached>();
  /** What a dead process left and is still bound to a path, so that its number can't be given up. All its I/O fails. */
  readonly #left = new Map<VolumeId, LoopDevice>();
  readonly #turns = new KeyedMutex<VolumeId>();
  readonly #readiness = new Readiness();
  /** Stages of devices that are being made, so that these can be failed too. */
  readonly #opening = new Map<VolumeId, SteadyStage>();
  /** Operations under way that may make a device. */
  #making = 0;
  #retired = false;

  private constructor(
    private readonly io: Io,
    private readonly directory: string,
    private readonly lock: DirectoryLock,
    private readonly log: Log,
  ) {}

  /**
   * `directory` (an absolute path without links) holds the mounts. What a dead process left there is removed: its loop
   * devices (at the last close where they are open) and mounts. Only a device that is still bound to a path stays, failed,
   * until it is removed. `already-exists`: a living process serves the directory.
   */
  static async start(io: Io, directory: string, log: Log): Promise<FuseLoopDevices> {
    const lock = new DirectoryLock(directory, io.clock);
    await lock.hold();
    try {
      const devices = new FuseLoopDevices(io, directory, lock, log);
      await devices.#clear();
      return devices;
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  /** From now on no device is made; false, and nothing changes, while one is there or being made. */
  retire(): boolean {
    this.#retired ||= this.#attached.size === 0 && this.#making === 0;
    return this.#retired;
  }

  async create(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    checkRequest(volume, address, sizeBytes);
    if (this.#retired) throw new HoldfastError('unavailable', 'the device process is ending');
    this.#making++;
    try {
      return await this.#turns.run(volume, () => this.#create(volume, address, sizeBytes, readOnly));
    } finally {
      this.#making--;
    }
  }

  grow(volume: VolumeId, sizeBytes: number): Promise<void> {
    checkSize(sizeBytes);
    return this.#turns.run(volume, async () => {
      const attached = this.#attached.get(volume);
      if (attached === undefined && !this.#left.has(volume)) {
        throw new HoldfastError('not-found', `no device of volume ${volume}`);
      }
      if (attached === undefined || (await attached.device.presence()) !== 'here') {
        throw new HoldfastError('failed-precondition', `the device of ${volume} is being removed; finish that first`);
      }
      await attached.device.grow(sizeBytes);
    });
  }

  /** At once, whatever else is under way with the device. */
  fail(volume: VolumeId): Promise<void> {
    const stage = this.#attached.get(volume)?.stage ?? this.#opening.get(volume);
    if (stage !== undefined && !stage.failed) {
      this.log.warn({ volume }, 'attachment ended; its I/O fails');
      stage.fail(`the attachment of ${volume} has ended`);
    }
    return Promise.resolve();
  }

  remove(volume: VolumeId): Promise<void> {
    return this.#turns.run(volume, async () => {
      const attached = this.#attached.get(volume);
      if (attached !== undefined) await this.#remove(volume, attached);
      await this.#removeLeft(volume);
    });
  }

  list(): Promise<BlockDevice[]> {
    return Promise.all([
      ...[...this.#attached].map(([volume, attached]) => describeNow(volume, attached)),
      ...[...this.#left].map(([volume, loop]) => describeLeft(volume, loop)),
    ]);
  }

  /** After `retire`. */
  async close(): Promise<void> {
    await this.#readiness.close();
    this.lock.release();
  }

  /** Clears the directory of what a dead process left. */
  async #clear(): Promise<void> {
    const kept = await clearPlace(this.directory, this.log);
    for (const loop of kept) {
      this.log.warn({ ...loop }, 'loop device left over stays, failed: its node is still bound to a path');
      const volume = volumeOfFile(loop.backingFile);
      if (volume !== undefined) this.#left.set(volume, loop);
    }
    const folders = new Set(kept.map(({ backingFile }) => dirname(backingFile)));
    for (const name of await readdir(this.directory)) {
      const folder = join(this.directory, name);
      if (!folders.has(folder)) await removeFolder(folder);
    }
  }

  async #create(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    await this.#removeLeft(volume);
    const before = this.#attached.get(volume);
    if (before !== undefined && (await before.device.presence()) !== 'here') {
      // Whoever asked for its removal may never ask again.
      await this.#remove(volume, before);
    } else if (before !== undefined) {
      checkSame(volume, before, address, readOnly);
      await before.device.grow(sizeBytes);
      return describe(volume, before);
    }
    const made = await this.#make(volume, address, sizeBytes, readOnly);
    this.#attached.set(volume, made);
    this.log.info({ volume, path: made.device.loop, sizeBytes, readOnly }, 'device made');
    return describe(volume, made);
  }

  async #remove(volume: VolumeId, { device, stage }: Attached): Promise<void> {
    await device.remove();
    stage.fail(`the device of ${volume} was removed`);
    this.#attached.delete(volume);
    this.log.info({ volume, path: device.loop }, 'device removed');
  }

  async #removeLeft(volume: VolumeId): Promise<void> {
    const loop = this.#left.get(volume);
    if (loop === undefined) return;
    await freePlace(dirname(loop.backingFile), this.log);
    this.#left.delete(volume);
  }

  async #make(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<Attached> {
    const { io } = this;
    const log = this.log.child({ volume });
    const stage: SteadyStage = new SteadyStage({
      connect: () => this.#connect(address, stage.sizeBytes),
      clock: io.clock,
      log,
      sizeBytes,
    });
    this.#opening.set(volume, stage);
    try {
      await this.lock.hold();
      await stage.open();
      const path = deviceFile(this.directory, volume);
      const parts = { io, readiness: this.#readiness, log, stage, path, sizeBytes, readOnly };
      return { address, readOnly, stage, device: await FuseLoopDevice.make(parts) };
    } catch (error) {
      stage.fail('the device could not be made');
      throw error;
    } finally {
      this.#opening.delete(volume);
    }
  }

  async #connect(address: ExportAddress, sizeBytes: number): Promise<ConnectedStage> {
    const client = await NbdClient.connect({
      io: this.io,
      address: { kind: 'unix', path: address.socketPath },
      exportName: address.exportName,
      timeoutMs: CONNECT_TIMEOUT_MS,
    });
    if (client.sizeBytes >= sizeBytes) return client;
    client.close();
    const told = `export ${address.exportName} has ${client.sizeBytes} bytes`;
    throw new HoldfastError('failed-precondition', `${told}; the device needs ${sizeBytes}`);
  }
}

function describe(volume: VolumeId, { device, readOnly, stage }: Attached): BlockDevice {
  return { volume, path: device.loop, sizeBytes: device.sizeBytes, readOnly, failed: stage.failed };
}

/** One that is leaving is told without its path, which may be another's before the answer is read. */
async function describeNow(volume: VolumeId, attached: Attached): Promise<BlockDevice> {
  const presence = await attached.device.presence();
  const told = describe(volume, attached);
  return presence === 'here' ? told : { ...told, path: '', failed: told.failed || presence === 'gone' };
}

async function describeLeft(volume: VolumeId, { path, backingFile }: LoopDevice): Promise<BlockDevice> {
  const sizeBytes = await loopSize(path).catch(() => 0);
  const isThere = await isLoopOn(path, backingFile);
  return { volume, path: isThere ? path : '', sizeBytes, readOnly: false, failed: true };
}

function checkRequest(volume: VolumeId, address: ExportAddress, sizeBytes: number): void {
  const isId: boolean = isVolumeId(volume);
  if (!isId) throw new HoldfastError('invalid-argument', `volume_id "${volume}": must be a volume id`);
  if (!address.socketPath.startsWith('/')) {
    throw new HoldfastError('invalid-argument', `socket_path "${address.socketPath}": must be an absolute path`);
  }
  checkSize(sizeBytes);
}

function checkSize(sizeBytes: number): void {
  if (Number.isSafeInteger(sizeBytes) && sizeBytes > 0 && sizeBytes % PAGE_BYTES === 0) return;
  throw new HoldfastError('invalid-argument', `size_bytes ${sizeBytes}: must be a multiple of ${PAGE_BYTES}, above 0`);
}

function checkSame(volume: VolumeId, { stage, ...before }: Attached, address: ExportAddress, readOnly: boolean): void {
  if (stage.failed) {
    throw new HoldfastError('failed-precondition', `the attachment of ${volume} has ended; remove its device first`);
  }
  const { socketPath, exportName } = before.address;
  if (socketPath === address.socketPath && exportName === address.exportName && before.readOnly === readOnly) return;
  const mode = before.readOnly ? 'read-only' : 'writable';
  throw new HoldfastError(
    'already-exists',
    `volume ${volume} has a ${mode} device on export ${exportName} of ${socketPath}; remove it first`,
  );
}
