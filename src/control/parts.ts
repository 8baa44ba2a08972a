import type { NodeAgents } from '../agent/client.js';
import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Mutex } from '../base/mutex.js';
import type { VolumeId } from '../model/ids.js';
import type { Versioned, VolumeRecord } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import type { NodeLiveness } from './cluster-view.js';
import type { ClusterIndex } from './node-watch.js';
import type { PlacementLimits } from './placement.js';
import type { Strays } from './strays.js';
import type { VolumeSight } from './volume-sight.js';

/** What the operations on volumes work with. */
export interface ControlParts {
  readonly store: RecordStore;
  readonly liveness: NodeLiveness;
  readonly agents: NodeAgents;
  readonly limits: PlacementLimits;
  /** Held from reading the cluster to writing down what was placed, so that two volumes can't get the same room. */
  readonly placing: Mutex;
  readonly strays: Strays;
  readonly healing: Healing;
  readonly log: Log;
}

/** What is known of how volumes fare and heal; see rebuilder.ts. */
export interface Healing {
  sightOf(record: VolumeRecord, cluster: ClusterIndex): VolumeSight;
  /** What stands in the way of a volume, in words. */
  problemOf(volume: VolumeId): string | undefined;
  /** How long a dead node is waited for. */
  readonly graceMs: number;
}

const MAX_TRIES = 10;

/**
 * Reads the record, lets `decide` say what it becomes, and swaps it in; again while others change it. `undefined` from
 * `decide` leaves it as it is. Resolves to the record then; `undefined`: there is none.
 */
export async function changeVolume(
  { store }: Pick<ControlParts, 'store'>,
  key: string,
  decide: (record: VolumeRecord) => VolumeRecord | undefined | Promise<VolumeRecord | undefined>,
): Promise<Versioned<VolumeRecord> | undefined> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const found = await store.get('volume', key);
    if (found === undefined) return undefined;
    const wanted = await decide(found.record);
    if (wanted === undefined) return found;
    try {
      return await store.update('volume', key, wanted, found.version);
    } catch (error) {
      if (!(error instanceof HoldfastError) || (error.code !== 'conflict' && error.code !== 'not-found')) throw error;
    }
  }
  throw new HoldfastError('aborted', `the record of volume ${key} changes all the time; try again`);
}
