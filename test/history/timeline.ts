import type { History, Operation } from './history.js';

/**
 * Attachments as the checker sees them. A *span* is a row of attachments with no permitted loss between them; nothing of
 * one span takes effect in another, and each begins with a content of its own.
 */
export class Timeline {
  /** When each span begins; the first one always has. */
  readonly spanStarts: number[] = [-Infinity];
  readonly #spanOf: number[] = [];
  readonly #deadlines: number[];
  readonly #flushes: Operation[] = [];
  /** For each span the start of the last flush that was acknowledged within it. */
  readonly #lastFlush: number[];

  constructor(readonly history: History) {
    const { attachments, operations } = history;
    for (const { lossAllowed, servesFrom } of attachments) {
      // Before the first attachment there is nothing to lose.
      if (lossAllowed && this.#spanOf.length > 0) this.spanStarts.push(servesFrom);
      this.#spanOf.push(this.spanStarts.length - 1);
    }
    this.#deadlines = attachments.map((_, index) => attachments[index + 1]?.servesFrom ?? Infinity);
    this.#lastFlush = this.spanStarts.map(() => -Infinity);
    for (const operation of operations) {
      if (operation.kind === 'flush' && operation.outcome === 'done') this.#addFlush(operation);
    }
  }

  /** The latest moment at which a write of an attachment can take effect: when the next attachment serves. */
  deadline(attachment: number): number {
    return this.#deadlines[attachment] ?? Infinity;
  }

  /** The span that an attachment belongs to. */
  span(attachment: number): number {
    return this.#spanOf[attachment] ?? 0;
  }

  spanEnd(span: number): number {
    return this.spanStarts[span + 1] ?? Infinity;
  }

  /** The span in which a read took place; undefined where that is open, as it went on over a loss. */
  spanOfRead(read: Operation): number | undefined {
    const { spanStarts } = this;
    let span = spanStarts.length - 1;
    while (span > 0 && (spanStarts[span] ?? 0) > read.startedAt) span--;
    const lateStart = this.span(read.attachment) < span && read.startedAt === spanStarts[span];
    return lateStart || read.endedAt >= this.spanEnd(span) ? undefined : span;
  }

  /** Whether the write can't be lost after its span: made durable by itself or by a flush. */
  isDurable(write: Operation): boolean {
    if (write.outcome !== 'done') return false;
    return write.fua || this.isFlushed(this.span(write.attachment), write.endedAt);
  }

  /** Whether what was in a span at a moment was flushed within that span. */
  isFlushed(span: number, moment: number): boolean {
    return (this.#lastFlush[span] ?? -Infinity) > moment;
  }

  /** The flush, if any, that made the write durable before a moment. */
  flushOf(write: Operation, before: number): Operation | undefined {
    const span = this.span(write.attachment);
    return this.#flushes.find(
      (flush) => this.span(flush.attachment) === span && flush.startedAt > write.endedAt && flush.endedAt < before,
    );
  }

  #addFlush(flush: Operation): void {
    const span = this.span(flush.attachment);
    // One that was asked of an attachment which was over says nothing.
    if (flush.startedAt > this.deadline(flush.attachment) || flush.endedAt >= this.spanEnd(span)) return;
    this.#flushes.push(flush);
    this.#lastFlush[span] = Math.max(this.#lastFlush[span] ?? -Infinity, flush.startedAt);
  }
}
