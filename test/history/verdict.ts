import type { Cluster } from './cluster.js';
import type { Operation, Violation } from './history.js';
import type { Timeline } from './timeline.js';

type Rule = Violation['rule'];

/** Says which invariant a contradiction breaks, in a line that a person can follow. */
export class Verdict {
  readonly #place: string;

  constructor(
    private readonly timeline: Timeline,
    private readonly block: number,
    sector: number | undefined,
  ) {
    this.#place = `block ${block}${sector === undefined ? '' : `, sector ${sector}`}`;
  }

  rot(read: Operation, value: number, write: Operation | undefined): Violation {
    const found = write === undefined ? (value > 0 ? `${value}` : 'bytes') : this.#name(write);
    const how = write === undefined ? 'that no write made there' : 'which had not begun then';
    return this.#violation('rot', `${this.#name(read)} returned ${found}, ${how}`);
  }

  lateAcknowledgement(write: Operation): Violation {
    return this.#violation('I3', `${this.#name(write)} was acknowledged, though ${this.#nextServes(write)} before`);
  }

  neverInEffect(read: Operation, cluster: Cluster): Violation {
    const { write } = cluster;
    const why = write === undefined ? '' : `, though ${this.#nextServes(write)} before that began`;
    return this.#violation('I3', `${this.#name(read)} returned ${this.#content(cluster)}${why}`);
  }

  /** After a permitted loss: a value that a durable write had surely overwritten. */
  lost(read: Operation, cluster: Cluster, durable: Cluster): Violation {
    return this.#violation(
      'I1',
      `${this.#name(read)} returned ${this.#content(cluster)} after a loss of unflushed writes, ` +
        `though ${this.#durability(durable, Infinity)}`,
    );
  }

  twoContents(one: Operation, first: Cluster, other: Operation, second: Cluster): Violation {
    return this.#violation(
      'I4',
      `after a loss of unflushed writes ${this.#name(one)} returned ${this.#content(first)} and ` +
        `${this.#name(other)} ${this.#content(second)}, both older than the loss`,
    );
  }

  /** Zeros where there can't be any. `after`: what was surely there before. */
  noZero(
    read: Operation,
    after: Cluster | undefined,
    content: Cluster | undefined,
    lost: Cluster | undefined,
  ): Violation {
    const known = after ?? content;
    if (known !== undefined) return this.#stale(read, 'zeros', known, true);
    const why = lost === undefined ? '' : `, though ${this.#durability(lost, Infinity)}`;
    return this.#violation('I1', `${this.#name(read)} returned zeros after a loss of unflushed writes${why}`);
  }

  /** Two contents that can't both have been there. */
  conflict(one: Cluster, other: Cluster): Violation {
    const late = [one, other].find((cluster) => this.#tookEffectLate(cluster));
    if (late?.write !== undefined && late.lastRead !== undefined) {
      const newer = late === one ? other : one;
      return this.#violation(
        'I3',
        `${this.#name(late.lastRead)} returned ${this.#content(late)}, which took effect only after ` +
          `${this.#evidence(newer, late.lastRead.startedAt)}, though ${this.#nextServes(late.write)} before`,
      );
    }
    const [older, newer] = inOrder(one, other);
    // What is older was returned late; the newer one can't be there before it was.
    const read = older.lastRead ?? newer.lastRead;
    if (read === undefined) return this.#violation('I4', 'two contents at the same time');
    return this.#stale(read, this.#content(older), newer, older.end < newer.start);
  }

  /** A read that returned what `newer` had overwritten. `surely`: the writes themselves tell which one is newer. */
  #stale(read: Operation, found: string, newer: Cluster, surely: boolean): Violation {
    const { write, lastRead } = newer;
    const isThereLater = lastRead !== undefined && lastRead.startedAt > read.endedAt;
    const acknowledged = surely && write?.outcome === 'done' && newer.end < read.startedAt;
    const flushed = write !== undefined && this.#isDurableBefore(write, read.startedAt);
    const rule: Rule = isThereLater || !acknowledged ? 'I4' : flushed ? 'I1' : 'I2';
    const again = isThereLater ? `, and ${this.#name(lastRead)} returned that again` : '';
    return this.#violation(
      rule,
      `${this.#name(read)} returned ${found}, though ${this.#evidence(newer, read.startedAt)} before${again}`,
    );
  }

  /** How it is known that a content was there before a moment. */
  #evidence(cluster: Cluster, moment: number): string {
    const { write, firstRead } = cluster;
    if (write?.outcome === 'done' && write.endedAt <= moment) return this.#durability(cluster, moment);
    const name = this.#content(cluster);
    if (firstRead !== undefined) return `${this.#name(firstRead)} had returned ${name}`;
    return `${name} was written`;
  }

  #durability(cluster: Cluster, moment: number): string {
    const { write } = cluster;
    if (write === undefined || this.timeline.span(write.attachment) !== cluster.span) {
      return `${this.#content(cluster)} was read after an earlier loss, and flushed`;
    }
    const flush = write.fua ? undefined : this.timeline.flushOf(write, moment);
    const how = flush === undefined ? '' : ` and made durable by ${this.#name(flush)}`;
    return `${this.#name(write)} was acknowledged${how}`;
  }

  #isDurableBefore(write: Operation, moment: number): boolean {
    return write.fua || this.timeline.flushOf(write, moment) !== undefined;
  }

  /** Whether only the start of the next attachment bounds when it took effect. */
  #tookEffectLate(cluster: Cluster): boolean {
    const { write } = cluster;
    if (write === undefined || this.timeline.span(write.attachment) !== cluster.span) return false;
    const deadline = this.timeline.deadline(write.attachment);
    return cluster.firstEnd === deadline && !(write.outcome === 'done' && write.endedAt <= deadline);
  }

  #nextServes(write: Operation): string {
    return `attachment ${write.attachment + 1} served from ${time(this.timeline.deadline(write.attachment))}`;
  }

  #content(cluster: Cluster): string {
    if (cluster.write === undefined) return 'the zeros of the start';
    return cluster.value === 0 ? `zeros of ${this.#name(cluster.write)}` : this.#name(cluster.write);
  }

  #name(operation: Operation): string {
    const number = this.timeline.history.operations.indexOf(operation);
    const value = operation.kind === 'write' ? ` of ${operation.value}` : '';
    const span = `${time(operation.startedAt)}–${operation.outcome === 'pending' ? '…' : time(operation.endedAt)}`;
    const outcome = operation.outcome === 'done' ? '' : `, ${operation.outcome}`;
    const fua = operation.fua ? ', FUA' : '';
    return `${operation.kind} #${number}${value} (attachment ${operation.attachment}, ${span}${fua}${outcome})`;
  }

  #violation(rule: Rule, what: string): Violation {
    return { rule, block: this.block, text: `${rule}: ${this.#place}: ${what}` };
  }
}

/** The one that was written first, as far as that is known; else the one that was returned last is taken for older. */
function inOrder(one: Cluster, other: Cluster): [Cluster, Cluster] {
  if (one.end < other.start) return [one, other];
  if (other.end < one.start) return [other, one];
  return one.lastStart > other.lastStart ? [one, other] : [other, one];
}

function time(moment: number): string {
  return String(Math.round(moment * 1000) / 1000);
}
