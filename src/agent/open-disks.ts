import { bounded } from '../base/bounded.js';
import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock } from '../io/io.js';
import type { DiskId } from '../model/ids.js';
import type { Disk, DiskReport } from '../pool/disk.js';
import type { Replicas } from '../replica/replicas.js';
import { RepeatedFault } from '../store/repeated-fault.js';

export interface OpenDisksOptions {
  readonly pool: OpenDisksPool;
  readonly replicas: Pick<Replicas, 'openDisk'>;
  readonly clock: Pick<Clock, 'timer'>;
  readonly log: Log;
}

/** What it needs of the pool. */
export interface OpenDisksPool {
  readyDisks(): readonly OpenableDisk[];
  report(): Promise<DiskReport[]>;
}

export type OpenableDisk = Pick<Disk, 'diskId' | 'directory' | 'incarnation' | 'state' | 'check'>;

/** A disk as the data path has it. One that is not listed was never ready. */
type Progress =
  | { readonly kind: 'open' }
  | { readonly kind: 'opening'; readonly ended: Promise<void> }
  /** Tried again in the next round. */
  | { readonly kind: 'refused'; readonly reason: string };

/** Most disks are open after less; what takes longer is told in a later round. */
const ROUND_WAIT_MS = 3_000;

/** How often the start looks whether a disk that it waits for still works. */
const LOOK_EVERY_MS = 1_000;

/**
 * Given a disk of this node that works, from the start or later, then the data path has it open; and nobody is told
 * that it is ready before. A ready disk whose replicas the node does not find would be one that has lost them (R12).
 *
 *     not ready ──works──▶ opening ──▶ open
 *                             ▲  ╲
 *                  next round  ╲  ▼
 *                             refused
 *
 * One that fails later stays open: its replicas deal with errors themselves. A disk is asked only once at a time, since
 * one that hangs holds threads of the process's pool.
 */
export class OpenDisks {
  readonly #progress = new Map<DiskId, Progress>();
  readonly #faults = new Map<DiskId, RepeatedFault>();

  constructor(private readonly options: OpenDisksOptions) {}

  /**
   * For the start: resolves when every disk that works is open. However many replicas it holds, it is waited for as long
   * as it works, since peers that ask before would not find them. Never rejects.
   */
  async openAtStart(): Promise<void> {
    await Promise.all(this.options.pool.readyDisks().map((disk) => this.#openWhileItWorks(disk)));
  }

  /** Opens what works and is not open; then as `report`. Never rejects. */
  async round(): Promise<DiskReport[]> {
    const reports = await this.options.pool.report();
    const opening = this.options.pool.readyDisks().map((disk) => this.#open(disk));
    await this.#waitFor(Promise.all(opening), ROUND_WAIT_MS);
    return reports.map((report) => this.#asTold(report));
  }

  /** How the disks are, as everybody is told: one that is not open is not ready. */
  async report(): Promise<DiskReport[]> {
    return (await this.options.pool.report()).map((report) => this.#asTold(report));
  }

  async #openWhileItWorks(disk: OpenableDisk): Promise<void> {
    const ended = this.#open(disk);
    while (disk.state === 'ready' && this.#progress.get(disk.diskId)?.kind === 'opening') {
      await this.#waitFor(ended, LOOK_EVERY_MS);
      await disk.check();
    }
  }

  #open(disk: OpenableDisk): Promise<void> {
    const progress = this.#progress.get(disk.diskId);
    if (progress?.kind === 'open') return Promise.resolve();
    if (progress?.kind === 'opening') return progress.ended;
    const ended = this.#carryOut(disk);
    this.#progress.set(disk.diskId, { kind: 'opening', ended });
    return ended;
  }

  async #carryOut({ diskId, directory, incarnation }: OpenableDisk): Promise<void> {
    const { replicas, log } = this.options;
    const fault = this.#faults.get(diskId) ?? new RepeatedFault(log, `opening disk ${diskId}`);
    this.#faults.set(diskId, fault);
    try {
      await replicas.openDisk({ diskId, directory, incarnation });
      this.#progress.set(diskId, { kind: 'open' });
      fault.succeeded();
      log.info({ disk: diskId }, 'disk is open');
    } catch (error) {
      this.#progress.set(diskId, { kind: 'refused', reason: `its replicas can't be read: ${messageOf(error)}` });
      fault.failed(error);
    }
  }

  #asTold(report: DiskReport): DiskReport {
    const progress = this.#progress.get(report.diskId);
    if (report.state !== 'ready' || progress?.kind === 'open') return report;
    const reason = progress?.kind === 'refused' ? progress.reason : 'its replicas are being opened';
    return { ...report, state: 'failed', reason };
  }

  async #waitFor(work: Promise<unknown>, limitMs: number): Promise<void> {
    await bounded(this.options.clock, limitMs, 'opening disks', work).catch(() => undefined);
  }
}
