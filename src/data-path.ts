import { bounded } from './base/bounded.js';
import { HoldfastError } from './base/errors.js';
import type { Log } from './base/log.js';
import { type Meters, NO_METERS, type Tell } from './base/meters.js';
import { KeyedMutex } from './base/mutex.js';
import type { Address, Io, Slab } from './io/io.js';
import type { DiskId, NodeName, SessionId, VolumeId } from './model/ids.js';
import type { Layout } from './model/layout.js';
import type { Versioned, VolumeRecord } from './model/records.js';
import { type NbdServer, serveNbd } from './nbd/server.js';
import { CONFIRM_EXPORT, type Confirmation, type Question } from './replica/confirm.js';
import { ReplicaHost } from './replica/host.js';
import type { RemovalReason, ReplicaSummary } from './replica/replicas.js';
import type { Attachment, AttachmentStatus } from './writer/attachments.js';
import { Confirmations } from './writer/confirmations.js';
import { deviceExportName, WriterExports } from './writer/exports.js';
import { leaveRecord } from './writer/leave-record.js';
import { Maintenances } from './writer/maintenance.js';
import { Peers } from './writer/peers.js';
import { ResyncBounds } from './writer/resync-bounds.js';
import { takeOver, type TakeOverOptions } from './writer/take-over.js';
import type { Timing } from './writer/timing.js';
import { tellState } from './writer/writer-figures.js';
import type { WriterNode } from './writer/writer-node.js';
import { Writer } from './writer/writer.js';

/** What a data path asks of the node's main thread, beside the I/O. */
export interface DataPathNode {
  getVolume(volume: VolumeId): Promise<Versioned<VolumeRecord> | undefined>;
  updateVolume(record: VolumeRecord, version: string): Promise<Versioned<VolumeRecord>>;
  leaseExpired(node: NodeName, timeoutMs: number): Promise<boolean>;
  /** Asks another node, whose writer of the volume has no device, to give it up. */
  askToYield(node: NodeName, volume: VolumeId): Promise<void>;
  /** Where the data path of a peer listens that has the same volumes as this one; `unavailable` where it is not known. */
  dataAddress(node: NodeName): Promise<Address>;
}

export interface DataPathOptions {
  readonly io: Io;
  readonly log: Log;
  readonly timing: Timing;
  readonly layout: Layout;
  readonly nodeName: NodeName;
  /** For peers; port 0: any. */
  readonly host: string;
  readonly port: number;
  /** Unix socket for block devices and other local clients of writers. */
  readonly socketPath: string;
  /** For notes of failed flushes; not on a disk of the pool. */
  readonly notesDirectory: string;
  /** I/O memory for clients, and as much again for peers. */
  readonly slabBytes: number;
  /** Memory for reconcile and resync: some pieces at once over all volumes. */
  readonly copySlabBytes: number;
  /** The volumes that belong here. */
  mine(volume: VolumeId): boolean;
  readonly node: DataPathNode;
  /** ISO 8601; for people who read the decisions in records. */
  readonly wallClock: () => string;
  /** Absent: nothing is counted. */
  readonly meters?: Meters;
}

/**
 * The data path of some of a node's volumes: it serves their replicas to peers and runs the writers of those attached
 * here. One runs in each data thread (data-thread.ts), and one in each simulated node.
 */
export class DataPath {
  readonly #options: DataPathOptions;
  readonly #writers = new Map<VolumeId, Writer>();
  readonly #attaching = new Map<VolumeId, AttachmentStatus>();
  readonly #turns = new KeyedMutex<VolumeId>();
  /** Volumes whose record is to be left as soon as the store answers. */
  readonly #withdrawing = new Set<VolumeId>();
  #stopping = false;
  readonly #servers = new Map<'client' | 'peer', NbdServer>();
  readonly #meters: Meters;
  readonly #host: ReplicaHost;
  readonly #peers: Peers;
  readonly #confirmations: Confirmations;
  readonly #writerNode: WriterNode;
  readonly #maintenances: Maintenances;
  // Requests of peers wait for disks only, never for memory that waits for peers; nor do copies wait for clients.
  readonly #slabs: { readonly client: Slab; readonly peer: Slab; readonly copy: Slab };

