import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock } from '../io/io.js';
import { SCHEMA_VERSION, type LeaseRecord, type Versioned } from '../model/records.js';
import { isExpired, sight, stateOf, type LeaseState, type Standing } from './lease-standing.js';
import { pause } from './pause.js';
import { RepeatedFault } from './repeated-fault.js';
import type { RecordStore } from './store.js';

const POLL_MS = 1_000;

const MIN_INTERVAL_MS = 100;

export interface LeaseKeeperOptions {
  readonly store: RecordStore;
  readonly node: string;
  readonly nodeUid: string;
  /** From 100 ms on. */
  readonly intervalMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Renews this node's lease. A lease under the same name with another nodeUid is that of an earlier incarnation (the
 * machine was replaced, or lost its state): it is taken over once it has stood still for its expiry time. While it is
 * renewed, another live node bears this name; this one says so and keeps out, for two nodes that renewed one lease in
 * turn would hide each other's death.
 */
export class LeaseKeeper {
  readonly #fault: RepeatedFault;
  readonly #rival: RepeatedFault;
  #own: Versioned<LeaseRecord> | undefined;
  #other: Standing | undefined;
  #setHeld: () => void = () => undefined;
  #setFailed: (error: unknown) => void = () => undefined;
  #renewedAt: number | undefined;

  /** Resolves when the lease was renewed for the first time; rejects with `cancelled` when `run` ended before. */
  readonly held: Promise<void>;

  constructor(private readonly options: LeaseKeeperOptions) {
    if (!(options.intervalMs >= MIN_INTERVAL_MS)) {
      const right = `must be ${MIN_INTERVAL_MS} ms or more`;
      throw new HoldfastError('invalid-argument', `leaseIntervalMs ${options.intervalMs} ${right}`);
    }
    this.held = new Promise((resolve, reject) => {
      this.#setHeld = resolve;
      this.#setFailed = reject;
    });
    this.held.catch(() => undefined);
    this.#fault = new RepeatedFault(options.log, `renewing the lease of node ${options.node}`);
    this.#rival = new RepeatedFault(options.log, `taking the lease of node ${options.node}`);
  }

  /** Milliseconds since the latest renewal was asked for; undefined: there was none yet. */
  get ageMs(): number | undefined {
    return this.#renewedAt === undefined ? undefined : this.options.clock.now() - this.#renewedAt;
  }

  /** Renews until the signal aborts. A failed renewal is tried again after at most a second. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.options;
    while (!signal.aborted) {
      const startedAt = clock.now();
      let renewed = false;
      try {
        renewed = await this.#beat();
        this.#fault.succeeded();
        if (renewed) this.#renewedAt = startedAt;
        if (renewed) this.#setHeld();
      } catch (error) {
        // Whether the last change came through is not known: read before the next one.
        this.#own = undefined;
        this.#fault.failed(error);
      }
      const nextMs = renewed ? intervalMs - (clock.now() - startedAt) : Math.min(intervalMs, POLL_MS);
      await pause(clock, Math.max(nextMs, 0), signal);
    }
    this.#setFailed(
      new HoldfastError('cancelled', `the lease of node ${this.options.node} was not held before the end`),
    );
  }

  /** One renewal; false while another incarnation has the lease. */
  async #beat(): Promise<boolean> {
    const { store, node, clock } = this.options;
    const askedAt = clock.now();
    const found = this.#own ?? (await store.get('lease', node));
    if (found === undefined) {
      this.#own = await store.create('lease', node, this.#record(1));
      return true;
    }
    if (found.record.nodeUid !== this.options.nodeUid && !this.#mayTakeOver(found, askedAt)) return false;
    // What a newer version put into the record stays there.
    const next = { ...found.record, ...this.#record(found.record.beat + 1) };
    this.#own = await store.update('lease', node, next, found.version);
    this.#other = undefined;
    this.#rival.succeeded();
    return true;
  }

  #mayTakeOver(found: Versioned<LeaseRecord>, askedAt: number): boolean {
    const { node, clock, log } = this.options;
    const lease = { version: found.version, intervalMs: found.record.intervalMs };
    const before = this.#other;
    this.#other = sight(before, { askedAt, answeredAt: clock.now(), lease });
    if (before === undefined) {
      log.info(
        { node, nodeUid: found.record.nodeUid },
        'the lease is of another incarnation; waiting for it to expire',
      );
    } else if (before.version !== found.version) {
      this.#rival.failed(
        new HoldfastError(
          'already-exists',
          `node name ${node} is in use by a live node with uid ${found.record.nodeUid}; stop it or rename this one`,
        ),
      );
    }
    if (!isExpired(this.#other)) return false;
    log.warn({ node, nodeUid: found.record.nodeUid }, 'took the lease over from an earlier incarnation of this node');
    return true;
  }

  #record(beat: number): LeaseRecord {
    const { nodeUid, intervalMs } = this.options;
    return { schema: SCHEMA_VERSION, nodeUid, intervalMs, beat: beat % Number.MAX_SAFE_INTEGER };
  }
}

