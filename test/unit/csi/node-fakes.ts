import { HoldfastError } from '../../../src/base/errors.js';
import type { BlockDevice, BlockDevices, ExportAddress } from '../../../src/device/device.js';
import { volumeKey, type VolumeId } from '../../../src/model/ids.js';
import type { VolumeRecord } from '../../../src/model/records.js';
import type { RecordStore } from '../../../src/store/store.js';
import { blockVolume } from '../../support/volume-record.js';
import type { Attachment, Attachments, AttachmentStatus } from '../../../src/writer/attachments.js';

const MEBIBYTE = 1024 * 1024;

/** A volume that is ready, with one replica. */
export function volumeRecord(
  id: VolumeId,
  change: { node?: string; content?: VolumeRecord['content']; capacityBytes?: number } = {},
): VolumeRecord {
  const node = change.node ?? 'node-1';
  return blockVolume(id, change.capacityBytes ?? 64 * MEBIBYTE, [node], {
    content: change.content ?? { kind: 'filesystem', type: 'ext4' },
    replicas: [{ node, disk: 'disk-0000000000000001', inSync: true }],
    createdAt: '2026-01-01T00:00:00.000Z',
  });
}

/** Devices that are nothing but their list. */
export class MemoryDevices implements BlockDevices {
  protected readonly devices = new Map<VolumeId, BlockDevice>();

  create(volume: VolumeId, _address: ExportAddress, sizeBytes: number, readOnly: boolean): Promise<BlockDevice> {
    const known = this.devices.get(volume);
    if (known !== undefined) return Promise.resolve(known);
    const device = { volume, path: `/dev/loop99${this.devices.size}`, sizeBytes, readOnly, failed: false };
    this.devices.set(volume, device);
    return Promise.resolve(device);
  }

  grow(volume: VolumeId, sizeBytes: number): Promise<void> {
    const known = this.devices.get(volume);
    if (known !== undefined && known.sizeBytes < sizeBytes) this.devices.set(volume, { ...known, sizeBytes });
    return Promise.resolve();
  }

  fail(volume: VolumeId): Promise<void> {
    const known = this.devices.get(volume);
    if (known !== undefined) this.devices.set(volume, { ...known, failed: true });
    return Promise.resolve();
  }

  remove(volume: VolumeId): Promise<void> {
    this.devices.delete(volume);
    return Promise.resolve();
  }

  list(): Promise<BlockDevice[]> {
    return Promise.resolve([...this.devices.values()]);
  }
}

/** The attachments of one node, on records in a store: take-over, resume and release as their contract says. */
export class RecordAttachments implements Attachments {
  readonly #live = new Map<VolumeId, { sizeBytes: number; state: AttachmentStatus['state'] }>();
  #unavailable = false;
  #sessions = 0;

  constructor(
    private readonly store: RecordStore,
    private readonly node = 'node-1',
  ) {}

  /** Peers or store don't answer (true), or answer again. */
  setUnavailable(unavailable: boolean): void {
    this.#unavailable = unavailable;
  }

  /** A newer epoch is known: the attachment is told to stop. */
  fence(volume: VolumeId): void {
    const live = this.#live.get(volume);
    if (live !== undefined) live.state = 'fenced';
  }

  async attach(volume: VolumeId, options: { resume: boolean; timeoutMs: number }): Promise<Attachment> {
    if (this.#unavailable) throw new HoldfastError('unavailable', 'the store does not answer');
    const live = this.#live.get(volume);
    if (live?.state === 'serving') return this.#attachment(volume, live.sizeBytes);
    const found = await this.store.get('volume', volumeKey(volume));
    if (found === undefined) throw new HoldfastError('not-found', `no volume ${volume}`);
    const writer = found.record.writer;
    if (options.resume && (writer?.node !== this.node || live !== undefined)) {
      throw new HoldfastError('fenced', `volume ${volume} is no longer this node's`);
    }
    if (writer !== null && writer.node !== this.node) {
      throw new HoldfastError('failed-precondition', `volume ${volume} is attached on ${writer.node}`);
    }
    const session = String(++this.#sessions).padStart(32, '0');
    const taken = { ...found.record, epoch: found.record.epoch + 1, writer: { node: this.node, session } };
    await this.store.update('volume', found.key, taken, found.version);
    this.#live.set(volume, { sizeBytes: taken.capacityBytes, state: 'serving' });
    return this.#attachment(volume, taken.capacityBytes);
  }

  revoke(volume: VolumeId): Promise<void> {
    return this.release(volume);
  }

  async release(volume: VolumeId): Promise<void> {
    this.#live.delete(volume);
    const found = await this.store.get('volume', volumeKey(volume));
    if (found?.record.writer?.node !== this.node) return;
    await this.store.update('volume', found.key, { ...found.record, writer: null }, found.version);
  }

  async grow(volume: VolumeId): Promise<number> {
    const live = this.#live.get(volume);
    const found = await this.store.get('volume', volumeKey(volume));
    if (live === undefined || found === undefined) throw new HoldfastError('failed-precondition', 'not attached');
    live.sizeBytes = found.record.capacityBytes;
    return live.sizeBytes;
  }

  refresh(): Promise<void> {
    return Promise.resolve();
  }

  dropReplica(volume: VolumeId): Promise<void> {
    return Promise.reject(new HoldfastError('not-found', `no writer of volume ${volume}`));
  }

  maintain(): Promise<void> {
    return Promise.resolve();
  }

  yieldUp(volume: VolumeId): Promise<boolean> {
    return Promise.resolve(!this.#live.has(volume));
  }

  status(volume: VolumeId): Promise<AttachmentStatus | undefined> {
    const live = this.#live.get(volume);
    if (live === undefined) return Promise.resolve(undefined);
    return Promise.resolve({
      state: live.state,
      epoch: 2,
      inSync: [this.node],
      regionsOpen: 0,
      regionsToReconcile: 0,
      resync: null,
      waitsFor: [],
    });
  }

  #attachment(volume: VolumeId, sizeBytes: number): Attachment {
    return { address: { socketPath: `/run/${volume}`, exportName: volume }, sizeBytes };
  }
}
