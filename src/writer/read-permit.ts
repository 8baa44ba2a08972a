import type { Clock } from '../io/io.js';
import type { Member } from './member.js';

/**
 * R9: a writer serves reads only while every replica that R3 asks has confirmed, by an answer to a question asked
 * within the last `confirmedMs`, that it knows no newer epoch. The own node's replica needs no question: its session
 * ends in this very thread.
 */
export class ReadPermit {
  constructor(
    private readonly clock: Clock,
    private readonly confirmedMs: number,
    /** The replicas R3 asks; undefined for one that has no member yet. */
    private readonly asked: () => readonly (Member | undefined)[],
  ) {}

  /** May a read be served now? */
  get valid(): boolean {
    return this.missing.length === 0;
  }

  /** Those whose confirmation is lacking. */
  get missing(): readonly (Member | undefined)[] {
    const oldest = this.clock.now() - this.confirmedMs;
    return this.asked().filter((member) => {
      if (member === undefined) return true;
      return member.local ? !member.connected : member.confirmedAt < oldest;
    });
  }
}
