import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock } from '../io/io.js';
import type { NodeName, SessionId, VolumeId } from '../model/ids.js';
import type { Leaver } from './leave-record.js';
import { judgeMaintenance, progressOf } from './maintenance-rule.js';
import type { Claim } from './take-over.js';
import type { Timing } from './timing.js';
import type { Writer } from './writer.js';

const LOOK_MS = 500;
const RETRY_MS = 1_000;
/** How long an orderly release may take before the writer just ends. */
const RELEASE_MS = 10_000;
/** The same where another node waits for the volume. */
const YIELD_MS = 700;

const GIVEN_UP = new HoldfastError('fenced', 'the volume is given up');

/** The data path, as maintenance sees it. */
export interface MaintenanceHost {
  readonly clock: Clock;
  readonly log: Log;
  readonly timing: Timing;
  /** Runs when no other change of the volume's attachment is under way here. */
  inTurn<T>(volume: VolumeId, section: () => Promise<T>): Promise<T>;
  writerOf(volume: VolumeId): Writer | undefined;
  /** In turn: takes the volume over without a device. */
  become(volume: VolumeId, expired: SessionId | undefined, claimed: (claim: Claim) => void): Promise<Writer>;
  /** In turn: forgets the writer, which has ended. */
  forget(volume: VolumeId): void;
  /** See leaveRecord. */
  leave(volume: VolumeId, leaver: Leaver): Promise<void>;
  /** The session of a writer elsewhere whose lease has expired, after watching it; undefined: nobody is in the way. */
  outwaitHolder(volume: VolumeId): Promise<SessionId | undefined>;
}

/**
 * A writer without a device: it takes the volume over, lets the rules run that bring replicas into line (reconcile,
 * resync, close), and releases the volume in order.
 *
 *     waiting ─▶ taking over ─▶ working ─▶ leaving ─▶ over
 *                                  └─ adopted: an attachment on this node goes on with the writer
 *
 * Whoever wants to attach the volume comes first: at every stage it gives way within about a second. It serves no reads
 * to anybody, so the next writer need not wait for it to fall silent (R9).
 */
export class Maintenance {
  #stage: 'waiting' | 'taking-over' | 'working' | 'leaving' | 'adopted' | 'over' = 'waiting';
  #claim: Claim | undefined;
  #stopped = false;

  constructor(
    private readonly host: MaintenanceHost,
    private readonly volume: VolumeId,
    /** In-sync replicas that are to leave when all else is done. */
    private drop: readonly NodeName[],
  ) {}

  get isAdopted(): boolean {
    return this.#stage === 'adopted';
  }