export interface LeaseObserverOptions {
  readonly store: RecordStore;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Watches the leases of others by the rule of lease-standing.ts. Two ways, which may be mixed: `run` watches all leases
 * (the controller), `waitExpired` one (a take-over). Without either nothing is read.
 */
export class LeaseObserver {
  readonly #standings = new Map<string, Standing>();
  readonly #waiting = new Map<string, number>();
  readonly #fault: RepeatedFault;
  readonly #sightings = new Set<() => void>();
  #all = false;
  /** Nodes that somebody asked for while all leases are watched; a missing lease is counted from then on. */
  readonly #asked = new Set<string>();

  constructor(private readonly options: LeaseObserverOptions) {
    this.#fault = new RepeatedFault(options.log, 'reading leases');
  }

  /** Watches all leases until the signal aborts. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    this.#all = true;
    while (!signal.aborted) {
      await this.#read(() => this.#sightAll());
      await pause(this.options.clock, POLL_MS, signal);
    }
    this.#all = false;
    this.#asked.clear();
    this.#dropUnwatched();
  }

  /** `unknown` for a node that is not watched, or whose lease could not be read of late. */
  state(node: string): LeaseState {
    if (this.#all) this.#asked.add(node);
    return stateOf(this.#standings.get(node), this.options.clock.now());
  }

  /** How long the node's lease has been watched to stand still, in milliseconds; undefined: it is not watched. */
  stillMs(node: string): number | undefined {
    const standing = this.#standings.get(node);
    return standing && standing.lastAskedAt - standing.stillSince;
  }

  /** Resolves when the node's lease is expired; rejects with `cancelled` when the signal aborts before. */
  async waitExpired(node: string, signal: AbortSignal): Promise<void> {
    this.#waiting.set(node, (this.#waiting.get(node) ?? 0) + 1);
    try {
      while (this.state(node) !== 'expired') {
        if (signal.aborted) throw new HoldfastError('cancelled', `no longer waiting for the lease of node ${node}`);
        if (this.#all) await this.#nextSighting(signal);
        else await this.#sightOneInTurn(node, signal);
      }
    } finally {
      const left = (this.#waiting.get(node) ?? 1) - 1;
      if (left === 0) this.#waiting.delete(node);
      else this.#waiting.set(node, left);
      this.#dropUnwatched();
    }
  }

  async #sightOneInTurn(node: string, signal: AbortSignal): Promise<void> {
    await this.#read(() => this.#sightOne(node));
    if (stateOf(this.#standings.get(node), this.options.clock.now()) === 'expired') return;
    await pause(this.options.clock, POLL_MS, signal);
  }

  async #sightOne(node: string): Promise<void> {
    const askedAt = this.options.clock.now();
    const found = await this.options.store.get('lease', node);
    this.#note(node, askedAt, this.options.clock.now(), found);
  }

  async #sightAll(): Promise<void> {
    const askedAt = this.options.clock.now();
    const { items } = await this.options.store.list('lease');
    const answeredAt = this.options.clock.now();
    const found = new Map(items.map((item) => [item.key, item]));
    const known = new Set([...this.#standings.keys(), ...this.#asked, ...this.#waiting.keys()]);
    for (const node of known) if (!found.has(node)) this.#note(node, askedAt, answeredAt, undefined);
    for (const [node, item] of found) this.#note(node, askedAt, answeredAt, item);
    for (const sighted of [...this.#sightings]) sighted();
  }

  #note(node: string, askedAt: number, answeredAt: number, found: Versioned<LeaseRecord> | undefined): void {
    const before = this.#standings.get(node);
    // Two readers may answer out of order; the older sighting tells nothing new.
    if (before !== undefined && askedAt < before.lastAskedAt) return;
    const sighting = { askedAt, answeredAt };
    const lease = found && { version: found.version, intervalMs: found.record.intervalMs };
    this.#standings.set(node, sight(before, lease === undefined ? sighting : { ...sighting, lease }));
  }

  async #read(read: () => Promise<void>): Promise<void> {
    try {
      await read();
      this.#fault.succeeded();
    } catch (error) {
      this.#fault.failed(error);
    }
  }

  #nextSighting(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#sightings.delete(end);
        signal.removeEventListener('abort', end);
        resolve();
      };
      this.#sightings.add(end);
      signal.addEventListener('abort', end);
    });
  }

  #dropUnwatched(): void {
    if (this.#all) return;
    for (const node of [...this.#standings.keys()]) if (!this.#waiting.has(node)) this.#standings.delete(node);
    for (const sighted of [...this.#sightings]) sighted();
  }
}
