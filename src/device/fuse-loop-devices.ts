import { mkdir, readdir, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { KeyedMutex } from '../base/mutex.js';
import { isVolumeId, type VolumeId } from '../model/ids.js';
import { PAGE_BYTES, type Io } from '../io/io.js';
import { NbdClient } from '../nbd/client.js';
import type { BlockDevice, BlockDevices, ExportAddress } from './device.js';
import { FuseLoopDevice, clearPlace } from './fuse-loop-device.js';
import { Readiness } from './readiness.js';
import { SteadyStage, type ConnectedStage } from './steady-stage.js';

const CONNECT_TIMEOUT_MS = 5_000;
/** Name of the file in each mount. */
const FILE_NAME = 'device';

interface Attached {
  readonly address: ExportAddress;
  readonly readOnly: boolean;
  readonly stage: SteadyStage;
  readonly device: FuseLoopDevice;
}

/** Block devices of FUSE files and loop devices, served by this process for as long as it lives. */
export class FuseLoopDevices implements BlockDevices {
  readonly #attached = new Map<VolumeId, Attached>();
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
    private readonly log: Log,
  ) {}

  /**
   * `directory` (an absolute path without links) holds the mounts. No other process may serve it now; what a dead one
   * left there is removed: its loop devices (at the last close where they are open) and mounts.
   */
  static async start(io: Io, directory: string, log: Log): Promise<FuseLoopDevices> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await clearPlace(directory, log);
    for (const name of await readdir(directory)) await rmdir(join(directory, name));
    return new FuseLoopDevices(io, directory, log);
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
      if (attached === undefined) throw new HoldfastError('not-found', `no device of volume ${volume}`);
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
      if (attached === undefined) return;
      await attached.device.remove();
      attached.stage.fail(`the device of ${volume} was removed`);
      this.#attached.delete(volume);
      this.log.info({ volume, path: attached.device.loop }, 'device removed');
    });
  }

  list(): Promise<BlockDevice[]> {
    return Promise.resolve([...this.#attached].map(([volume, attached]) => describe(volume, attached)));
  }

  /** After `retire`. */
  async close(): Promise<void> {
    await this.#readiness.close();
  }

  async #create(volume: VolumeId, address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    const before = this.#attached.get(volume);
    if (before !== undefined) {
      checkSame(volume, before, address, readOnly);
      await before.device.grow(sizeBytes);
      return describe(volume, before);
    }
    const made = await this.#make(volume, address, sizeBytes, readOnly);
    this.#attached.set(volume, made);
    this.log.info({ volume, path: made.device.loop, sizeBytes, readOnly }, 'device made');
    return describe(volume, made);
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
      await stage.open();
      const path = join(this.directory, volume, FILE_NAME);
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

function checkSame(
  volume: VolumeId,
  { device, stage, ...before }: Attached,
  address: ExportAddress,
  readOnly: boolean,
): void {
  if (stage.failed) {
    throw new HoldfastError('failed-precondition', `the attachment of ${volume} has ended; remove its device first`);
  }
  if (device.removing) {
    throw new HoldfastError('failed-precondition', `${device.loop} of ${volume} is being removed; finish that first`);
  }
  const { socketPath, exportName } = before.address;
  if (socketPath === address.socketPath && exportName === address.exportName && before.readOnly === readOnly) return;
  const mode = before.readOnly ? 'read-only' : 'writable';
  throw new HoldfastError(
    'already-exists',
    `volume ${volume} has a ${mode} device on export ${exportName} of ${socketPath}; remove it first`,
  );
}
