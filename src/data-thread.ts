import { parentPort, workerData } from 'node:worker_threads';
import { present } from './base/assert.js';
import { createLog } from './base/log.js';
import { PortRpc } from './base/port-rpc.js';
import { DataPath } from './data-path.js';
import type { Address } from './io/io.js';
import { createNodeIo } from './io/node-io.js';
import { callsOfThread } from './io/thread-pool.js';
import { MeterBook, type Snapshot } from './metrics/meter-book.js';
import { rowsOf } from './metrics/table.js';
import type { DiskId, NodeName, VolumeId } from './model/ids.js';
import { LAYOUT } from './model/layout.js';
import type { Versioned, VolumeRecord } from './model/records.js';
import { threadOf } from './model/threads.js';
import type { RemovalReason, ReplicaSummary } from './replica/replicas.js';
import type { Attachment, AttachmentStatus } from './writer/attachments.js';
import { DEFAULT_TIMING } from './writer/timing.js';

/**
 * A data thread: a worker with the data path of its volumes, told what to do by the main thread over a message port. It
 * never waits for gRPC: what it wants of the store or of a lease it asks the main thread for, beside the I/O.
 */
export interface DataThreadConfig {
  readonly nodeName: NodeName;
  readonly index: number;
  readonly threads: number;
  readonly host: string;
  /** For peers; 0: any. */
  readonly port: number;
  /** Unix socket for block devices and other local clients of writers. */
  readonly socketPath: string;
  /** For notes of failed flushes; not on a disk of the pool. */
  readonly notesDirectory: string;
  readonly slabBytes: number;
  readonly logLevel: string;
}

/** What the main thread calls: the methods of DataPath. */
export type ThreadMethods = {
  listen(): Promise<number>;
  openDisk(diskId: DiskId, directory: string, incarnation: string): Promise<ReplicaSummary[]>;
  createReplica(volume: VolumeId, disk: DiskId, capacityBytes: number): Promise<void>;
  removeReplica(volume: VolumeId, reason: RemovalReason, disk?: DiskId): Promise<void>;
  listReplicas(): Promise<ReplicaSummary[]>;
  attach(volume: VolumeId, resume: boolean, timeoutMs: number): Promise<Attachment>;
  release(volume: VolumeId, timeoutMs: number): Promise<void>;
  revoke(volume: VolumeId, timeoutMs: number): Promise<void>;
  grow(volume: VolumeId): Promise<number>;
  status(volume: VolumeId): Promise<AttachmentStatus | undefined>;
  refresh(volume: VolumeId): Promise<void>;
  dropReplica(volume: VolumeId, node: NodeName, why: string): Promise<void>;
  maintain(volume: VolumeId, drop: readonly NodeName[]): Promise<void>;
  yieldUp(volume: VolumeId): Promise<boolean>;
  /** What the thread has counted. */
  figures(): Promise<Snapshot>;
  stop(): Promise<void>;
};

/** What the main thread answers. */
export type MainMethods = {
  getVolume(volume: VolumeId): Promise<Versioned<VolumeRecord> | undefined>;
  updateVolume(record: VolumeRecord, version: string): Promise<Versioned<VolumeRecord>>;
  leaseExpired(node: NodeName, timeoutMs: number): Promise<boolean>;
  askToYield(node: NodeName, volume: VolumeId): Promise<void>;
  /** The address of data thread `index` of a node. */
  dataAddress(node: NodeName, index: number): Promise<Address>;
};

const COPY_SLAB_BYTES = 8 * 1024 * 1024;

function runDataThread(config: DataThreadConfig): void {
  const book = new MeterBook(rowsOf('node'));
  const io = createNodeIo({ fileCalls: callsOfThread(config.threads) });
  const path = new DataPath({
    ...config,
    meters: book,
    io,
    log: createLog('holdfast-data', config.logLevel),
    timing: { ...DEFAULT_TIMING, resyncBytesPerSecond: DEFAULT_TIMING.resyncBytesPerSecond / config.threads },
    wallClock: () => new Date().toISOString(),
    layout: LAYOUT,
    copySlabBytes: COPY_SLAB_BYTES,
    mine: (volume) => threadOf(volume, config.threads) === config.index,
    node: {
      getVolume: (volume) => rpc.call('getVolume', volume),
      updateVolume: (record, version) => rpc.call('updateVolume', record, version),
      leaseExpired: (node, timeoutMs) => rpc.call('leaseExpired', node, timeoutMs),
      askToYield: (node, volume) => rpc.call('askToYield', node, volume),
      dataAddress: (node) => rpc.call('dataAddress', node, config.index),
    },
  });
  const methods: ThreadMethods = {
    listen: () => path.listen(),
    openDisk: (diskId, directory, incarnation) => {
      io.files.addDisk(directory);
      return path.openDisk(diskId, directory, incarnation);
    },
    createReplica: (volume, disk, capacityBytes) => path.createReplica(volume, disk, capacityBytes),
    removeReplica: (volume, reason, disk) => path.removeReplica(volume, reason, disk),
    listReplicas: () => Promise.resolve(path.listReplicas()),
    attach: (volume, resume, timeoutMs) => path.attach(volume, resume, timeoutMs),
    release: (volume, timeoutMs) => path.release(volume, timeoutMs),
    revoke: (volume, timeoutMs) => path.revoke(volume, timeoutMs),
    grow: (volume) => path.grow(volume),
    status: (volume) => Promise.resolve(path.status(volume)),
    refresh: (volume) => path.refresh(volume),
    dropReplica: (volume, node, why) => path.dropReplica(volume, node, why),
    maintain: (volume, drop) => {
      path.maintain(volume, drop);
      return Promise.resolve();
    },
    yieldUp: (volume) => path.yieldUp(volume),
    figures: () => Promise.resolve(book.snapshot()),
    stop: () => path.stop(),
  };
  const rpc = new PortRpc<MainMethods>(present(parentPort, 'a data thread has a parent'), methods);
}

runDataThread(workerData as DataThreadConfig);
