import { assert } from '../base/assert.js';
import { codeOf, HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { Mutex } from '../base/mutex.js';
import type { Clock } from '../io/io.js';
import type { NodeName, SessionId, VolumeId } from '../model/ids.js';
import type { Versioned, VolumeRecord } from '../model/records.js';
import { judgeRecord } from './rules.js';

/** The volume records as a data thread reaches them. Errors as of RecordStore. */
export interface VolumeRecords {
  get(volume: VolumeId): Promise<Versioned<VolumeRecord> | undefined>;
  update(record: VolumeRecord, version: string): Promise<Versioned<VolumeRecord>>;
}

/** Puts a decision into a changed record. */
export type NoteDecision = (record: VolumeRecord, what: string) => VolumeRecord;

const RETRY_MS = 500;

/**
 * The in-sync set in the volume's record, as its writer changes it (R4, R7).
 *
 * A CAS whose answer was lost is neither done nor failed: until the record shows which attempt came through, `possible`
 * holds the members of every set that the record may hold. One change is under way at a time.
 */
export class Membership {
  readonly #turn = new Mutex();
  /** Sets of attempts that may still come through, all from the known version. */
  #attempted: ReadonlySet<NodeName>[] = [];
  #ended = false;

  constructor(
    private readonly records: VolumeRecords,
    private readonly clock: Clock,
    private readonly log: Log,
    private readonly session: SessionId,
    private known: Versioned<VolumeRecord>,
    private readonly note: NoteDecision,
    /** Called when the known or possible set has changed. */
    private readonly changed: () => void,
  ) {}

  get record(): VolumeRecord {
    return this.known.record;
  }

  get versioned(): Versioned<VolumeRecord> {
    return this.known;
  }

  get epoch(): number {
    return this.known.record.epoch;
  }

  get inSync(): ReadonlySet<NodeName> {
    return inSyncOf(this.known.record);
  }

  /** Members of every set that the record may hold. */
  get possible(): ReadonlySet<NodeName> {
    if (this.#attempted.length === 0) return this.inSync;
    return new Set([...this.inSync, ...this.#attempted.flatMap((set) => [...set])]);
  }

  /** The writer has ended: a change under way gives up, with its outcome unknown. */
  end(): void {
    this.#ended = true;
  }

  /**
   * Brings the record to the set that `next` asks for, given the present one; undefined: it is as wanted. `why` tells of
   * the change, given the new set. Repeats until the store has answered. `fenced` where the record names another session.
   */
  changeSet(
    next: (inSync: ReadonlySet<NodeName>) => ReadonlySet<NodeName> | undefined,
    why: (wanted: ReadonlySet<NodeName>) => string,
  ): Promise<void> {
    return this.#turn.run(async () => {
      for (;;) {
        const wanted = next(this.inSync);
        if (wanted === undefined) return;
        assert(
          [...wanted].every((node) => this.record.replicas.some((replica) => replica.node === node)),
          'an in-sync set consists of replicas in the record',
        );
        await this.#attempt(wanted, (record) => this.note(record, why(wanted)));
      }
    });
  }

  /**
   * Takes a replica out of the set and out of the record, in one step. `check` refuses by throwing, given the present
   * set. One that is not in the record has left already.
   */
  retire(node: NodeName, check: (inSync: ReadonlySet<NodeName>) => void, why: string): Promise<void> {
    return this.#turn.run(async () => {
      while (this.record.replicas.some((replica) => replica.node === node)) {
        check(this.inSync);
        const wanted = new Set([...this.inSync].filter((other) => other !== node));
        await this.#attempt(wanted, (record) =>
          this.note({ ...record, replicas: record.replicas.filter((replica) => replica.node !== node) }, why),
        );
      }
    });
  }

  /** Raises the epoch only, so that every region closed before lies below it (R7), or to tell something. */
  raiseEpoch(what?: string): Promise<void> {
    return this.#turn.run(async () => {
      const before = this.epoch;
      while (this.epoch === before) {
        await this.#attempt(this.inSync, (record) => (what === undefined ? record : this.note(record, what)));
      }
    });
  }

  /** A maintenance writer becomes that of an attachment. */
  adopt(what: string): Promise<void> {
    return this.#turn.run(async () => {
      while (this.record.writer?.maintenance === true) {
        await this.#attempt(this.inSync, ({ writer, ...record }) =>
          this.note({ ...record, writer: writer && { node: writer.node, session: writer.session } }, what),
        );
      }
    });
  }

  /** R2, orderly release: takes the writer out. */
  release(): Promise<void> {
    return this.#turn.run(async () => {
      const inSync = this.inSync;
      while (this.record.writer !== null) {
        await this.#attempt(inSync, (record) =>
          this.note({ ...record, writer: null, quiet: true }, 'released the volume'),
        );
      }
    });
  }

  /** One look at the record, beside a change under way. `fenced` as above; `unavailable` where the store does not answer. */
  async look(): Promise<void> {
    const seen = await this.records.get(this.record.id);
    if (seen?.record.writer?.session !== this.session) throw this.#fenced(seen?.record);
  }

  /** Reads the record anew, for fields that others change. `fenced` as above. */
  refresh(): Promise<void> {
    return this.#turn.run(() => this.#settle(this.epoch));
  }

  /** One try from the known version; afterwards the known record is what the store holds. */
  async #attempt(wanted: ReadonlySet<NodeName>, also: (record: VolumeRecord) => VolumeRecord): Promise<void> {
    const { record, version } = this.known;
    const next = also({
      ...record,
      epoch: record.epoch + 1,
      replicas: record.replicas.map((replica) => ({ ...replica, inSync: wanted.has(replica.node) })),
    });
    this.#attempted.push(wanted);
    this.changed();
    try {
      this.#learn(await this.records.update(next, version));
    } catch (error) {
      if (codeOf(error) !== 'conflict' && codeOf(error) !== 'not-found') {
        this.log.warn({ volume: record.id, epoch: next.epoch, err: error }, 'no answer from the store; trying again');
        await this.clock.sleep(RETRY_MS);
      }
      await this.#settle(record.epoch, next.writer === null);
    }
  }

  /** Reads until the store answers, and takes in what it shows. */
  async #settle(epochBefore: number, releasing = false): Promise<void> {
    const seen = await this.#read();
    const released = releasing && seen?.record.writer === null && seen.record.epoch === epochBefore + 1;
    if (!released && judgeRecord(seen?.record, this.session, epochBefore) === 'fenced') {
      throw this.#fenced(seen?.record);
    }
    if (seen) this.#learn(seen);
  }

  async #read(): Promise<Versioned<VolumeRecord> | undefined> {
    for (;;) {
      if (this.#ended) throw new HoldfastError('cancelled', 'the writer has ended');
      try {
        return await this.records.get(this.record.id);
      } catch {
        await this.clock.sleep(RETRY_MS);
      }
    }
  }

  #fenced(seen: VolumeRecord | undefined): HoldfastError {
    const { id } = this.record;
    if (seen === undefined) return new HoldfastError('fenced', `there is no record of ${id} any more`);
    const { epoch, writer } = seen;
    const named = writer === null ? 'no writer' : `node ${writer.node}, session ${writer.session}, as its writer`;
    return new HoldfastError('fenced', `the record of ${id} names ${named}, in epoch ${epoch}`);
  }

  #learn(seen: Versioned<VolumeRecord>): void {
    // From another version no earlier attempt can come through any more.
    if (seen.version !== this.known.version) this.#attempted = [];
    this.known = seen;
    this.changed();
  }
}

/** The nodes whose replicas are in sync by the record. */
export function inSyncOf(record: VolumeRecord): ReadonlySet<NodeName> {
  return new Set(record.replicas.filter((replica) => replica.inSync).map((replica) => replica.node));
}
