import type { Cluster } from './cluster.js';
import type { Timeline } from './timeline.js';

/**
 * What one register may hold after a permitted loss: any value that was written before, and whose write did not end
 * before a durable write began. What was read before does not bind; but what was read after a loss and then flushed is
 * durable from that loss on.
 *
 * Told of the spans in their order, it answers for the one that follows.
 */
export class LossRule {
  /** The durable write that began last. */
  #durable: Cluster | undefined;
  /** The content that the last of the spans which say so began with and that was flushed there. */
  #kept: Cluster | undefined;
  readonly #zeros: Cluster[] = [];

  constructor(private readonly timeline: Timeline) {}

  /** `content`: what the span began with, as far as known. */
  spanEnded(index: number, clusters: readonly Cluster[], content: Cluster | undefined): void {
    for (const cluster of clusters) {
      if (cluster.value === 0) this.#zeros.push(cluster);
      const isDurable = cluster.write !== undefined && this.timeline.isDurable(cluster.write);
      if (isDurable && (this.#durable === undefined || cluster.start >= this.#durable.start)) this.#durable = cluster;
    }
    const seen = content?.firstRead;
    if (index > 0 && seen !== undefined && this.timeline.isFlushed(index, seen.endedAt)) this.#kept = content;
  }

  /** Why an older value can't be there: what was lost if it is. Undefined: it may be there. */
  lostBy(cluster: Cluster): Cluster | undefined {
    const kept = this.#kept;
    const isKept = kept !== undefined && cluster.span < kept.span;
    if (isKept && kept.write !== cluster.write) return kept;
    return isKept ? this.#lostAfter(kept) : this.#lostBefore(cluster.end);
  }

  /** Why there can't be zeros. */
  zerosLostBy(): Cluster | undefined {
    const kept = this.#kept;
    let lost = kept;
    if (kept?.value === 0) {
      lost = this.#lostAfter(kept);
      if (lost === undefined) return undefined;
    }
    for (const zero of this.#zeros) {
      const reason = kept !== undefined && zero.span < kept.span ? kept : this.#lostBefore(zero.end);
      if (reason === undefined) return undefined;
      lost = reason;
    }
    return lost;
  }

  /** A content that a span began with was there before all that was written in it. */
  #lostAfter(kept: Cluster): Cluster | undefined {
    return this.#durable !== undefined && this.#durable.span >= kept.span ? this.#durable : undefined;
  }

  #lostBefore(end: number): Cluster | undefined {
    return this.#durable !== undefined && end < this.#durable.start ? this.#durable : undefined;
  }
}
