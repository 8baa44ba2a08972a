import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { type Counter, type Meters, NO_METERS } from '../base/meters.js';
import { Mutex } from '../base/mutex.js';
import type { Io, Slab } from '../io/io.js';
import type { DiskId, VolumeId } from '../model/ids.js';
import type { Layout } from '../model/layout.js';
import type { Export, ExportClient, Exports } from '../nbd/stage.js';
import { CONFIRM_EXPORT, type Confirmation, confirmExport, type Question } from './confirm.js';
import { PeerRequests } from '../nbd/request-meter.js';
import { answerControl } from './control.js';
import { DiskMeter } from './disk-meter.js';
import { judgeAdmission } from './fence.js';
import { LossNote } from './loss-note.js';
import { Replica } from './replica.js';
import { DELETED_PREFIX } from '../pool/trash-names.js';
import type { RemovalReason, ReplicaSummary } from './replicas.js';
import { RowCache } from './row-cache.js';
import { Scrub, type ScrubTiming } from './scrub.js';
import { ServedSession } from './served-session.js';
import { type Admission, parseExportName, sessionExportName } from './session.js';

interface Disk {
  readonly diskId: DiskId;
  readonly directory: string;
  readonly incarnation: string;
}

interface Hosted {
  readonly disk: Disk;
  /** Replaced when it is opened anew after a failed flush. */
  replica: Replica;
  /** Admissions and the removal come one after the other. */
  readonly turn: Mutex;
  session: ServedSession | undefined;
  /** A flush failed, and that it did is not known to be on disk yet. */
  lostWrites: boolean;
  admitting: boolean;
  /** When a writer last asked for a confirmation (R9). */
  askedAt: number;
}

/** A writer that has asked so recently is at work: it asks several times a second. */
const HEARD_MS = 5_000;

/** What is known of a replica that can't be opened now. */
const NOT_OPEN = {
  capacityBytes: 0,
  epoch: 0,
  crashMark: false,
  openRegions: 0,
  damagedBlocks: 0,
  writerHeard: false,
} as const;

const NO_SCRUB: ScrubTiming = { scrubEveryMs: 0, scrubBytesPerSecond: 1 };

/** R5: ends every writer of the volume on this node that is older than `admission`; resolves when it has stopped. */
export type StopOlderWriter = (volume: VolumeId, admission: Admission) => Promise<void>;

export interface ReplicaHostOptions {
  readonly io: Io;
  readonly log: Log;
  readonly layout: Layout;
  /** For notes of failed flushes; not on a disk of the pool. Absent: none are made. */
  readonly notesDirectory?: string;
  /** Memory for requests of peers, apart from that of clients: peers' requests wait for disks only. */
  readonly slab: Slab;
  /** The volumes that belong to this thread. */
  readonly mine: (volume: VolumeId) => boolean;
  readonly stopOlderWriter: StopOlderWriter;
  readonly meters?: Meters;
  /** So many resyncs may copy to replicas here at once; absent: any number. */
  readonly resyncsAtOnce?: number;
  /** Absent: nothing is scrubbed. */
  readonly scrub?: ScrubTiming;
  /** Rows of checksums in memory; `off`: nothing is checked, for measuring only. */
  readonly checksumRows?: number | 'off';
}

/** A replica that could not be opened. */
interface Unopened {
  readonly volume: VolumeId;
  readonly disk: Disk;
  readonly turn: Mutex;
  /** Its files are there and can't be used, now or ever. */
  readonly corrupt: boolean;
}

/** A replica's place on this node. */
type Place = `${VolumeId} ${DiskId}`;

function placeOf(volume: VolumeId, { diskId }: Pick<Disk, 'diskId'>): Place {
  return `${volume} ${diskId}`;
}

/**
 * The replicas of one data thread, and the sessions that may use them. A volume has one replica on a node; on another
 * disk there may be an older one, that its record names no more.
 */
export class ReplicaHost {
  readonly #disks = new Map<DiskId, Disk>();
  readonly #hosted = new Map<Place, Hosted>();
  readonly #creations = new Mutex();
  /** Tried again when they are asked for. */
  readonly #unopened = new Map<Place, Unopened>();
  #stopping = false;

