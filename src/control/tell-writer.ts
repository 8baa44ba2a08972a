import { messageOf } from '../base/errors.js';
import type { VolumeId } from '../model/ids.js';
import type { RebuildRound } from './rebuild-round.js';
import { isTended, type VolumeSight } from './volume-sight.js';

/**
 * Given a writer, and replicas that were put into its record or taken out of it, then the writer has been told once to
 * read the record anew since: it polls nothing.
 */
export class WriterTeller {
  /** What the writer of a volume knows: its session, and which replicas there are. */
  readonly #told = new Map<VolumeId, string>();

  async tend(round: RebuildRound, sight: VolumeSight): Promise<void> {
    const { record, writer, replicas } = sight;
    if (writer.kind === 'none') this.#told.delete(record.id);
    if (writer.kind === 'none' || !isTended(sight)) return;
    const knows = [record.writer?.session ?? '', ...replicas.map(({ node }) => node).toSorted()].join();
    const before = this.#told.get(record.id);
    if (before === knows) return;
    // A take-over reads the record itself; whether that was before one was put in that is not in sync, is not known.
    if (before === undefined && replicas.every(({ inSync }) => inSync)) {
      this.#told.set(record.id, knows);
      return;
    }
    try {
      await round.ask(writer.node, (agent) => agent.refreshVolume(record.id));
      this.#told.set(record.id, knows);
    } catch (error) {
      round.problems.set(record.id, `the writer on ${writer.node} is not told of new replicas: ${messageOf(error)}`);
    }
  }

  /** The record was changed here: the writer does not know it, though the same replicas may have been there before. */
  changed(volume: VolumeId): void {
    this.#told.set(volume, '');
  }

  /** Volumes that are gone are forgotten. */
  keepOnly(known: ReadonlySet<VolumeId>): void {
    for (const id of this.#told.keys()) if (!known.has(id)) this.#told.delete(id);
  }
}
