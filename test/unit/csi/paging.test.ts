import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { codeOf } from '../../../src/base/errors.js';
import { fillPage, makeToken, parsePage } from '../../../src/csi/paging.js';

function entriesOf(keys: readonly string[]): { key: string; entry: string }[] {
  return keys.toSorted().map((key) => ({ key, entry: key }));
}

function readAll(keysAt: (page: number) => readonly string[], maxEntries: number): string[] {
  const seen: string[] = [];
  let token = '';
  for (let page = 0; page === 0 || token !== ''; page++) {
    const order = parsePage('volumes', { max_entries: maxEntries, starting_token: token });
    const answer = fillPage('volumes', entriesOf(keysAt(page)), order);
    seen.push(...answer.entries);
    token = answer.next_token;
  }
  return seen;
}

function codeFor(request: { max_entries: number; starting_token: string }): string {
  try {
    parsePage('volumes', request);
    return 'ok';
  } catch (error) {
    return codeOf(error);
  }
}

describe('paging', () => {
  it('whatever the page size, each entry comes once and in order', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.string({ minLength: 1 })), fc.integer({ min: 0, max: 9 }), (keys, max) => {
        expect(readAll(() => keys, max)).toEqual(keys.toSorted());
      }),
    );
  });

  it('what is made or deleted between pages neither hides nor repeats an entry that lasts', () => {
    const lasting = Array.from({ length: 20 }, (_, index) => `k${String(index).padStart(2, '0')}`);
    const seen = readAll((page) => (page % 2 === 0 ? lasting : [...lasting, `k05-${page}`, 'a', 'z']), 7);
    expect(seen.filter((key) => lasting.includes(key))).toEqual(lasting);
  });

  it('a page that ends with the list has no token', () => {
    const answer = fillPage(
      'volumes',
      entriesOf(['a', 'b']),
      parsePage('volumes', { max_entries: 2, starting_token: '' }),
    );
    expect(answer).toEqual({ entries: ['a', 'b'], next_token: '' });
  });

  it('a page stays below what a gRPC client takes, and one huge entry still comes', () => {
    const big = Array.from({ length: 10 }, (_, index) => ({ key: `k${index}`, entry: 'x'.repeat(1024 ** 2) }));
    const order = parsePage('volumes', { max_entries: 0, starting_token: '' });
    const first = fillPage('volumes', big, order);
    expect(first.entries.length).toBe(2);
    expect(first.next_token).not.toBe('');
    expect(fillPage('volumes', [{ key: 'k', entry: 'x'.repeat(5 * 1024 ** 2) }], order).entries).toHaveLength(1);
  });

  it('garbage and the tokens of another list are aborted, a negative size is invalid', () => {
    for (const token of [
      'invalid-token',
      '1',
      'AAAA',
      ' ',
      makeToken('volume-health', 'vol-1'),
      `${makeToken('volumes', 'v')}A`,
    ]) {
      expect(codeFor({ max_entries: 0, starting_token: token })).toBe('aborted');
    }
    expect(codeFor({ max_entries: -1, starting_token: '' })).toBe('invalid-argument');
    expect(codeFor({ max_entries: 2 ** 31 - 1, starting_token: makeToken('volumes', 'v') })).toBe('ok');
  });
});