  /** Runs to its end. Never rejects. */
  async run(): Promise<void> {
    const { host, volume } = this;
    try {
      const expired = await host.outwaitHolder(volume);
      const writer = await host.inTurn(volume, () => this.#begin(expired));
      if (writer === undefined) return;
      await this.#work(writer).catch((error: unknown) => this.#tell(error));
      await this.#leave(writer, RELEASE_MS);
    } catch (error) {
      this.#tell(error);
      if (this.#stage === 'taking-over') await this.#leaveClaim();
    } finally {
      if (!this.isAdopted) this.#stage = 'over';
    }
  }

  /**
   * In turn, by an attachment on this node: it goes on with the writer. `unavailable`: the store did not answer in time;
   * maintenance goes on, and leaves the volume when it ends.
   */
  async adopt(writer: Writer, timeoutMs: number): Promise<void> {
    if (this.#stage !== 'working') return;
    await writer.adopt(timeoutMs);
    this.#stage = 'adopted';
  }

  /** Gives the volume up. False: an attachment has the writer now. */
  async yieldUp(boundMs = YIELD_MS): Promise<boolean> {
    const { host, volume } = this;
    this.#stopped = true;
    if (this.#stage === 'taking-over' && this.#claim) {
      // It has served no read, so all is as quiet as it was; what it does still, meets fenced replicas.
      await host.leave(volume, this.#claimLeaver);
    }
    const writer = host.writerOf(volume);
    if (this.#stage === 'working' && writer) await this.#leave(writer, boundMs);
    else if (this.#stage === 'leaving' && writer) await this.#hurry(writer, boundMs);
    return !this.isAdopted;
  }

  /** It is leaving already, but perhaps takes its time over it. */
  async #hurry(writer: Writer, boundMs: number): Promise<void> {
    await this.host.clock.sleep(boundMs);
    if (this.#stage === 'leaving') writer.fence(GIVEN_UP, 'revoke');
  }

  #tell(error: unknown): void {
    const level = codeOf(error) === 'internal' ? 'error' : 'info';
    this.host.log[level]({ volume: this.volume, reason: messageOf(error) }, 'maintenance ended early');
  }

  async #begin(expired: SessionId | undefined): Promise<Writer | undefined> {
    const { host, volume } = this;
    const serving = host.writerOf(volume);
    if (this.#stopped || (serving && !serving.ended)) return undefined;
    this.#stage = 'taking-over';
    const writer = await host.become(volume, expired, (claim) => {
      this.#claim = claim;
      if (this.#stopped) throw new HoldfastError('cancelled', 'another node wants the volume');
    });
    this.#stage = 'working';
    host.log.info({ volume, epoch: writer.epoch }, 'writer without a device brings the replicas into line');
    return writer;
  }

  /** Until it is done, gets no further, or has to give way. */
  async #work(writer: Writer): Promise<void> {
    const { clock, timing, log } = this.host;
    const began = clock.now();
    let seen = '';
    let movedAt = began;
    while (!this.#stopped && !this.isAdopted && !writer.ended) {
      const { status, record } = writer.sight();
      const progress = progressOf(status);
      if (progress !== seen) movedAt = clock.now();
      seen = progress;
      const passed = { idleMs: clock.now() - movedAt, totalMs: clock.now() - began };
      const verdict = judgeMaintenance({ status, record, drop: this.drop, ...passed }, timing);
      if (verdict === 'leave') return writer.mend();
      if (verdict === 'drop') await this.#retire(writer);
      else await clock.sleep(LOOK_MS);
    }
    if (writer.ended && !this.#stopped) log.info({ volume: this.volume }, 'writer without a device has ended');
  }

  async #retire(writer: Writer): Promise<void> {
    const [node, ...rest] = this.drop;
    this.drop = rest;
    if (node === undefined) return;
    try {
      await writer.retire(node, 'it is no longer wanted');
    } catch (error) {
      this.host.log.info({ volume: this.volume, node, reason: messageOf(error) }, 'replica can not leave');
    }
  }

  /** In order if that is done in time; else it just ends. Tries until the record no longer names it. */
  #leave(writer: Writer, boundMs: number): Promise<void> {
    return this.#untilDone(() => this.#leaveInTurn(writer, boundMs));
  }

  /** After a take-over that failed, perhaps without a word whether the record names this node. */
  #leaveClaim(): Promise<void> {
    return this.#untilDone(() => this.host.leave(this.volume, this.#claimLeaver));
  }

  get #claimLeaver(): Leaver {
    if (this.#claim === undefined) return { kind: 'no-device' };
    return { kind: 'session', session: this.#claim.session, quiet: this.#claim.wasQuiet };
  }

  /** In turn, again and again: others wait for this node as long as the record names it. */
  async #untilDone(section: () => Promise<void>): Promise<void> {
    const { host, volume } = this;
    const fault = { told: false };
    for (;;) {
      try {
        await host.inTurn(volume, section);
        return;
      } catch (error) {
        const reason = messageOf(error);
        if (!fault.told) host.log.warn({ volume, reason }, 'writer without a device can not leave the record yet');
        fault.told = true;
        await host.clock.sleep(RETRY_MS);
      }
    }
  }

  async #leaveInTurn(writer: Writer, boundMs: number): Promise<void> {
    const { host, volume } = this;
    if (this.isAdopted || this.#stage === 'over') return;
    this.#stage = 'leaving';
    await writer.release(boundMs).catch((error: unknown) => {
      host.log.info({ volume, reason: messageOf(error) }, 'writer without a device ends with regions open');
      writer.fence(GIVEN_UP, 'revoke');
    });
    if (host.writerOf(volume) === writer) host.forget(volume);
    // Without a device it served no reads, and whoever served before was outwaited.
    const { session, maintenance: quiet } = writer;
    if (!writer.released) await host.leave(volume, { kind: 'session', session, quiet });
    this.#stage = 'over';
  }
}

/** The maintenance of one data path. */
export class Maintenances {
  readonly #running = new Map<VolumeId, Maintenance>();

  constructor(private readonly host: MaintenanceHost) {}

  /** A writer without a device is at work on the volume, or about to be. */
  of(volume: VolumeId): Maintenance | undefined {
    const found = this.#running.get(volume);
    return found?.isAdopted === true ? undefined : found;
  }

  /** Begins, unless it runs already. `resource-exhausted`: too many at once. */
  begin(volume: VolumeId, drop: readonly NodeName[]): void {
    if (this.#running.has(volume)) return;
    const { maintenancesAtOnce } = this.host.timing;
    if (this.#running.size >= maintenancesAtOnce) {
      throw new HoldfastError(
        'resource-exhausted',
        `as many volumes as may be at once (${maintenancesAtOnce}) are being brought into line here`,
      );
    }
    const maintenance = new Maintenance(this.host, volume, drop);
    this.#running.set(volume, maintenance);
    void maintenance.run().then(() => this.#running.delete(volume));
  }

  /** Orderly stop: all volumes are given up. */
  async stop(): Promise<void> {
    await Promise.all([...this.#running.values()].map((maintenance) => maintenance.yieldUp()));
  }
}
