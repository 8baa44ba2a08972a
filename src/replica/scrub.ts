import { codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Io, Slab } from '../io/io.js';

/** How often, and how fast, data at rest is read and compared with its checksums. */
export interface ScrubTiming {
  /** Every region that was ever written is read once in this time, if the rate allows; 0: never. */
  readonly scrubEveryMs: number;
  /** Bytes a second that the scrub of one data thread reads at most; half of it while clients use the replica. */
  readonly scrubBytesPerSecond: number;
}

/** A replica, as the scrub sees it. */
export interface Scrubbed {
  readonly volume: string;
  readonly regionCount: number;
  readonly closed: boolean;
  readonly busy: boolean;
  readonly incompleteRegion: number | undefined;
  holdsData(region: number): boolean;
  /** Reads and compares a region; resolves to the bytes read. */
  scrub(region: number, slab: Slab): Promise<number>;
}

/** Regions whose checksums are incomplete are noticed after this time at the latest. */
const LOOK_MS = 5_000;

/** The regions are counted anew so often; sooner where a round is short. */
const COUNT_MS = 60_000;

/** Of the time for a round, so much is planned for; the rest is for what comes up. */
const SHARE = 0.9;

/** A region that is due. */
interface Due {
  readonly replica: Scrubbed;
  readonly region: number;
}

/**
 * Reads all data of a data thread's replicas again and again, evenly over the time given, beside the I/O. What it finds
 * each replica remembers (damage.ts) and tells its writer.
 *
 * It goes round all regions of all replicas in one row. Its place is in memory only: a process begins at a random
 * one, so that every region has its turn even where none lives for a whole round.
 */
export class Scrub {
  #stopped = false;
  #wake: () => void = () => undefined;
  /** From where it goes on. */
  #place: { readonly volume: string; readonly region: number } | undefined;
  /** Between one region and the next. */
  #stepMs = 0;
  #countedAt = -Infinity;
  #nextAt = -Infinity;
  /** Replicas whose scrub has failed, until it succeeds: each is told once. */
  readonly #failing = new Set<string>();

  constructor(
    private readonly io: Io,
    private readonly log: Log,
    private readonly timing: ScrubTiming,
    private readonly slab: Slab,
    private readonly replicas: () => readonly Scrubbed[],
  ) {}

  /** Runs until `stop`. */
  async run(): Promise<void> {
    if (this.timing.scrubEveryMs <= 0) return;
    const { clock } = this.io;
    while (!this.#stopped) {
      const due = this.#incomplete() ?? this.#next();
      if (due) await this.#scrub(due.replica, due.region);
      else await this.#pause(Math.max(1, Math.min(LOOK_MS, this.#nextAt - clock.now())));
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#wake();
  }

  /** Regions that were closed with checksums missing come first: until then rot in them goes unnoticed. */
  #incomplete(): Due | undefined {
    for (const replica of this.replicas()) {
      const region = replica.incompleteRegion;
      if (region !== undefined && !this.#failing.has(replica.volume)) return { replica, region };
    }
    return undefined;
  }

  /** The next region, if it is time for it. */
  #next(): Due | undefined {
    const now = this.io.clock.now();
    if (now < this.#nextAt) return undefined;
    const replicas = [...this.replicas()].sort((one, other) => (one.volume < other.volume ? -1 : 1));
    const countEveryMs = Math.min(COUNT_MS, this.timing.scrubEveryMs / 10);
    if (now >= this.#countedAt + countEveryMs) this.#count(replicas, now);
    const due = this.#find(replicas);
    this.#nextAt = now + (due ? this.#stepMs : LOOK_MS);
    if (due) this.#place = { volume: due.replica.volume, region: due.region + 1 };
    return due;
  }

  #count(replicas: readonly Scrubbed[], now: number): void {
    let regions = 0;
    for (const replica of replicas) {
      for (let region = 0; region < replica.regionCount; region++) if (replica.holdsData(region)) regions++;
    }
    this.#stepMs = (this.timing.scrubEveryMs * SHARE) / Math.max(1, regions);
    this.#countedAt = now;
  }

  #find(replicas: readonly Scrubbed[]): Due | undefined {
    const place = this.#place ?? this.#anywhere(replicas);
    if (!place) return undefined;
    const index = replicas.findIndex(({ volume }) => volume >= place.volume);
    const row = index < 0 ? replicas : [...replicas.slice(index), ...replicas.slice(0, index)];
    const start = row[0]?.volume === place.volume ? place.region : 0;
    for (const [turn, replica] of row.entries()) {
      for (let region = turn === 0 ? start : 0; region < replica.regionCount; region++) {
        if (replica.holdsData(region)) return { replica, region };
      }
    }
    const [first] = row;
    for (let region = 0; first && region < start; region++)
      if (first.holdsData(region)) return { replica: first, region };
    return undefined;
  }

  #anywhere(replicas: readonly Scrubbed[]): { volume: string; region: number } | undefined {
    const replica = replicas[Math.floor(this.io.random.fraction() * replicas.length)];
    if (!replica) return undefined;
    return { volume: replica.volume, region: Math.floor(this.io.random.fraction() * replica.regionCount) };
  }

  async #scrub(replica: Scrubbed, region: number): Promise<void> {
    const { scrubBytesPerSecond } = this.timing;
    let bytes = 0;
    try {
      bytes = await replica.scrub(region, this.slab);
      this.#failing.delete(replica.volume);
    } catch (error) {
      this.#tell(replica, error);
    }
    await this.#pause((bytes / scrubBytesPerSecond) * 1_000 * (replica.busy ? 2 : 1));
  }

  /** A replica that was closed meanwhile has no fault. */
  #tell(replica: Scrubbed, error: unknown): void {
    if (this.#stopped || replica.closed || this.#failing.has(replica.volume)) return;
    this.#failing.add(replica.volume);
    const fault = { volume: replica.volume, code: codeOf(error), reason: messageOf(error) };
    this.log.warn(fault, 'a region can not be scrubbed; told once');
  }

  async #pause(delayMs: number): Promise<void> {
    if (this.#stopped) return;
    await new Promise<void>((resolve) => {
      const cancel = this.io.clock.timer(delayMs, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
  }
}
