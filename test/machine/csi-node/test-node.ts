import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../../src/base/log.js';
import { readMountTable, type MountEntry } from '../../../src/base/mount-table.js';
import { run } from '../../../src/base/run.js';
import type { AccessMode } from '../../../src/csi/capability.js';
import { StagingNotes } from '../../../src/csi/node-notes.js';
import type { PublishRequest, StageRequest } from '../../../src/csi/node-parse.js';
import { NodeVolumes } from '../../../src/csi/node-volumes.js';
import type { BlockDevices } from '../../../src/device/device.js';
import { volumeKey, type VolumeId } from '../../../src/model/ids.js';
import type { VolumeRecord } from '../../../src/model/records.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { RecordAttachments, volumeRecord } from '../../unit/csi/node-fakes.js';
import { LoopDevices } from './loop-devices.js';

export const MEBIBYTE = 1024 * 1024;

/** How a test wants a volume staged or published; the rest is as a kubelet would ask. */
export interface Wish {
  path?: string;
  target?: string;
  filesystem?: 'ext4' | 'xfs';
  flags?: string[];
  mode?: AccessMode;
  readOnly?: boolean;
  block?: boolean;
  deadlineMs?: number;
}

export interface TestDevices extends BlockDevices {
  /** At the end of a test, whatever state it left. */
  destroy(): Promise<void>;
}

/** The volumes of one node on real devices and mounts, with everything below one directory. */
export class TestNode<D extends TestDevices = LoopDevices> {
  readonly store = new MemoryStore();
  attachments = new RecordAttachments(this.store);
  volumes: NodeVolumes;

  private constructor(
    readonly directory: string,
    readonly devices: D,
  ) {
    this.volumes = this.#start();
  }

  static create(): Promise<TestNode> {
    return TestNode.on((directory) => new LoopDevices(directory));
  }

  /** A node with devices of another kind, which are told the directory for their files. */
  static async on<D extends TestDevices>(devices: (directory: string) => D): Promise<TestNode<D>> {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-node-'));
    return new TestNode(directory, devices(join(directory, 'devices')));
  }

  /** The plugin's process ends and begins anew: devices and mounts stay. */
  async restart(options: { wipe: boolean } = { wipe: false }): Promise<void> {
    if (options.wipe) await rm(this.path('state'), { recursive: true, force: true });
    this.attachments = new RecordAttachments(this.store);
    this.volumes = this.#start();
  }

  async addVolume(digit: string, change: Parameters<typeof volumeRecord>[1] = {}): Promise<VolumeId> {
    const volume = `vol-${digit.repeat(32)}`;
    await this.store.create('volume', volumeKey(volume), volumeRecord(volume, change));
    return volume;
  }

  async record(volume: VolumeId): Promise<VolumeRecord> {
    const found = await this.store.get('volume', volumeKey(volume));
    if (found === undefined) throw new Error(`no record of ${volume}`);
    return found.record;
  }

  async change(volume: VolumeId, change: Partial<VolumeRecord>): Promise<void> {
    const found = await this.store.get('volume', volumeKey(volume));
    if (found === undefined) throw new Error(`no record of ${volume}`);
    await this.store.update('volume', found.key, { ...found.record, ...change }, found.version);
  }

  stage(volume: VolumeId, wish: Wish = {}): Promise<void> {
    const deadline = Date.now() + (wish.deadlineMs ?? 60_000);
    return this.volumes.stage(this.#stageRequest(volume, wish), () => deadline - Date.now());
  }

  publish(volume: VolumeId, wish: Wish = {}): Promise<void> {
    const request: PublishRequest = {
      ...this.#stageRequest(volume, wish),
      targetPath: wish.target ?? this.path('target'),
      readOnly: wish.readOnly ?? false,
    };
    return this.volumes.publish(request, () => 60_000);
  }

  unpublish(volume: VolumeId, target = this.path('target')): Promise<void> {
    return this.volumes.unpublish({ volume, targetPath: target }, () => 60_000);
  }

  unstage(volume: VolumeId, path = this.path('staging')): Promise<void> {
    return this.volumes.unstage({ volume, stagingPath: path }, () => 60_000);
  }

  path(name: string): string {
    return join(this.directory, name);
  }

  /** All mounts at or below the path. */
  async mounts(path = this.directory): Promise<MountEntry[]> {
    return (await readMountTable()).filter(
      ({ mountPoint }) => mountPoint === path || mountPoint.startsWith(`${path}/`),
    );
  }

  /** A filesystem of somebody else, on a loop device of somebody else. */
  async mountForeign(path: string): Promise<void> {
    const image = this.path('foreign.img');
    await run('truncate', ['--size=64M', image], { timeoutMs: 20_000 });
    await run('mkfs.ext4', ['-q', image], { timeoutMs: 20_000 });
    await mkdir(path);
    await run('mount', ['-o', 'loop', image, path], { timeoutMs: 20_000 });
  }

  /** SHA-256 of what the volume holds. */
  checksum(this: TestNode, volume: VolumeId): Promise<string> {
    return new Promise((resolve, reject) => {
      const hash = createHash('sha256');
      createReadStream(this.devices.file(volume))
        .on('error', reject)
        .on('data', (data) => hash.update(data))
        .on('end', () => resolve(hash.digest('hex')));
    });
  }

  async dispose(): Promise<void> {
    await this.#unmountAll();
    await this.devices.destroy();
    await this.#unmountAll();
    await rm(this.directory, { recursive: true, force: true });
  }

  async #unmountAll(): Promise<void> {
    for (const { mountPoint } of (await this.mounts()).reverse()) {
      await run('umount', ['--lazy', mountPoint], { timeoutMs: 10_000 }).catch(() => undefined);
    }
  }

  #start(): NodeVolumes {
    const notes = new StagingNotes(this.path('state'));
    const { store, attachments, devices } = this;
    return new NodeVolumes({ store, attachments, devices, notes, log: silentLog() });
  }

  #stageRequest(volume: VolumeId, wish: Wish): StageRequest {
    const access = wish.block
      ? { kind: 'block' as const }
      : { kind: 'mount' as const, filesystem: wish.filesystem ?? null, mountFlags: wish.flags ?? [] };
    const capability = { access, mode: wish.mode ?? 'SINGLE_NODE_WRITER' };
    return { volume, stagingPath: wish.path ?? this.path('staging'), capability };
  }
}
