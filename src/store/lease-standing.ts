/**
 * When is a node's lease expired? The rule, without clock or store.
 *
 * A lease that its node renews gets a new version with every renewal. Another process calls it expired only after it
 * watched it stand still for max(10 s, 3.3 × its interval) of its own monotonic clock, while the store itself answered.
 *
 * - A sighting is a read of the store that succeeded. What it shows held at some moment between question and answer, so
 *   stillness is counted from the *answer* of the first sighting of a version to the *question* of the latest.
 * - While the store is away (or an answer is long in coming) no node can renew, and after it came back each needs its
 *   time to notice and to renew. So a gap without a sighting does not pause the count, it starts it anew: a pause could
 *   leave a node, that was nearly counted out when the store went away, only moments after the store's return. One
 *   failed read between two good ones is no gap: up to MAX_GAP_MS between two answers the count goes on. The same holds
 *   when this process itself stood still (stopped, or its machine suspended): it sees a gap.
 * - A missing record is a state like any other: it has to stand missing for as long.
 *
 * An error in this count can't lose data (a take-over fences first); it costs a needless failover, or a later one. The
 * rule prefers the later one.
 */

/** Stillness is counted on over so long a gap between the answers of two sightings. */
export const MAX_GAP_MS = 3_000;

const MIN_EXPIRY_MS = 10_000;
const EXPIRY_INTERVALS = 3.3;

export interface Sighting {
  /** Own monotonic clock, before the read was sent and after its answer came. */
  readonly askedAt: number;
  readonly answeredAt: number;
  /** Absent: there is no such record. */
  readonly lease?: { readonly version: string; readonly intervalMs: number };
}

export interface Standing {
  readonly version: string | undefined;
  /** The interval last seen; 0 where none was ever seen. */
  readonly intervalMs: number;
  /** Since when it has been watched to stand still. */
  readonly stillSince: number;
  readonly lastAskedAt: number;
  readonly lastAnsweredAt: number;
}

export type LeaseState = 'live' | 'expired' | 'unknown';

export function expiryMs(intervalMs: number): number {
  return Math.max(MIN_EXPIRY_MS, EXPIRY_INTERVALS * intervalMs);
}

/** What is known after one more sighting. Sightings come in the order of their questions. */
export function sight(before: Standing | undefined, sighting: Sighting): Standing {
  const version = sighting.lease?.version;
  const goesOn =
    before !== undefined && before.version === version && sighting.answeredAt - before.lastAnsweredAt <= MAX_GAP_MS;
  return {
    version,
    intervalMs: sighting.lease?.intervalMs ?? before?.intervalMs ?? 0,
    stillSince: goesOn ? before.stillSince : sighting.answeredAt,
    lastAskedAt: sighting.askedAt,
    lastAnsweredAt: sighting.answeredAt,
  };
}

/**
 * unknown: never seen, not seen of late, or missing for less than the expiry time. live: seen, and not expired; a lease
 * counts as live while it is watched, though its node may have died a moment ago.
 */
export function stateOf(standing: Standing | undefined, now: number): LeaseState {
  if (standing === undefined || now - standing.lastAnsweredAt > MAX_GAP_MS) return 'unknown';
  if (isExpired(standing)) return 'expired';
  return standing.version === undefined ? 'unknown' : 'live';
}

export function isExpired(standing: Standing): boolean {
  return standing.lastAskedAt - standing.stillSince >= expiryMs(standing.intervalMs);
}
