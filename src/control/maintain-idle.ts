import { codeOf, messageOf } from '../base/errors.js';
import type { NodeName, VolumeId } from '../model/ids.js';
import { maintenanceNeed, type MaintenanceNeed } from './maintenance-need.js';
import { sourceOf } from './rebuild-load.js';
import type { RebuildRound } from './rebuild-round.js';
import { surplusIn } from './remove-surplus.js';
import type { VolumeSight } from './volume-sight.js';

const FIRST_PAUSE_MS = 15_000;
const LONGEST_PAUSE_MS = 10 * 60_000;

/**
 * Given a volume that nobody uses and that needs a writer (a replica is behind, may have lost writes, is damaged, or has
 * to leave), then a node with an in-sync replica is its writer for a while, without a device.
 */
export class Maintenance {
  /** What was begun for a volume, how often in vain, and when it may be begun again. */
  readonly #begun = new Map<VolumeId, { readonly why: string; readonly count: number; readonly dueAt: number }>();

  async tend(round: RebuildRound, sight: VolumeSight): Promise<void> {
    const { id } = sight.record;
    const surplus = surplusIn(round, sight);
    const drop = surplus?.kind === 'drop' ? surplus.node : undefined;
    const need = maintenanceNeed(sight, drop);
    if (need === undefined) {
      if (sight.writer.kind === 'none') this.#begun.delete(id);
      return;
    }
    const before = this.#begun.get(id);
    const again = before?.why === need.why;
    const now = round.parts.clock.now();
    if (again && now < before.dueAt) return;
    if (!round.load.allows(need.targets)) return;
    if (!(await this.#begin(round, sight, need, drop))) return;
    const count = again ? before.count + 1 : 0;
    this.#begun.set(id, {
      why: need.why,
      count,
      dueAt: now + Math.min(FIRST_PAUSE_MS * 2 ** count, LONGEST_PAUSE_MS),
    });
  }

  /** Volumes that are gone are forgotten. */
  keepOnly(known: ReadonlySet<VolumeId>): void {
    for (const id of this.#begun.keys()) if (!known.has(id)) this.#begun.delete(id);
  }

  async #begin(
    round: RebuildRound,
    sight: VolumeSight,
    { candidates, targets, why }: MaintenanceNeed,
    drop: NodeName | undefined,
  ): Promise<boolean> {
    const { id } = sight.record;
    for (const node of candidates) {
      const source = sourceOf(sight, node) ?? node;
      if (!round.load.allows([source])) continue;
      try {
        await round.ask(node, (agent) => agent.maintainVolume(id, drop === undefined ? [] : [drop]));
        round.load.add([source, ...targets]);
        round.parts.log.info({ volume: id, node, why }, 'maintenance begins');
        return true;
      } catch (error) {
        if (codeOf(error) !== 'resource-exhausted') {
          round.problems.set(id, `node ${node} can not bring the replicas into line: ${messageOf(error)}`);
        }
      }
    }
    return false;
  }
}
