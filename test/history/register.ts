import { valueOf } from './check-block.js';
import { Cluster } from './cluster.js';
import { CORRUPT } from './contents.js';
import type { Operation, Violation } from './history.js';
import { LossRule } from './loss-rule.js';
import type { Timeline } from './timeline.js';
import { Verdict } from './verdict.js';
import { findConflict } from './zones.js';

/**
 * One sector's history (or that of a whole block, where all its sectors have the same one).
 *
 * As no two writes have the same value, each read tells which write it saw. Every write makes a cluster with the reads of
 * it, and the history is legal if and only if no read ended before its write began and the clusters' zones can be put in
 * a row (zones.ts; P. Gibbons and E. Korach, Testing shared memories, 1997). Zeros come from many places: a read of zero
 * belongs to a trim, or to the content at the start, only where nothing else can have made it; otherwise it is enough
 * that one of the possible makers was not surely overwritten.
 */
export class Register {
  readonly #spans: Span[];
  readonly #ofValue = new Map<number, Cluster>();
  readonly #losses: LossRule;
  readonly #verdict: Verdict;

  constructor(
    private readonly timeline: Timeline,
    private readonly block: number,
    /** Absent: all sectors at once. */
    private readonly sector: number | undefined,
    private readonly operations: readonly Operation[],
  ) {
    this.#spans = timeline.spanStarts.map(() => ({ clusters: [], zeroReads: [], old: [] }));
    this.#losses = new LossRule(timeline);
    this.#verdict = new Verdict(timeline, block, sector);
  }

  /** What is wrong with it, if anything. */
  check(): Violation | undefined {
    for (const operation of this.operations) {
      if (operation.kind === 'read') continue;
      const violation = this.#addWrite(operation);
      if (violation !== undefined) return violation;
    }
    for (const operation of this.operations) {
      if (operation.kind !== 'read') continue;
      const violation = this.#addRead(operation);
      if (violation !== undefined) return violation;
    }
    for (const [index, span] of this.#spans.entries()) {
      const violation = this.#checkSpan(index, span);
      if (violation !== undefined) return violation;
    }
    return undefined;
  }

