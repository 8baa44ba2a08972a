import { mkdir, open, readFile, rm, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../../src/base/errors.js';
import { readMountTable } from '../../../src/base/mount-table.js';
import { run } from '../../../src/base/run.js';
import type { BlockDevice, BlockDevices, ExportAddress } from '../../../src/device/device.js';
import type { VolumeId } from '../../../src/model/ids.js';

const TOOL = { timeoutMs: 20_000 };

/**
 * Real loop devices on files, one for each volume, behind the contract of BlockDevices. The file is the volume: it
 * outlives its devices.
 */
export class LoopDevices implements BlockDevices {
  protected readonly devices = new Map<VolumeId, BlockDevice>();
  /** Called before a device is made, e.g. to fail. */
  beforeCreate: (volume: VolumeId) => Promise<void> = () => Promise.resolve();

  constructor(private readonly directory: string) {}

  file(volume: VolumeId): string {
    return join(this.directory, `${volume}.img`);
  }

  async create(volume: VolumeId, _address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    const known = this.devices.get(volume);
    if (known !== undefined) return known;
    await this.beforeCreate(volume);
    await mkdir(this.directory, { recursive: true });
    await extend(this.file(volume), sizeBytes);
    const flags = readOnly ? ['--read-only'] : [];
    const { stdout } = await run('losetup', ['--find', '--show', ...flags, await this.backing(volume)], TOOL);
    const device = { volume, path: stdout.trim(), sizeBytes, readOnly, failed: false };
    this.devices.set(volume, device);
    return device;
  }

  /** The file that the loop device is put on. */
  protected backing(volume: VolumeId): Promise<string> {
    return Promise.resolve(this.file(volume));
  }

  async grow(volume: VolumeId, sizeBytes: number): Promise<void> {
    const known = this.devices.get(volume);
    if (known === undefined || known.sizeBytes >= sizeBytes) return;
    await extend(this.file(volume), sizeBytes);
    await run('losetup', ['--set-capacity', known.path], TOOL);
    this.devices.set(volume, { ...known, sizeBytes });
  }

  /** All I/O fails: the device loses its file, which lives on as a copy under the same name. */
  async fail(volume: VolumeId): Promise<void> {
    const known = this.devices.get(volume);
    if (known === undefined || known.failed) return;
    const file = this.file(volume);
    await run('cp', ['--sparse=always', file, `${file}.copy`], TOOL);
    await run('mv', [file, `${file}.dead`], TOOL);
    await run('mv', [`${file}.copy`, file], TOOL);
    await truncate(`${file}.dead`, 0);
    await run('losetup', ['--set-capacity', known.path], TOOL);
    await rm(`${file}.dead`);
    this.devices.set(volume, { ...known, failed: true });
  }

  async remove(volume: VolumeId): Promise<void> {
    const known = this.devices.get(volume);
    if (known === undefined) return;
    if (await isHeld(known.path)) {
      throw new HoldfastError('failed-precondition', `device ${known.path} of volume ${volume} is still in use`);
    }
    await run('losetup', ['--detach', known.path], TOOL);
    this.devices.delete(volume);
  }

  list(): Promise<BlockDevice[]> {
    return Promise.resolve([...this.devices.values()]);
  }

  /** At the end of a test, whatever state it left. */
  async destroy(): Promise<void> {
    for (const { path } of this.devices.values()) await run('losetup', ['--detach', path], TOOL).catch(() => undefined);
    this.devices.clear();
  }
}

async function extend(file: string, sizeBytes: number): Promise<void> {
  const handle = await open(file, 'a');
  try {
    const { size } = await handle.stat();
    if (size < sizeBytes) await handle.truncate(sizeBytes);
  } finally {
    await handle.close();
  }
}

/** Mounted here, or with a filesystem on it that is still alive elsewhere. */
async function isHeld(path: string): Promise<boolean> {
  const name = path.replace('/dev/', '');
  const number = (await readFile(`/sys/block/${name}/dev`, 'utf8')).trim();
  const mounted = (await readMountTable()).some((entry) => entry.majorMinor === number || entry.root === `/${name}`);
  const alive = await Promise.all(
    ['ext4', 'xfs'].map((type) =>
      stat(`/sys/fs/${type}/${name}`).then(
        () => true,
        () => false,
      ),
    ),
  );
  return mounted || alive.includes(true);
}
