import { callsOfDisk } from './thread-pool.js';

/**
 * The calls to files of one disk: so many may be under way, the others wait in order. What waits is bounded by those
 * who ask: reads and writes hold memory of a slab, and a connection has a bound of requests.
 */
export class DiskCalls {
  #underWay = 0;
  readonly #waiting: (() => void)[] = [];

  /** The limit may shrink while calls are under way. */
  constructor(public limit: number) {}

  /** Begins a call, now where the limit allows it. Whoever begins calls `end` once. */
  begin(call: () => void): void {
    if (this.#underWay >= this.limit) {
      this.#waiting.push(call);
      return;
    }
    this.#underWay++;
    call();
  }

  end(): void {
    this.#underWay--;
    if (this.#underWay >= this.limit) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#underWay++;
    next();
  }

  /** For work of several calls, one after the other. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    await new Promise<void>((resolve) => this.begin(resolve));
    try {
      return await work();
    } finally {
      this.end();
    }
  }
}

/** Divides a thread's calls among the disks it was told of; all other places together count as one more. */
export class CallsByDisk {
  readonly #elsewhere: DiskCalls;
  readonly #disks = new Map<string, DiskCalls>();

  constructor(private readonly calls: number) {
    this.#elsewhere = new DiskCalls(callsOfDisk(calls, 0));
  }

  /** `directory`: where the disk is mounted. Repeats do nothing. */
  add(directory: string): void {
    if (this.#disks.has(directory)) return;
    this.#disks.set(directory, new DiskCalls(1));
    const limit = callsOfDisk(this.calls, this.#disks.size);
    for (const disk of [this.#elsewhere, ...this.#disks.values()]) disk.limit = limit;
  }

  /** By the path alone: to ask the filesystem would be a call that may hang. */
  of(path: string): DiskCalls {
    for (const [directory, disk] of this.#disks) {
      if (path === directory || path.startsWith(`${directory}/`)) return disk;
    }
    return this.#elsewhere;
  }
}
