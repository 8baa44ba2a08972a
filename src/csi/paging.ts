import { createHash } from 'node:crypto';
import { HoldfastError } from '../base/errors.js';

/** What of a list one call wants. */
export interface PageOrder {
  /** Infinity: as many as fit. */
  readonly maxEntries: number;
  /** '' for the start; else the key of the last entry of the page before. */
  readonly after: string;
}

/** Lists that are handed out in pages. A token of one is foreign to all others. */
export type ListName = 'volumes' | 'volume-health';

/**
 * A gRPC client takes answers of 4 MiB unless told otherwise. Entries are measured as JSON, which is never shorter
 * than their form on the wire.
 */
const MAX_PAGE_BYTES = 3 * 1024 ** 2;

/** Negative max_entries: `invalid-argument`. A token that this list did not make: `aborted`, so that the caller starts anew. */
export function parsePage(list: ListName, request: { max_entries: number; starting_token: string }): PageOrder {
  const { max_entries: max, starting_token: token } = request;
  if (max < 0) throw new HoldfastError('invalid-argument', `max_entries is ${max}; it must not be negative`);
  return { maxEntries: max === 0 ? Infinity : max, after: token === '' ? '' : readToken(list, token) };
}

/**
 * Fills one page from entries in key order. A page goes on after a key, not after a count: what is made or deleted
 * between two pages neither hides nor repeats an entry that lasts. `entries` may hold more than the page takes.
 */
export function fillPage<Entry>(
  list: ListName,
  entries: Iterable<{ key: string; entry: Entry }>,
  order: PageOrder,
): { entries: Entry[]; next_token: string } {
  const page: Entry[] = [];
  let bytes = 0;
  let last = '';
  for (const { key, entry } of entries) {
    if (key <= order.after) continue;
    bytes += Buffer.byteLength(JSON.stringify(entry));
    if (page.length >= order.maxEntries || (page.length > 0 && bytes > MAX_PAGE_BYTES)) {
      return { entries: page, next_token: makeToken(list, last) };
    }
    page.push(entry);
    last = key;
  }
  return { entries: page, next_token: '' };
}

export function makeToken(list: ListName, key: string): string {
  return Buffer.from(`${sealOf(list, key)}${key}`).toString('base64url');
}

function readToken(list: ListName, token: string): string {
  const text = Buffer.from(token, 'base64url').toString();
  const key = text.slice(SEAL_LENGTH);
  if (key === '' || makeToken(list, key) !== token) {
    throw new HoldfastError('aborted', `starting_token is not one of this list (${list}); start again without a token`);
  }
  return key;
}

const SEAL_LENGTH = 16;

function sealOf(list: ListName, key: string): string {
  return createHash('sha256').update(`${list}\0${key}`).digest('hex').slice(0, SEAL_LENGTH);
}
