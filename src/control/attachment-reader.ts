import { codeOf } from '../base/errors.js';
import type { NodeName } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { ClusterRecords } from './cluster-view.js';
import { healthOf, type AttachmentAnswer, type Health } from './health.js';
import { indexOf, type ClusterIndex } from './node-watch.js';
import type { ControlParts } from './parts.js';
import type { VolumeSight } from './volume-sight.js';

/** Questions to nodes under way at once, while one call is answered. */
const MAX_QUESTIONS = 32;

export interface VolumeSeen {
  readonly record: VolumeRecord;
  readonly attachment: AttachmentAnswer;
  readonly health: Health;
  readonly sight: VolumeSight;
}

/**
 * Asks writers about their attachments, for the time of one call. A node that doesn't answer once is not asked again,
 * so that a call about thousands of volumes waits for it only once.
 */
export class AttachmentReader {
  readonly #silent = new Set<NodeName>();
  readonly #cluster: ClusterIndex;

  constructor(
    private readonly parts: Pick<ControlParts, 'agents' | 'liveness' | 'healing'>,
    cluster: Pick<ClusterRecords, 'nodes' | 'disks'>,
  ) {
    this.#cluster = indexOf(cluster);
  }

  /** How the volumes fare, in their order. */
  async see(records: readonly VolumeRecord[]): Promise<VolumeSeen[]> {
    const seen: VolumeSeen[] = [];
    for (let start = 0; start < records.length; start += MAX_QUESTIONS) {
      const group = records.slice(start, start + MAX_QUESTIONS);
      seen.push(...(await Promise.all(group.map((record) => this.seeOne(record)))));
    }
    return seen;
  }

  async seeOne(record: VolumeRecord): Promise<VolumeSeen> {
    const { liveness, healing } = this.parts;
    const attachment = await this.#ask(record);
    const sight = healing.sightOf(record, this.#cluster);
    const { disks } = this.#cluster;
    const health = healthOf({ record, attachment, liveness, sight, disks, problem: healing.problemOf(record.id) });
    return { record, attachment, health, sight };
  }

  async #ask({ id, writer }: VolumeRecord): Promise<AttachmentAnswer> {
    if (writer === null) return null;
    const node = this.#cluster.nodes.get(writer.node);
    if (node === undefined || this.#silent.has(node.name)) return 'unanswered';
    if (this.parts.liveness.state(node.name) === 'expired') return 'unanswered';
    try {
      return await this.parts.agents.of(node).getAttachment(id);
    } catch (error) {
      const code = codeOf(error);
      if (code === 'unavailable' || code === 'deadline-exceeded') this.#silent.add(node.name);
      return 'unanswered';
    }
  }
}