  private readonly io: Io;
  private readonly log: Log;
  private readonly layout: Layout;
  private readonly notesDirectory: string | undefined;
  private readonly slab: Slab;
  private readonly mine: (volume: VolumeId) => boolean;
  private readonly stopOlderWriter: StopOlderWriter;
  private readonly meters: Meters;
  private readonly resyncsAtOnce: number;
  readonly #diskMeter: DiskMeter;
  readonly #peerRequests: PeerRequests;
  readonly #admitted: Counter;
  readonly #fenced: Counter;
  readonly #rows: RowCache | 'off';
  readonly #scrub: Scrub;

  constructor(options: ReplicaHostOptions) {
    ({
      io: this.io,
      log: this.log,
      layout: this.layout,
      slab: this.slab,
      mine: this.mine,
      stopOlderWriter: this.stopOlderWriter,
      meters: this.meters = NO_METERS,
      resyncsAtOnce: this.resyncsAtOnce = Infinity,
    } = options);
    this.notesDirectory = options.notesDirectory;
    this.#diskMeter = new DiskMeter(this.meters, this.io.clock);
    this.#peerRequests = new PeerRequests(this.meters);
    this.#admitted = this.meters.counter('holdfast_replica_sessions_admitted_total');
    this.#fenced = this.meters.counter('holdfast_replica_sessions_fenced_total');
    const { io, log, layout, slab, checksumRows, scrub = NO_SCRUB } = options;
    this.#rows = checksumRows === 'off' ? 'off' : new RowCache(io, layout, checksumRows);
    this.#scrub = new Scrub(io, log, scrub, slab, () => [...this.#hosted.values()].map(({ replica }) => replica));
    void this.#scrub.run();
  }

  /** Opens every replica on a mounted disk. One that can't be read is tried again when it is asked for. */
  async openDisk(disk: Disk): Promise<void> {
    // A repeat: another data thread could not open it.
    if (this.#disks.has(disk.diskId)) return;
    const directory = replicasOf(disk);
    await this.io.files.makeDirectory(directory);
    for (const name of await this.io.files.list(directory)) {
      if (!this.mine(name.replace(/\.new$/, ''))) continue;
      if (name.endsWith('.new')) {
        await this.io.files.remove(`${directory}/${name}`);
        continue;
      }
      try {
        await this.#host(disk, name);
      } catch (error) {
        this.log.error({ volume: name, disk: disk.diskId, err: error }, 'replica can not be opened now');
        this.#leaveUnopened(name, disk, error);
      }
    }
    this.#disks.set(disk.diskId, disk);
  }

  create(volume: VolumeId, diskId: DiskId, capacityBytes: number): Promise<void> {
    return this.#creations.run(async () => {
      const disk = this.#diskOf(diskId);
      await this.#openAll(volume);
      const [hosted] = this.#of(volume);
      if (this.#hosted.has(placeOf(volume, disk))) return;
      if (hosted) {
        throw new HoldfastError(
          'already-exists',
          `volume ${volume} has its replica on disk ${hosted.disk.diskId} here`,
        );
      }
      const { incarnation } = disk;
      try {
        await Replica.create(this.io, this.layout, directoryOf(disk, volume), { volume, capacityBytes, incarnation });
        await this.#host(disk, volume);
      } catch (error) {
        await this.#noteUnopened(disk, volume, error);
        throw error;
      }
    });
  }

