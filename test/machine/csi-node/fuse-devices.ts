import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../../src/base/log.js';
import type { BlockDevice, ExportAddress } from '../../../src/device/device.js';
import { FuseLoopDevices } from '../../../src/device/fuse-loop-devices.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import type { VolumeId } from '../../../src/model/ids.js';
import type { Export } from '../../../src/nbd/stage.js';
import { serveNbd, type NbdServer } from '../../../src/nbd/server.js';
import { NamedExports } from '../../support/memory-stage.js';
import { SparseStage } from '../device/sparse-stage.js';
import type { TestDevices } from './test-node.js';

const SOCKET = 'nbd.sock';

/** Holdfast's own devices, on volumes in memory. */
export class FuseDevices implements TestDevices {
  private constructor(
    readonly directory: string,
    private readonly exports: Record<VolumeId, Export>,
    private readonly server: NbdServer,
    private readonly devices: FuseLoopDevices,
  ) {}

  static async start(): Promise<FuseDevices> {
    const directory = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-fuse-devices-')));
    const exports: Record<VolumeId, Export> = {};
    const io = createNodeIo();
    const server = await serveNbd({
      io,
      address: { kind: 'unix', path: join(directory, SOCKET) },
      exports: new NamedExports(exports),
      slab: io.slab(16 * 1024 * 1024),
      log: silentLog(),
    });
    const devices = await FuseLoopDevices.start(io, join(directory, 'fuse'), silentLog());
    return new FuseDevices(directory, exports, server, devices);
  }

  create(volume: VolumeId, _address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    this.exports[volume] ??= { stage: new SparseStage(sizeBytes), readOnly: false };
    const address = { socketPath: join(this.directory, SOCKET), exportName: volume };
    return this.devices.create(volume, address, sizeBytes, readOnly);
  }

  grow(volume: VolumeId, sizeBytes: number): Promise<void> {
    return this.devices.grow(volume, sizeBytes);
  }

  fail(volume: VolumeId): Promise<void> {
    return this.devices.fail(volume);
  }

  remove(volume: VolumeId): Promise<void> {
    return this.devices.remove(volume);
  }

  list(): Promise<BlockDevice[]> {
    return this.devices.list();
  }

  async destroy(): Promise<void> {
    for (const { volume } of await this.list()) await this.fail(volume);
    for (const { volume } of await this.list()) await this.remove(volume);
    this.devices.retire();
    await this.devices.close();
    await this.server.close();
    await rm(this.directory, { recursive: true });
  }
}