  constructor(options: DataPathOptions) {
    const { io, log, timing, layout, nodeName, node } = options;
    this.#options = options;
    const meters = (this.#meters = options.meters ?? NO_METERS);
    meters.gauges((tell) => this.#tell(tell));
    const { slabBytes, copySlabBytes } = options;
    this.#slabs = { client: io.slab(slabBytes), peer: io.slab(slabBytes), copy: io.slab(copySlabBytes) };
    this.#host = new ReplicaHost({
      io,
      log,
      layout,
      notesDirectory: options.notesDirectory,
      meters,
      slab: this.#slabs.peer,
      resyncsAtOnce: timing.resyncsAtOnce,
      scrub: timing,
      mine: (volume) => options.mine(volume),
      stopOlderWriter: (volume, admission) => {
        const writer = this.#writers.get(volume);
        if (writer && writer.epoch < admission.epoch && writer.session !== admission.session) {
          writer.fence(new HoldfastError('fenced', `epoch ${admission.epoch} was admitted on this node`));
        }
        return Promise.resolve();
      },
    });
    this.#peers = new Peers(io, nodeName, this.#host, (name) => node.dataAddress(name), meters);
    const ask = (name: NodeName, questions: readonly Question[]): Promise<Confirmation[]> =>
      this.#peers.confirm(name, questions);
    this.#confirmations = new Confirmations(io.clock, timing.confirmEveryMs, ask, log);
    const { resyncsAtOnce, resyncBytesPerSecond } = timing;
    const busy = (): boolean => [...this.#writers.values()].some((writer) => writer.busy);
    this.#writerNode = {
      wallClock: options.wallClock,
      resyncBounds: new ResyncBounds(io.clock, resyncsAtOnce, resyncBytesPerSecond, busy),
      io,
      log,
      timing,
      layout,
      meters,
      name: nodeName,
      records: {
        get: (volume) => node.getVolume(volume),
        update: (record, version) => node.updateVolume(record, version),
      },
      leaseExpired: (name, timeoutMs) => node.leaseExpired(name, timeoutMs),
      askToYield: (name, volume) => node.askToYield(name, volume),
      connect: (name, volume, admission) => this.#peers.connect(name, volume, admission),
    };
    this.#maintenances = new Maintenances({
      clock: io.clock,
      log,
      timing,
      inTurn: (volume, section) => this.#turns.run(volume, section),
      writerOf: (volume) => this.#writers.get(volume),
      become: (volume, expired, claimed) =>
        this.#becomeWriter(volume, { resume: false, timeoutMs: MAINTAIN_MS, maintenance: { expired }, claimed }),
      forget: (volume) => this.#forget(volume),
      leave: (volume, leaver) => leaveRecord(this.#writerNode, volume, leaver),
      outwaitHolder: (volume) => this.#outwaitHolder(volume),
    });
  }

  /** Begins to listen, once the disks that work are open, so that few are asked for in vain. Resolves to the port for peers. */
  async listen(): Promise<number> {
    const { io, log, host, port, socketPath } = this.#options;
    const { client, peer } = this.#slabs;
    const exports = new WriterExports(this.#writers, log, this.#meters);
    const socket: Address = { kind: 'unix', path: socketPath };
    this.#servers.set('client', await serveNbd({ io, address: socket, exports, slab: client, log }));
    const address: Address = { kind: 'tcp', host, port };
    const replicas = { exports: this.#host.exports(), roomFor: CONFIRM_EXPORT };
    const server = await serveNbd({ io, address, slab: peer, log, ...replicas });
    this.#servers.set('peer', server);
    return server.address.kind === 'tcp' ? server.address.port : port;
  }

  /** Serves the replicas on a mounted disk; see Replicas.openDisk. */
  async openDisk(diskId: DiskId, directory: string, incarnation: string): Promise<ReplicaSummary[]> {
    await this.#host.openDisk({ diskId, directory, incarnation });
    return this.#host.list().filter((replica) => replica.disk === diskId);
  }

  createReplica(volume: VolumeId, disk: DiskId, capacityBytes: number): Promise<void> {
    return this.#host.create(volume, disk, capacityBytes);
  }

  removeReplica(volume: VolumeId, reason: RemovalReason, disk?: DiskId): Promise<void> {
    return this.#host.remove(volume, reason, disk);
  }

  listReplicas(): ReplicaSummary[] {
    return this.#host.list();
  }

  /** See Attachments.attach. */
  attach(volume: VolumeId, resume: boolean, timeoutMs: number): Promise<Attachment> {
    return this.#turns.run(volume, async () => {
      const serving = this.#writers.get(volume);
      // One that another node has taken over from, unnoticed, learns it from the record.
      await serving?.refresh();
      if (serving?.leaving) await serving.release(timeoutMs);
      if (serving && !serving.ended) {
        await this.#adopt(volume, serving, resume, timeoutMs);
        return this.#attachmentOf(volume, serving);
      }
      this.#writers.delete(volume);
      this.#attaching.set(volume, TAKING_OVER);
      try {
        return this.#attachmentOf(volume, await this.#becomeWriter(volume, { resume, timeoutMs }));
      } catch (error) {
        // An attachment that lived before may try again, as long as the record names its node.
        if (!resume) this.#withdrawUntilDone(volume);
        throw error;
      } finally {
        this.#attaching.delete(volume);
      }
    });
  }

  /** See Attachments.release. */
  release(volume: VolumeId, timeoutMs: number): Promise<void> {
    return this.#endWriter(volume, (writer) => writer.release(timeoutMs));
  }

  /** See Attachments.revoke. */
  revoke(volume: VolumeId, timeoutMs: number): Promise<void> {
    return this.#endWriter(volume, (writer) =>
      writer.release(timeoutMs).catch((error: unknown) => {
        this.#options.log.warn({ volume, err: error }, 'no orderly release; the attachment ends all the same');
        writer.fence(new HoldfastError('fenced', 'the attachment was ended'), 'revoke');
      }),
    );
  }

  /** See Attachments.grow. `not-found`: not attached here. */
  async grow(volume: VolumeId): Promise<number> {
    const writer = this.#writers.get(volume);
    if (!writer) throw new HoldfastError('not-found', `volume ${volume} is not attached to this node`);
    return writer.grow();
  }

  /** See Attachments.status. */
  status(volume: VolumeId): AttachmentStatus | undefined {
    return this.#writers.get(volume)?.status() ?? this.#attaching.get(volume);
  }

  /** See Attachments.refresh. */
  async refresh(volume: VolumeId): Promise<void> {
    await this.#writers.get(volume)?.reread(REREAD_MS);
  }

  /** See Attachments.dropReplica. */
  async dropReplica(volume: VolumeId, node: NodeName, why: string): Promise<void> {
    const writer = this.#writers.get(volume);
    if (!writer || writer.ended) throw new HoldfastError('not-found', `no writer of volume ${volume} on this node`);
    await writer.retire(node, why);
  }

  /** See Attachments.maintain. */
  maintain(volume: VolumeId, drop: readonly NodeName[]): void {
    const writer = this.#writers.get(volume);
    if ((writer && !writer.ended) || this.#attaching.has(volume)) return;
    this.#maintenances.begin(volume, drop);
  }

  /** See Attachments.yieldUp. */
  async yieldUp(volume: VolumeId): Promise<boolean> {
    const maintenance = this.#maintenances.of(volume);
    if (maintenance) return maintenance.yieldUp();
    return !this.#writers.has(volume) && !this.#attaching.has(volume);
  }

  /** Orderly stop: writers end (the record stays, but where there is no device), replicas are flushed and closed. */
  async stop(): Promise<void> {
    const { io, timing } = this.#options;
    this.#stopping = true;
    await bounded(io.clock, STOP_MAINTENANCE_MS, 'maintenance', this.#maintenances.stop()).catch(() => undefined);
    this.#host.announceStop();
    if (this.#host.servesPeers) await io.clock.sleep(2 * timing.confirmEveryMs);
    // The connections end first: a writer that stops must not answer the device's requests with its own end.
    const closing = [...this.#servers.values()].map((server) => server.close());
    for (const writer of this.#writers.values()) writer.stop();
    await Promise.all(closing);
    this.#peers.close();
    await this.#host.close();
  }

  async #becomeWriter(volume: VolumeId, options: TakeOverOptions): Promise<Writer> {
    const taken = await takeOver(this.#writerNode, volume, options);
    const writer = new Writer(this.#writerNode, this.#confirmations, this.#slabs.copy, taken);
    this.#writers.set(volume, writer);
    void writer.lost.then((reason) => this.#options.log.info({ volume, reason: reason.message }, 'writer has ended'));
    writer.start();
    // What was changed in the record during the take-over, and told to this node, met no writer here.
    void writer.reread(REREAD_MS).catch(() => undefined);
    return writer;
  }

  #endWriter(volume: VolumeId, end: (writer: Writer) => Promise<void>): Promise<void> {
    return this.#turns.run(volume, async () => {
      const writer = this.#writers.get(volume);
      if (writer) await end(writer);
      this.#forget(volume);
      // One that had failed, or was never here, may still stand in the record.
      if (writer?.released) return;
      try {
        await this.#withdraw(volume);
      } catch (error) {
        this.#withdrawUntilDone(volume);
        throw error;
      }
    });
  }

  /** Others wait for this node as long as the record names it: whatever the caller does, it is not left so. */
  #withdrawUntilDone(volume: VolumeId): void {
    if (this.#withdrawing.has(volume)) return;
    this.#withdrawing.add(volume);
    const { clock } = this.#options.io;
    const attempt = async (): Promise<boolean> => {
      if (!this.#writers.has(volume)) await this.#withdraw(volume);
      return true;
    };
    const run = async (): Promise<void> => {
      while (!this.#stopping && !(await this.#turns.run(volume, attempt).catch(() => false))) {
        await clock.sleep(WITHDRAW_RETRY_MS);
      }
      this.#withdrawing.delete(volume);
    };
    void run();
  }

  #forget(volume: VolumeId): void {
    this.#writers.delete(volume);
    this.#meters.forget({ volume });
  }

  /** An attachment goes on with a writer that had no device so far. */
  async #adopt(volume: VolumeId, writer: Writer, resume: boolean, timeoutMs: number): Promise<void> {
    const maintenance = this.#maintenances.of(volume);
    if (resume && writer.maintenance) {
      throw new HoldfastError('fenced', `${volume} had no writer meanwhile: the attachment has ended`);
    }
    await maintenance?.adopt(writer, timeoutMs);
  }

  /** See MaintenanceHost.outwaitHolder. */
  async #outwaitHolder(volume: VolumeId): Promise<SessionId | undefined> {
    const { records, name } = this.#writerNode;
    const holder = (await records.get(volume))?.record.writer ?? null;
    if (holder === null || holder.node === name) return undefined;
    if (await this.#writerNode.leaseExpired(holder.node, MAINTAIN_MS)) return holder.session;
    throw new HoldfastError('failed-precondition', `node ${holder.node} is the writer of ${volume}, and is alive`);
  }

  /** No writer runs here: the record does not name this node. */
  #withdraw(volume: VolumeId): Promise<void> {
    return leaveRecord(this.#writerNode, volume, { kind: 'any' });
  }

  #tell(tell: Tell): void {
    for (const writer of this.#writers.values()) writer.tell(tell);
    for (const [volume, { state }] of this.#attaching) {
      if (!this.#writers.has(volume)) tellState(tell, volume, state);
    }
    for (const { volume, disk, epoch, crashMark, openRegions, capacityBytes, damagedBlocks } of this.#host.list()) {
      tell('holdfast_replica_epoch', epoch, { volume, disk });
      tell('holdfast_replica_crash_mark', Number(crashMark), { volume, disk });
      tell('holdfast_replica_open_regions', openRegions, { volume, disk });
      tell('holdfast_replica_capacity_bytes', capacityBytes, { volume, disk });
      tell('holdfast_replica_damaged_blocks', damagedBlocks, { volume, disk });
    }
    for (const [side, server] of this.#servers) {
      tell('holdfast_nbd_connections', server.connectionCount, { side });
      tell('holdfast_nbd_requests_in_flight', server.requestsUnderWay, { side });
    }
    for (const [slab, { capacityBytes, usedBytes, waiting = 0, waits = 0 }] of Object.entries(this.#slabs)) {
      tell('holdfast_slab_bytes', capacityBytes, { slab });
      tell('holdfast_slab_used_bytes', usedBytes, { slab });
      tell('holdfast_slab_waiting', waiting, { slab });
      tell('holdfast_slab_waits_total', waits, { slab });
    }
  }

  #attachmentOf(volume: VolumeId, writer: Writer): Attachment {
    return {
      address: { socketPath: this.#options.socketPath, exportName: deviceExportName(volume) },
      sizeBytes: writer.sizeBytes,
    };
  }
}

const WITHDRAW_RETRY_MS = 1_000;
/** A take-over without a device waits for nobody, but replicas may take their time. */
const MAINTAIN_MS = 30_000;
const REREAD_MS = 2_500;
const STOP_MAINTENANCE_MS = 2_000;

const TAKING_OVER: AttachmentStatus = {
  state: 'taking-over',
  epoch: 0,
  inSync: [],
  regionsOpen: 0,
  regionsToReconcile: 0,
  resync: null,
  waitsFor: ['the take-over'],
};