  /** One that was made, but not opened, must be found again, to be used or to be removed. */
  async #noteUnopened(disk: Disk, volume: VolumeId, error: unknown): Promise<void> {
    const names = await this.io.files.list(replicasOf(disk)).catch(() => [volume]);
    if (names.includes(volume)) this.#leaveUnopened(volume, disk, error);
  }

  #leaveUnopened(volume: VolumeId, disk: Disk, error: unknown): void {
    const corrupt = codeOf(error) === 'corrupt';
    this.#unopened.set(placeOf(volume, disk), { volume, disk, turn: new Mutex(), corrupt });
  }

  /** `disk`: only what is there; else whatever there is of the volume. */
  async remove(volume: VolumeId, reason: RemovalReason, disk?: DiskId): Promise<void> {
    const isMeant = (one: { disk: Disk }): boolean => disk === undefined || one.disk.diskId === disk;
    for (const unopened of [...this.#unopened.values()]) {
      if (unopened.volume === volume && isMeant(unopened)) await this.#removeUnopened(unopened, reason);
    }
    for (const hosted of this.#of(volume)) if (isMeant(hosted)) await this.#removeHosted(volume, hosted, reason);
  }

  async #removeHosted(volume: VolumeId, hosted: Hosted, reason: RemovalReason): Promise<void> {
    const { disk, turn } = hosted;
    const place = placeOf(volume, disk);
    await turn.run(async () => {
      if (this.#hosted.get(place) !== hosted) return;
      this.#hosted.delete(place);
      // Until it lies in the trash it is one that is not open: a failure leaves it to be found again.
      this.#unopened.set(place, { volume, disk, turn, corrupt: false });
      await endSession(hosted, new HoldfastError('not-found', `the replica of ${volume} is being removed`));
      await hosted.replica.close();
      await this.#discard(disk, volume, reason);
    });
  }

  /** One that was opened meanwhile is removed with those that are open. */
  #removeUnopened({ volume, disk, turn }: Unopened, reason: RemovalReason): Promise<void> {
    return turn.run(async () => {
      if (this.#unopened.has(placeOf(volume, disk))) await this.#discard(disk, volume, reason);
    });
  }

  async #discard(disk: Disk, volume: VolumeId, reason: RemovalReason): Promise<void> {
    const trash = `${disk.directory}/trash`;
    const prefix = reason === 'deleted' ? DELETED_PREFIX : '';
    const nameInTrash = `${prefix}${volume}.${this.io.random.hex(4)}`;
    await this.io.files.makeDirectory(trash);
    await this.io.files.rename(directoryOf(disk, volume), `${trash}/${nameInTrash}`);
    this.#unopened.delete(placeOf(volume, disk));
    await this.io.files.syncDirectory(trash);
    await this.io.files.syncDirectory(replicasOf(disk));
  }

  /** What is here. Those that could not be opened are tried again; one that never can be is not told of. */
  list(): ReplicaSummary[] {
    for (const unopened of this.#unopened.values()) void this.#openLate(unopened).catch(() => undefined);
    const open = [...this.#hosted.values()].map(({ disk, replica, askedAt }) => ({
      volume: replica.volume,
      disk: disk.diskId,
      capacityBytes: replica.sizeBytes,
      epoch: replica.state.epoch,
      crashMark: replica.state.crashMark,
      openRegions: replica.openRegions,
      damagedBlocks: replica.damage.count,
      writerHeard: this.io.clock.now() - askedAt <= HEARD_MS,
    }));
    const unopened = [...this.#unopened.values()].filter(({ corrupt }) => !corrupt);
    return [...open, ...unopened.map(({ volume, disk }) => ({ ...NOT_OPEN, volume, disk: disk.diskId }))];
  }

  /**
   * R5, the replica's part: makes the epoch durable, ends the session before and an older writer on this node, waits
   * until all of the older session's requests are carried out or thrown away, and only then opens the new session.
   */
  async admit(volume: VolumeId, admission: Admission): Promise<ServedSession> {
    try {
      const session = await this.#admit(volume, admission);
      this.#admitted.add();
      return session;
    } catch (error) {
      this.#refused(volume, admission, error);
      throw error;
    }
  }

  async #admit(volume: VolumeId, admission: Admission): Promise<ServedSession> {
    const hosted = await this.#on(volume, admission.disk);
    // One that waits for a drain may wait long: a hung disk must not gather connections.
    if (hosted.admitting) {
      throw new HoldfastError('unavailable', `another session of ${volume} is being admitted`);
    }
    hosted.admitting = true;
    return hosted.turn
      .run(() => this.#admitInTurn(volume, hosted, admission))
      .finally(() => {
        hosted.admitting = false;
      });
  }

  #fencedOff(volume: VolumeId, session: string, { epoch, session: by }: Admission): void {
    this.#fenced.add();
    this.log.warn({ volume, session, epoch, by }, 'session was fenced off');
  }

  /** Tells of a refusal: once a fenced writer is back, this line shows that it got nowhere. */
  #refused(volume: VolumeId, { epoch, session }: Admission, error: unknown): void {
    const reason = codeOf(error);
    this.meters.counter('holdfast_replica_sessions_refused_total', { reason }).add();
    if (reason === 'fenced')
      this.log.warn({ volume, epoch, session, reason: messageOf(error) }, 'fenced writer refused');
  }

  async #admitInTurn(volume: VolumeId, hosted: Hosted, admission: Admission): Promise<ServedSession> {
    if (this.#hosted.get(placeOf(volume, hosted.disk)) !== hosted) throw notHere(volume);
    hosted.lostWrites ||= hosted.replica.lostWrites;
    if (hosted.lostWrites) await this.#reopen(hosted);
    const { epoch: epochBefore, session: sessionBefore } = hosted.replica.state;
    const verdict = judgeAdmission({ epoch: epochBefore, session: sessionBefore }, admission);
    if (!verdict.admitted) throw new HoldfastError('fenced', verdict.reason);
    if (admission.epoch > epochBefore) await hosted.replica.rememberEpoch(admission.epoch, admission.session);
    const before = hosted.session;
    const servedBefore = before?.id === sessionBefore && before.served;
    // A writer that connects again does not fence itself.
    const code = before?.id === admission.session ? 'unavailable' : 'fenced';
    if (before && !before.ended && code === 'fenced') this.#fencedOff(volume, before.id, admission);
    await endSession(hosted, new HoldfastError(code, `a session of epoch ${admission.epoch} was admitted`));
    await this.stopOlderWriter(volume, admission);
    const { capacityBytes, regionBytes, crashMark } = hosted.replica.state;
    const told = { capacityBytes, regionBytes, epochBefore, crashMark, sessionBefore, servedBefore };
    const mayResync = (): boolean => this.#resyncs < this.resyncsAtOnce;
    hosted.session = new ServedSession(hosted.replica, admission.session, told, this.slab, mayResync);
    hosted.session.served = servedBefore && sessionBefore === admission.session;
    return hosted.session;
  }

  /** R9: does the replica know no epoch newer than the writer's? */
  confirm({ volume, epoch, session }: Question): Confirmation {
    const here = this.#of(volume);
    const hosted = here.find((one) => one.session?.id === session) ?? here[0];
    if (hosted === undefined || here.some(({ replica }) => replica.state.epoch > epoch)) return 'denied';
    hosted.askedAt = this.io.clock.now();
    if (this.#stopping) return 'stopping';
    return hosted.session?.id === session && !hosted.session.ended ? 'confirmed' : 'no-session';
  }

  get #resyncs(): number {
    return [...this.#hosted.values()].filter(({ session }) => session?.resyncing === true).length;
  }

  /** A writer elsewhere has a session here. */
  get servesPeers(): boolean {
    return [...this.#hosted.values()].some(({ session }) => session?.remote === true && !session.ended);
  }

  /** R4: writers elsewhere are told, as they ask, that they need not wait for the replicas here. */
  announceStop(): void {
    this.#stopping = true;
  }

  /** What peers see: every replica by its volume id, for reading; sessions by their names. */
  exports(): Exports {
    return {
      list: () => [...new Set([...this.#hosted.values()].map(({ replica }) => replica.volume))],
      describe: async (name) => {
        if (name === CONFIRM_EXPORT) return { sizeBytes: 0, readOnly: true };
        const { replica, admission } = await this.#find(name);
        return { sizeBytes: replica.sizeBytes, readOnly: admission === undefined };
      },
      open: async (name, client) => {
        if (name === CONFIRM_EXPORT) return confirmExport((question) => this.confirm(question));
        const { replica, admission } = await this.#find(name);
        if (admission === undefined) return { stage: replica, readOnly: true };
        return this.#serve(replica.volume, admission, client);
      },
    };
  }

  /** Orderly stop: ends all sessions and notes that everything is flushed. */
  async close(): Promise<void> {
    this.#scrub.stop();
    for (const [place, hosted] of this.#hosted) {
      await hosted.turn.run(async () => {
        this.#hosted.delete(place);
        await endSession(hosted, new HoldfastError('unavailable', 'the node is stopping'));
        await hosted.replica.close();
      });
    }
  }

  async #serve(volume: VolumeId, admission: Admission, client: ExportClient): Promise<Export> {
    const session = await this.admit(volume, admission);
    session.remote = true;
    void session.lost.then(() => client.close());
    return {
      stage: session,
      readOnly: false,
      meter: this.#peerRequests,
      control: (payload) => answerControl(session, payload),
      closed: () => session.end(new HoldfastError('unavailable', 'the connection was closed')),
    };
  }

  async #host(disk: Disk, volume: VolumeId): Promise<void> {
    const replica = await this.#open(disk, volume);
    if (replica.volume !== volume) {
      throw new HoldfastError('corrupt', `the header in ${directoryOf(disk, volume)} names volume ${replica.volume}`);
    }
    this.#hosted.set(placeOf(volume, disk), {
      disk,
      replica,
      turn: new Mutex(),
      session: undefined,
      lostWrites: false,
      admitting: false,
      askedAt: -Infinity,
    });
  }

  #open(disk: Disk, volume: VolumeId): Promise<Replica> {
    const { io, log, layout, notesDirectory } = this;
    const name = `${volume}.${disk.diskId}`;
    const note = notesDirectory === undefined ? undefined : new LossNote(io.files, notesDirectory, name);
    const parts = { meter: this.#diskMeter, disk: disk.diskId, rows: this.#rows, note };
    return Replica.open(io, log, layout, directoryOf(disk, volume), disk.incarnation, parts);
  }

  /** R10: what is cached of a replica whose flush failed can't be trusted; it is opened anew, and used only once marked. */
  async #reopen(hosted: Hosted): Promise<void> {
    const { disk, replica } = hosted;
    await endSession(hosted, new HoldfastError('unavailable', `the replica of ${replica.volume} is opened anew`));
    await replica.abandon();
    hosted.replica = await this.#open(disk, replica.volume);
    await hosted.replica.markCrashed();
    hosted.lostWrites = false;
  }

  /** A disk that failed when the replica was to be opened may work now. */
  #openLate(unopened: Unopened): Promise<void> {
    const { volume, disk, turn } = unopened;
    const place = placeOf(volume, disk);
    return turn.run(async () => {
      if (this.#unopened.get(place) !== unopened) return;
      try {
        await this.#host(disk, volume);
      } catch (error) {
        if (codeOf(error) === 'not-found') this.#unopened.delete(place);
        throw error;
      }
      this.#unopened.delete(place);
      this.log.info({ volume, disk: disk.diskId }, 'replica is open after all');
    });
  }

  async #openAll(volume: VolumeId): Promise<void> {
    for (const unopened of [...this.#unopened.values()]) {
      if (unopened.volume === volume) await this.#openLate(unopened);
    }
  }

  async #find(name: string): Promise<{ replica: Replica; admission: Admission | undefined }> {
    const parsed = parseExportName(name);
    if (!parsed) {
      const form = `VOLUME-ID, or ${sessionExportName('VOLUME-ID', { epoch: 1, session: 'SESSION', disk: 'DISK' })}`;
      throw new HoldfastError('not-found', `no export ${JSON.stringify(name)}; a replica's name is ${form}`);
    }
    const { volume, admission } = parsed;
    const { replica } = await (admission ? this.#on(volume, admission.disk) : this.#newest(volume));
    return { replica, admission };
  }

  /** The replicas of the volume that are open. */
  #of(volume: VolumeId): Hosted[] {
    return [...this.#disks.values()].flatMap((disk) => this.#hosted.get(placeOf(volume, disk)) ?? []);
  }

  /** `unavailable` where it is not open, or not yet: what it holds is not known. */
  #diskOf(diskId: DiskId): Disk {
    const disk = this.#disks.get(diskId);
    if (!disk) throw new HoldfastError('unavailable', `disk ${diskId} is not open on this node`);
    return disk;
  }

  async #on(volume: VolumeId, diskId: DiskId): Promise<Hosted> {
    const place = placeOf(volume, this.#diskOf(diskId));
    const unopened = this.#unopened.get(place);
    if (unopened) await this.#openLate(unopened);
    const hosted = this.#hosted.get(place);
    if (!hosted) throw notHere(volume, diskId);
    return hosted;
  }

  async #newest(volume: VolumeId): Promise<Hosted> {
    await this.#openAll(volume);
    const newest = this.#of(volume).sort((one, other) => other.replica.state.epoch - one.replica.state.epoch)[0];
    if (!newest) throw notHere(volume);
    return newest;
  }
}

async function endSession(hosted: Hosted, reason: HoldfastError): Promise<void> {
  const { session } = hosted;
  if (!session) return;
  session.end(reason);
  await session.drained;
  hosted.session = undefined;
}

function notHere(volume: VolumeId, diskId?: DiskId): HoldfastError {
  const where = diskId === undefined ? 'on this node' : `on disk ${diskId} of this node`;
  return new HoldfastError('not-found', `no replica of volume ${volume} ${where}`);
}

function replicasOf(disk: Disk): string {
  return `${disk.directory}/replicas`;
}

function directoryOf(disk: Disk, volume: VolumeId): string {
  return `${replicasOf(disk)}/${volume}`;
}
