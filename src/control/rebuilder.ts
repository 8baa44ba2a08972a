import { messageOf } from '../base/errors.js';
import { Mutex } from '../base/mutex.js';
import type { VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { readCluster } from './cluster-view.js';
import { ClusterWatch } from './cluster-watch.js';
import { Maintenance } from './maintain-idle.js';
import type { ClusterIndex } from './node-watch.js';
import type { Healing } from './parts.js';
import { ReplicaPlacer } from './place-missing.js';
import { RebuildRound, type RebuildParts } from './rebuild-round.js';
import { removeSurplus } from './remove-surplus.js';
import { Strays } from './strays.js';
import { WriterTeller } from './tell-writer.js';
import type { VolumeSight } from './volume-sight.js';

/** As RebuildParts; what is shared with the operations on volumes may be left out where there are none. */
export type RebuilderOptions = Omit<RebuildParts, 'placing' | 'strays'> &
  Partial<Pick<RebuildParts, 'placing' | 'strays'>>;

/**
 * Volumes heal by themselves. Each round looks at all of them and lets one duty after the other have its way with each;
 * what one has changed, the next round sees.
 *
 *     surplus ─▶ missing ─▶ writer told ─▶ maintenance
 *
 * A duty acts on the record as it is when it acts, by compare-and-swap. It never touches the in-sync set or the writer:
 * those are the writer's, which is asked. So a round that is cut off anywhere, or two controllers at once, do no harm.
 */
export class Rebuilder implements Healing {
  readonly #watch: ClusterWatch;
  readonly #parts: RebuildParts;
  readonly #placer = new ReplicaPlacer();
  readonly #teller = new WriterTeller();
  readonly #maintenance = new Maintenance();
  #problems: ReadonlyMap<VolumeId, string> = new Map();

  constructor(options: RebuilderOptions) {
    this.#parts = { placing: new Mutex(), strays: new Strays(), ...options };
    const { agents, liveness, clock, limits, log } = this.#parts;
    const { inspectEveryMs } = limits;
    this.#watch = new ClusterWatch({ agents, liveness, clock, patience: limits, inspectEveryMs, log });
  }

  get graceMs(): number {
    return this.#parts.limits.graceMs;
  }

  /** A volume as it stands now. */
  sightOf(record: VolumeRecord, cluster: ClusterIndex): VolumeSight {
    return this.#watch.sightOf(record, cluster);
  }

  /** What stood in the way of a volume in the last round, in words. */
  problemOf(volume: VolumeId): string | undefined {
    return this.#problems.get(volume);
  }

  /** Volumes that the last round could not help. */
  get problemCount(): number {
    return this.#problems.size;
  }

  /** One look at all volumes, and what is to be done about them now. Rejects where the store does not answer. */
  async round(): Promise<void> {
    const cluster = await readCluster(this.#parts.store);
    await this.#watch.observe(cluster);
    const round = new RebuildRound(this.#parts, this.#watch, cluster);
    for (const sight of round.sights) await this.#tend(round, sight);
    const known = new Set(cluster.volumes.map(({ id }) => id));
    this.#teller.keepOnly(known);
    this.#maintenance.keepOnly(known);
    this.#tellProblems(round.problems);
  }

  /** A volume whose record changes all the time, or whose change had no answer, is looked at again in the next round. */
  async #tend(round: RebuildRound, sight: VolumeSight): Promise<void> {
    const { id } = sight.record;
    try {
      if (await removeSurplus(round, sight)) {
        this.#teller.changed(id);
        return;
      }
      const placed = await this.#placer.tend(round, sight);
      if (placed !== undefined) this.#teller.changed(id);
      const now = placed === undefined ? sight : round.sightOf(placed);
      await this.#teller.tend(round, now);
      await this.#maintenance.tend(round, now);
    } catch (error) {
      round.problems.set(id, messageOf(error));
    }
  }

  /** The same trouble of a volume is told once. */
  #tellProblems(problems: ReadonlyMap<VolumeId, string>): void {
    for (const [volume, reason] of problems) {
      if (!this.#problems.has(volume)) this.#parts.log.warn({ volume, reason }, 'volume can not be healed yet');
    }
    for (const volume of this.#problems.keys()) {
      if (!problems.has(volume)) this.#parts.log.info({ volume }, 'nothing stands in the way of the volume any more');
    }
    this.#problems = problems;
  }
}
