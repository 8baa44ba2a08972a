import { HoldfastError } from '../../src/base/errors.js';
import type { NodeRecord, RecordKind, RecordTypes, VolumeRecord, Versioned } from '../../src/model/records.js';
import { MemoryStore } from '../../src/store/memory-store.js';
import type { RecordStore } from '../../src/store/store.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import type { SimNetwork } from './sim-network.js';
import type { SimProcess } from './sim-process.js';

/** The store's place in the network. */
export const STORE_HOST = 'store';

const ANSWER_LIMIT_MS = 5_000;
const LATEST_EFFECT_MS = 8_000;

/**
 * The cluster store: the production in-memory one, behind a network that loses and delays. A change whose answer did not
 * come may have been made, or be made later.
 */
export class SimStore {
  readonly #store = new MemoryStore({ storeId: 'sim' });
  readonly #volumes = new Map<string, VolumeRecord>();
  /** What was published of each node, the latest last. */
  readonly #nodes = new Map<string, { at: number; item: Versioned<NodeRecord> }[]>();
  readonly #watchers: ((before: VolumeRecord | undefined, now: VolumeRecord) => void)[] = [];
  down = false;
  /** The probability that a call, or its answer, is lost. */
  lossy = 0;

  constructor(
    private readonly schedule: Schedule,
    private readonly network: SimNetwork,
    private readonly random: Prng,
  ) {}

  /** The records, to those who stand outside of the cluster. */
  get direct(): RecordStore {
    return this.#observed;
  }

  /** What the store holds of a volume now. */
  volume(key: string): VolumeRecord | undefined {
    return this.#volumes.get(key);
  }

  /** The record of a node as a watch shows it that lags by `lagMs`. */
  nodeSeen(name: string, lagMs: number): Versioned<NodeRecord> | undefined {
    const before = this.schedule.now - lagMs;
    return this.#nodes.get(name)?.findLast(({ at }) => at <= before)?.item;
  }

  /** Calls `seen` at every change of a volume's record. */
  onVolume(seen: (before: VolumeRecord | undefined, now: VolumeRecord) => void): void {
    this.#watchers.push(seen);
  }

  /** The store as a process on the machine `host` reaches it. */
  client(process: SimProcess, host: string): RecordStore {
    const call = <T>(effect: () => Promise<T>): Promise<T> => this.#call(process, host, effect);
    const store = this.#observed;
    return {
      get: (kind, key) => call(() => store.get(kind, key)),
      list: (kind) => call(() => store.list(kind)),
      create: (kind, key, record) => call(() => store.create(kind, key, record)),
      update: (kind, key, record, version) => call(() => store.update(kind, key, record, version)),
      delete: (kind, key, version) => call(() => store.delete(kind, key, version)),
      watch: (kind, revision, signal) => store.watch(kind, revision, signal),
    };
  }

  readonly #observed: RecordStore = {
    get: (kind, key) => this.#store.get(kind, key),
    list: (kind) => this.#store.list(kind),
    create: async (kind, key, record) => this.#note(kind, await this.#store.create(kind, key, record)),
    update: async (kind, key, record, version) =>
      this.#note(kind, await this.#store.update(kind, key, record, version)),
    delete: async (kind, key, version) => {
      await this.#store.delete(kind, key, version);
      if (kind === 'volume') this.#volumes.delete(key);
    },
    watch: (kind, revision, signal) => this.#store.watch(kind, revision, signal),
  };

  #note<K extends RecordKind>(kind: K, made: Versioned<RecordTypes[K]>): Versioned<RecordTypes[K]> {
    if (kind === 'node') {
      const known = this.#nodes.get(made.key) ?? [];
      known.push({ at: this.schedule.now, item: made as Versioned<NodeRecord> });
      this.#nodes.set(made.key, known);
    }
    if (kind !== 'volume') return made;
    const record = made.record as VolumeRecord;
    const before = this.#volumes.get(made.key);
    this.#volumes.set(made.key, record);
    for (const seen of this.#watchers) seen(before, record);
    return made;
  }

  #call<T>(process: SimProcess, host: string, effect: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      let settled = false;
      const settle = (act: () => void): void => {
        if (settled) return;
        settled = true;
        cancel();
        act();
      };
      const lost = (): void => settle(() => reject(new HoldfastError('unavailable', 'the store did not answer')));
      const cancel = process.io.clock.timer(ANSWER_LIMIT_MS, lost);
      const answer = (act: () => void): void => {
        if (this.network.isCut(STORE_HOST, host) || this.random.chance(this.lossy)) return;
        this.schedule.after(this.#latency(), () => process.deliver(() => settle(act)));
      };
      this.schedule.after(this.#latency(), () => {
        if (this.down || this.network.isCut(host, STORE_HOST)) {
          // Refused at once, or in silence.
          if (this.down && this.random.chance(0.5)) process.deliver(lost);
          return;
        }
        if (this.random.chance(this.lossy)) {
          // It may be on its way still, and arrive when nobody expects it any more.
          if (this.random.chance(0.5))
            this.schedule.after(this.random.between(0, LATEST_EFFECT_MS), () => void effect().catch(() => undefined));
          return;
        }
        effect().then(
          (result) => answer(() => resolve(result)),
          // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors
          (error: unknown) => answer(() => reject(error)),
        );
      });
    });
  }

  #latency(): number {
    return this.random.between(0.3, 3);
  }
}
