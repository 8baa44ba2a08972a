import type { Operation } from './history.js';

/**
 * A content of one register: the write that made it, with the reads that returned it. All of them have a moment in
 * common with the *zone* between `firstEnd` and `lastStart`:
 *
 *   write  |------|                          write |-------------|
 *   read              |---|                  read       |---------------|
 *   read                   |-----|                 lastStart ^   ^ firstEnd
 *          firstEnd ^      ^ lastStart
 *
 * On the left the register surely held it from firstEnd to lastStart ("held"). On the right one moment, anywhere from
 * lastStart to firstEnd, may have been all.
 */
export class Cluster {
  firstEnd: number;
  lastStart: number;
  /** The read that ended first, and the one that started last. */
  firstRead: Operation | undefined;
  lastRead: Operation | undefined;

  constructor(
    /** Absent: what the register held when its span began. */
    readonly write: Operation | undefined,
    /** Of the writes and trims that put this content there. */
    readonly value: number,
    readonly span: number,
    /** The bounds between which it was written. */
    readonly start: number,
    readonly end: number,
    /** Whether it took effect even if nobody read it. */
    readonly isCertain: boolean,
  ) {
    this.firstEnd = end;
    this.lastStart = start;
  }

  addRead(read: Operation): void {
    if (this.firstRead === undefined || read.endedAt < this.firstRead.endedAt) this.firstRead = read;
    if (this.lastRead === undefined || read.startedAt > this.lastRead.startedAt) this.lastRead = read;
    this.firstEnd = Math.min(this.firstEnd, read.endedAt);
    this.lastStart = Math.max(this.lastStart, read.startedAt);
  }

  get tookEffect(): boolean {
    return this.isCertain || this.firstRead !== undefined;
  }

  get isHeld(): boolean {
    return this.firstEnd < this.lastStart;
  }
}
