import type { NodeAgents } from '../agent/client.js';
import type { CallContext } from '../base/grpc.js';
import { codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { KeyedMutex, type Mutex } from '../base/mutex.js';
import { isVolumeId, volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import type { NodeLiveness } from './cluster-view.js';
import { createVolume, keyOfName, type VolumeOrder } from './create-volume.js';
import { deleteVolume } from './delete-volume.js';
import { expandVolume, type Expanded } from './expand-volume.js';
import type { ControlParts, Healing } from './parts.js';
import type { PlacementLimits } from './placement.js';
import { setReplicas } from './set-replicas.js';
import type { CapacityRange } from './sizes.js';
import type { Stray, Strays } from './strays.js';
import { inTurn } from './turn.js';

/** A half-made volume that nobody asked for in this time is taken back: no caller can know its id. */
const CREATING_GRACE_MS = 10 * 60_000;

export interface VolumesOptions {
  readonly store: RecordStore;
  readonly liveness: NodeLiveness;
  readonly agents: NodeAgents;
  readonly limits: PlacementLimits;
  readonly log: Log;
  readonly healing: Healing;
  /** Shared with the rebuilder. */
  readonly placing: Mutex;
  readonly strays: Strays;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}

/**
 * The operations on volumes. One at a time for each name, so that calls that are made twice, at once, or again after
 * the caller has gone away meet a settled record; the store's compare-and-swap does the rest.
 */
export class Volumes {
  readonly parts: ControlParts;
  readonly #turns = new KeyedMutex<string>();
  readonly #now: () => number;
  /** When a half-made volume was last asked for, or first seen by this process. */
  readonly #askedAt = new Map<string, number>();

  constructor(options: VolumesOptions) {
    const { now, ...parts } = options;
    this.parts = parts;
    this.#now = now ?? (() => performance.now());
  }

  /** The volume of that name; see createVolume. */
  create(order: VolumeOrder, context: CallContext): Promise<VolumeRecord> {
    const key = keyOfName(order.name);
    return this.#inTurn(key, `volume ${JSON.stringify(order.name)}`, context, async () => {
      this.#askedAt.set(key, this.#now());
      const record = await createVolume(this.parts, order, context.signal);
      this.#askedAt.delete(key);
      return record;
    });
  }

  /** No such volume: nothing happens. In use: `failed-precondition`. */
  remove(id: VolumeId, context: CallContext): Promise<void> {
    return this.#inTurn(volumeKey(id), `volume ${id}`, context, () => deleteVolume(this.parts, id));
  }

  expand(id: VolumeId, range: CapacityRange, context: CallContext): Promise<Expanded> {
    return this.#inTurn(volumeKey(id), `volume ${id}`, context, () => expandVolume(this.parts, id, range));
  }

  /** See setReplicas. */
  setReplicas(id: VolumeId, replicas: number, context: CallContext): Promise<string[]> {
    return this.#inTurn(volumeKey(id), `volume ${id}`, context, () => setReplicas(this.parts, id, replicas));
  }

  /** `undefined`: no such volume, or it is being deleted. */
  async get(id: VolumeId): Promise<VolumeRecord | undefined> {
    const found = await this.parts.store.get('volume', volumeKey(id));
    return found?.record.id === id && found.record.phase !== 'deleting' ? found.record : undefined;
  }

  /** By id, or by CSI name; in any phase. */
  async find(idOrName: string): Promise<VolumeRecord | undefined> {
    const keys = [...(isVolumeId(idOrName) ? [volumeKey(idOrName)] : []), keyOfName(idOrName)];
    for (const key of keys) {
      const record = (await this.parts.store.get('volume', key))?.record;
      if (record !== undefined && (record.id === idOrName || record.name === idOrName)) return record;
    }
    return undefined;
  }

  /**
   * Settles what earlier calls left, once: finishes deletions, takes back half-made volumes that nobody asks for any
   * more, and removes replicas on nodes that could not be reached before. A failure is left for the next time. Ends
   * early when the signal aborts.
   */
  async settle(signal?: AbortSignal): Promise<void> {
    const { items } = await this.parts.store.list('volume');
    const keys = new Set(items.map((item) => item.key));
    for (const key of this.#askedAt.keys()) if (!keys.has(key)) this.#askedAt.delete(key);
    for (const { record } of items) {
      if (signal?.aborted) return;
      if (this.#isLeftover(record)) await this.#attempt(record.id, () => this.#finish(record.id));
    }
    // A node that fails once is left alone until the next time, so that one round ends.
    const failing = new Set<NodeName>();
    for (const stray of this.parts.strays.list()) {
      if (signal?.aborted) return;
      if (failing.has(stray.node)) continue;
      if (!(await this.#attempt(stray.volume, () => this.#removeStray(stray)))) failing.add(stray.node);
    }
  }

  #isLeftover({ id, phase }: VolumeRecord): boolean {
    const key = volumeKey(id);
    if (phase !== 'creating') this.#askedAt.delete(key);
    if (phase !== 'creating') return phase === 'deleting';
    const asked = this.#askedAt.get(key);
    if (asked === undefined) this.#askedAt.set(key, this.#now());
    return asked !== undefined && this.#now() - asked >= CREATING_GRACE_MS;
  }

  /** In its turn, and only if it still is a leftover then. */
  async #finish(id: VolumeId): Promise<void> {
    const found = await this.parts.store.get('volume', volumeKey(id));
    if (found?.record.id !== id || !this.#isLeftover(found.record)) return;
    this.parts.log.info({ volume: id, name: found.record.name, phase: found.record.phase }, 'leftover volume removed');
    await deleteVolume(this.parts, id);
    this.#askedAt.delete(volumeKey(id));
  }

  async #removeStray(stray: Stray): Promise<void> {
    const { store, agents, liveness, strays } = this.parts;
    const volume = await store.get('volume', volumeKey(stray.volume));
    const wanted =
      volume?.record.id === stray.volume && volume.record.replicas.some((replica) => replica.node === stray.node);
    const node = await store.get('node', stray.node);
    if (!wanted && node !== undefined) {
      if (liveness.state(stray.node) !== 'live') return;
      await agents.of(node.record).removeReplica(stray.volume);
    }
    strays.forget(stray);
  }

  /** Whether it was done. */
  async #attempt(id: VolumeId, action: () => Promise<void>): Promise<boolean> {
    try {
      await this.#turns.run(volumeKey(id), action);
      return true;
    } catch (error) {
      this.parts.log.debug({ volume: id, code: codeOf(error), reason: messageOf(error) }, 'leftover not settled yet');
      return false;
    }
  }

  #inTurn<T>(key: string, what: string, context: CallContext, section: () => Promise<T>): Promise<T> {
    return inTurn(this.#turns, key, what, context, section);
  }
}