  #addWrite(write: Operation): Violation | undefined {
    const deadline = this.timeline.deadline(write.attachment);
    const isDone = write.outcome === 'done';
    if (isDone && write.startedAt > deadline) return this.#verdict.lateAcknowledgement(write);
    const span = this.timeline.span(write.attachment);
    const end = isDone ? Math.min(write.endedAt, deadline) : deadline;
    const cluster = new Cluster(write, write.value, span, write.startedAt, end, isDone);
    if (write.kind === 'write') this.#ofValue.set(write.value, cluster);
    // One that was asked of an attachment which was over can't take effect at all.
    if (write.startedAt <= deadline) this.#spans[span]?.clusters.push(cluster);
    return undefined;
  }

  #addRead(read: Operation): Violation | undefined {
    const value = valueOf(read, this.block, this.sector ?? 0);
    const index = this.timeline.spanOfRead(read);
    const span = index === undefined ? undefined : this.#spans[index];
    if (value === 0) {
      span?.zeroReads.push(read);
      return undefined;
    }
    const cluster = value === CORRUPT ? undefined : this.#ofValue.get(value);
    if (cluster === undefined) return this.#verdict.rot(read, value, undefined);
    if (read.endedAt < cluster.start) return this.#verdict.rot(read, value, cluster.write);
    if (cluster.start > cluster.end) return this.#verdict.neverInEffect(read, cluster);
    if (index === cluster.span) cluster.addRead(read);
    else if (index !== undefined && index > cluster.span) span?.old.push({ read, cluster });
    return undefined;
  }

  #checkSpan(index: number, span: Span): Violation | undefined {
    const first = index === 0 ? this.#zeroAtStart(span) : this.#contentAfterLoss(index, span);
    if (!(first instanceof Cluster) && first !== undefined) return first;
    const violation = this.#placeZeroReads(index, span, first);
    if (violation !== undefined) return violation;
    const conflict = findConflict(span.clusters.filter((cluster) => cluster.tookEffect));
    if (conflict !== undefined) return this.#verdict.conflict(...conflict);
    this.#losses.spanEnded(index, span.clusters, span.content);
    return undefined;
  }

  #zeroAtStart(span: Span): Cluster {
    const zero = contentAtStart(0, undefined, true);
    span.content = zero;
    span.clusters.push(zero);
    return zero;
  }

  /** What the span began with, as far as its reads of older values tell. */
  #contentAfterLoss(index: number, span: Span): Cluster | Violation | undefined {
    const [first] = span.old;
    if (first === undefined) return undefined;
    for (const { read, cluster } of span.old) {
      if (cluster !== first.cluster) return this.#verdict.twoContents(first.read, first.cluster, read, cluster);
      const lost = this.#losses.lostBy(cluster);
      if (lost !== undefined) return this.#verdict.lost(read, cluster, lost);
    }
    const content = contentAtStart(index, first.cluster.write, true);
    for (const { read } of span.old) content.addRead(read);
    span.content = content;
    span.clusters.push(content);
    return content;
  }

  /** Gives each read of zero to the one trim, or content at the start, that it must have come from, if there is one. */
  #placeZeroReads(index: number, span: Span, content: Cluster | undefined): Violation | undefined {
    if (span.zeroReads.length === 0) return undefined;
    const makers = span.clusters.filter((cluster) => cluster.value === 0);
    let lost: Cluster | undefined;
    if (content === undefined) {
      const zero = contentAtStart(index, undefined, false);
      lost = this.#losses.zerosLostBy();
      if (lost === undefined) {
        makers.push(zero);
        span.clusters.push(zero);
        span.content = zero;
      }
    }
    const overwritten = new Overwritten(span.clusters);
    // Found first and added then, so that one read's place does not move another's.
    const placed: [Cluster, Operation][] = [];
    for (const read of span.zeroReads) {
      const after = overwritten.before(read.startedAt);
      const possible = makers.filter(
        (maker) => maker.start <= read.endedAt && (after === undefined || maker.end >= after.lastStart),
      );
      const [only] = possible;
      if (only === undefined) return this.#verdict.noZero(read, after, content, lost);
      if (possible.length === 1) placed.push([only, read]);
    }
    for (const [maker, read] of placed) maker.addRead(read);
    return undefined;
  }
}

interface Span {
  readonly clusters: Cluster[];
  readonly zeroReads: Operation[];
  /** Reads of what was written before the span. */
  readonly old: { readonly read: Operation; readonly cluster: Cluster }[];
  /** What it began with, as far as known. */
  content?: Cluster;
}

/** What a span begins with was there before anything of it. */
function contentAtStart(span: number, write: Operation | undefined, isCertain: boolean): Cluster {
  return new Cluster(write, write?.value ?? 0, span, -Infinity, -Infinity, isCertain);
}

/** Which contents were surely there before a moment: all that ended before the last of them are overwritten. */
class Overwritten {
  readonly #ends: number[] = [];
  readonly #latest: Cluster[] = [];

  constructor(clusters: readonly Cluster[]) {
    const known = clusters.filter((cluster) => cluster.tookEffect && cluster.firstEnd !== -Infinity);
    known.sort((one, other) => one.firstEnd - other.firstEnd);
    let latest: Cluster | undefined;
    for (const cluster of known) {
      if (latest === undefined || cluster.lastStart > latest.lastStart) latest = cluster;
      this.#ends.push(cluster.firstEnd);
      this.#latest.push(latest);
    }
  }

  /** Of the contents that took effect before a moment, the one that was there last. */
  before(moment: number): Cluster | undefined {
    let low = 0;
    let high = this.#ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#ends[middle] ?? 0) < moment) low = middle + 1;
      else high = middle;
    }
    return this.#latest[low - 1];
  }
}
