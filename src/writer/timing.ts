import type { ScrubTiming } from '../replica/scrub.js';

/** The replication rules' times, in milliseconds, and bounds. Tests and the simulator may give others. */
export interface Timing extends ScrubTiming {
  /** R4: a lost connection has this long to come back. */
  readonly reconnectMs: number;
  /** R4: an unanswered request is this old at most. */
  readonly answerMs: number;
  /** R9: a confirmation lets reads be served for this long, counted from its question. */
  readonly confirmedMs: number;
  readonly confirmEveryMs: number;
  /** R5: how long a take-over looks for in-sync replicas beyond the first. */
  readonly fenceMs: number;
  /** R10: how much longer a take-over that reached marked replicas only looks for one without mark. */
  readonly crashLookMs: number;
  /** R2: a region not written for this long is closed. */
  readonly idleCloseMs: number;
  /** R2: more open regions than this, and the coldest are closed. */
  readonly maxOpenRegions: number;
  /** A writer asks its replicas so often what they know to be bad; at once where a read has met it. */
  readonly mendEveryMs: number;
  /** R7: pause before a failed resync is tried again. */
  readonly resyncPauseMs: number;
  /** R7: bytes a second that all resyncs of the data path copy at most, together. */
  readonly resyncBytesPerSecond: number;
  /** Resyncs at once from a data path, and as many to it. */
  readonly resyncsAtOnce: number;
  /** Writers without a device that bring replicas into line, at once on a data path. */
  readonly maintenancesAtOnce: number;
  /** Maintenance that gets no further in this time ends; so does any that has lasted `maintenanceMs`. */
  readonly maintenanceIdleMs: number;
  readonly maintenanceMs: number;
}

export const DEFAULT_TIMING: Timing = {
  scrubEveryMs: 7 * 24 * 60 * 60_000,
  scrubBytesPerSecond: 32 * 1024 * 1024,
  mendEveryMs: 60_000,
  reconnectMs: 3_000,
  answerMs: 5_000,
  confirmedMs: 2_000,
  confirmEveryMs: 500,
  fenceMs: 3_000,
  crashLookMs: 10_000,
  idleCloseMs: 10_000,
  maxOpenRegions: 1_024,
  resyncPauseMs: 1_000,
  resyncBytesPerSecond: 256 * 1024 * 1024,
  resyncsAtOnce: 2,
  maintenancesAtOnce: 4,
  maintenanceIdleMs: 30_000,
  maintenanceMs: 60 * 60_000,
};
