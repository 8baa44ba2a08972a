import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { codeOf } from '../../src/base/errors.js';
import type { DiskRecord, RecordKind } from '../../src/model/records.js';
import type { LogBounds } from '../../src/store/record-table.js';
import type { Change, RecordStore } from '../../src/store/store.js';

/** A store under test, and how it is ended. */
export interface StoreUnderTest {
  readonly store: RecordStore;
  /** The same records served by a newly started store; absent where records end with the process. */
  readonly restart?: () => Promise<RecordStore>;
  readonly close: () => Promise<void>;
}

export function diskRecord(usedBytes: number, diskId = 'disk-0123456789abcdef'): DiskRecord {
  return { schema: 1, diskId, node: 'a', capacityBytes: 1000, usedBytes, state: 'ready', reason: '' };
}

/** What every record store does. `start` may be given small log bounds. */
export function recordStoreContract(name: string, start: (bounds?: LogBounds) => Promise<StoreUnderTest>): void {
  describe(`record store: ${name}`, () => {
    let tested: StoreUnderTest;
    let store: RecordStore;
    let end: AbortController;

    beforeEach(async () => {
      tested = await start();
      store = tested.store;
      end = new AbortController();
    });
    afterEach(async () => {
      end.abort();
      await tested.close();
    });

    it('gives back what was created, with fields it does not know', async () => {
      const record = { ...diskRecord(1), futureField: { deep: [1, 'ü', null] } };
      const created = await store.create('disk', 'd1', record);
      expect(created.record).toEqual(record);
      expect(await store.get('disk', 'd1')).toEqual(created);
      const updated = await store.update('disk', 'd1', { ...created.record, usedBytes: 2 }, created.version);
      expect((await store.get('disk', 'd1'))?.record).toEqual({ ...record, usedBytes: 2 });
      expect(updated.version).not.toBe(created.version);
    });

    it('does not share a record with its callers', async () => {
      const record = diskRecord(1);
      const created = await store.create('disk', 'd1', record);
      record.usedBytes = 7;
      created.record.usedBytes = 8;
      expect((await store.get('disk', 'd1'))?.record.usedBytes).toBe(1);
    });

    it('knows no record that was not created', async () => {
      expect(await store.get('disk', 'd1')).toBeUndefined();
      await expectCode('not-found', store.update('disk', 'd1', diskRecord(1), 'x.1'));
      await expectCode('not-found', store.delete('disk', 'd1'));
    });

    it('refuses to create a record twice', async () => {
      await store.create('disk', 'd1', diskRecord(1));
      await expectCode('already-exists', store.create('disk', 'd1', diskRecord(2)));
      expect((await store.get('disk', 'd1'))?.record.usedBytes).toBe(1);
    });

    it('gives a new version with every write, even of the same content', async () => {
      const first = await store.create('disk', 'd1', diskRecord(1));
      const second = await store.update('disk', 'd1', first.record, first.version);
      await store.delete('disk', 'd1');
      const third = await store.create('disk', 'd1', diskRecord(1));
      expect(new Set([first.version, second.version, third.version]).size).toBe(3);
    });

    it('lets one of many concurrent updates win, and tells the others', async () => {
      const { version } = await store.create('disk', 'd1', diskRecord(0));
      const tries = Array.from({ length: 20 }, (_, i) => store.update('disk', 'd1', diskRecord(i), version));
      const results = await Promise.allSettled(tries);
      const won = results.filter((result) => result.status === 'fulfilled');
      const lost = results.filter((result) => result.status === 'rejected');
      expect(won).toHaveLength(1);
      expect(lost.map((result) => codeOf(result.reason))).toEqual(Array.from({ length: 19 }, () => 'conflict'));
      expect(await store.get('disk', 'd1')).toEqual(won[0]?.value);
    });

    it('lets one of many concurrent creates win', async () => {
      const tries = Array.from({ length: 20 }, (_, i) => store.create('disk', 'd1', diskRecord(i)));
      const results = await Promise.allSettled(tries);
      expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1);
    });

    it('counts correctly when many add one, each by compare-and-swap', async () => {
      await store.create('disk', 'd1', diskRecord(0));
      await Promise.all(Array.from({ length: 10 }, () => addOne(store)));
      expect((await store.get('disk', 'd1'))?.record.usedBytes).toBe(10);
    });

    it('deletes only the version it is told', async () => {
      const first = await store.create('disk', 'd1', diskRecord(1));
      const second = await store.update('disk', 'd1', diskRecord(2), first.version);
      await expectCode('conflict', store.delete('disk', 'd1', first.version));
      expect(await store.get('disk', 'd1')).toEqual(second);
      await store.delete('disk', 'd1', second.version);
      expect(await store.get('disk', 'd1')).toBeUndefined();
      await expectCode('not-found', store.delete('disk', 'd1', second.version));
    });

    it('lists one kind in key order', async () => {
      for (const key of ['b', 'a', 'd-1', 'c']) await store.create('disk', key, diskRecord(1));
      await store.create('cluster', 'cluster', { schema: 1, clusterId: 'c' });
      const { items } = await store.list('disk');
      expect(items.map((item) => item.key)).toEqual(['a', 'b', 'c', 'd-1']);
      expect((await store.list('node')).items).toEqual([]);
    });

    it('tells a watch all changes of its kind after the list, in order', async () => {
      const first = await store.create('disk', 'a', diskRecord(1));
      const { revision } = await store.list('disk');
      const seen = take(store.watch('disk', revision, end.signal), 3);
      await store.create('cluster', 'cluster', { schema: 1, clusterId: 'c' });
      const second = await store.update('disk', 'a', diskRecord(2), first.version);
      const third = await store.create('disk', 'b', diskRecord(3));
      await store.delete('disk', 'a');
      const changes = await seen;
      expect(changes.slice(0, 2)).toMatchObject([
        { type: 'put', item: second },
        { type: 'put', item: third },
      ]);
      expect(changes[2]).toMatchObject({ type: 'delete', key: 'a' });
    });

    it('resumes a watch from any revision it has told', async () => {
      const { revision } = await store.list('disk');
      for (const key of ['a', 'b', 'c', 'd']) await store.create('disk', key, diskRecord(1));
      const all = await take(store.watch('disk', revision, end.signal), 4);
      expect(all.map(keyOf)).toEqual(['a', 'b', 'c', 'd']);
      const rest = await take(store.watch('disk', all[1]?.revision ?? '', end.signal), 2);
      expect(rest).toEqual(all.slice(2));
    });

    it('ends a watch without an error when it is aborted', async () => {
      const { revision } = await store.list('disk');
      const seen = take(store.watch('disk', revision, end.signal), 10);
      await store.create('disk', 'a', diskRecord(1));
      end.abort();
      await store.create('disk', 'b', diskRecord(1));
      expect((await seen).length).toBeLessThanOrEqual(1);
      expect(await take(store.watch('disk', revision, end.signal), 1)).toEqual([]);
    });

    it('serves many watches at once', async () => {
      const { revision } = await store.list('disk');
      const watches = Array.from({ length: 20 }, () =>
        take(store.watch('disk', revision, AbortSignal.any([end.signal])), 5),
      );
      for (const key of ['a', 'b', 'c', 'd', 'e']) await store.create('disk', key, diskRecord(1));
      for (const seen of await Promise.all(watches)) expect(seen.map(keyOf)).toEqual(['a', 'b', 'c', 'd', 'e']);
    });

    it('refuses to resume from a revision it does not know', async () => {
      for (const revision of ['', 'rubbish', '00000000.1', '-1', '9'.repeat(30)]) {
        await expectCode('out-of-range', take(store.watch('disk', revision, end.signal), 1));
      }
      const { revision } = await store.list('disk');
      await expectCode('out-of-range', take(store.watch('disk', `${revision}999`, end.signal), 1));
    });

    it('refuses to resume from a revision whose changes it has forgotten', async () => {
      const small = await start({ maxEntries: 10, maxCharacters: 1_000_000 });
      try {
        const { revision } = await small.store.list('disk');
        for (let i = 0; i < 11; i++) await small.store.create('disk', `d${i}`, diskRecord(1));
        await expectCode('out-of-range', take(small.store.watch('disk', revision, end.signal), 1));
        const now = (await small.store.list('disk')).revision;
        const seen = take(small.store.watch('disk', now, end.signal), 1);
        await small.store.delete('disk', 'd1');
        expect((await seen).map(keyOf)).toEqual(['d1']);
      } finally {
        await small.close();
      }
    });

    it('keeps the changes of one kind when another changes often', async () => {
      const small = await start({ maxEntries: 5, maxCharacters: 1_000_000 });
      try {
        const { revision } = await small.store.list('disk');
        await small.store.create('disk', 'a', diskRecord(1));
        const lease = { schema: 1, nodeUid: 'u', intervalMs: 3000, beat: 1 };
        let { version } = await small.store.create('lease', 'a', lease);
        for (let i = 0; i < 20; i++) ({ version } = await small.store.update('lease', 'a', lease, version));
        expect((await take(small.store.watch('disk', revision, end.signal), 1)).map(keyOf)).toEqual(['a']);
      } finally {
        await small.close();
      }
    });

    it('refuses unknown kinds, wrong keys and wrong records, naming them', async () => {
      const wrongKind = 'wolf' as RecordKind;
      await expectCode('invalid-argument', store.list(wrongKind), /wolf/);
      await expectCode('invalid-argument', take(store.watch(wrongKind, 'x.0', end.signal), 1), /wolf/);
      for (const key of ['', '../x', 'a/b', '-a', 'a'.repeat(254), 'a b', 'ü']) {
        await expectCode('invalid-argument', store.get('disk', key), /key/);
        await expectCode('invalid-argument', store.create('disk', key, diskRecord(1)), /key/);
      }
      await expectCode('invalid-argument', store.create('disk', 'a', { ...diskRecord(-5) }), /usedBytes -5/);
      await expectCode('invalid-argument', store.create('disk', 'a', { ...diskRecord(1), schema: 0 }), /schema 0/);
      await expectCode('failed-precondition', store.create('disk', 'a', { ...diskRecord(1), schema: 2 }), /schema 2/);
      expect((await store.list('disk')).items).toEqual([]);
    });

    it('stores records up to 1 MiB and refuses longer ones', async () => {
      const long = { ...diskRecord(1), reason: 'x'.repeat(1024 * 1024 - 200) };
      await store.create('disk', 'a', long);
      expect((await store.get('disk', 'a'))?.record).toEqual(long);
      const longer = { ...diskRecord(1), reason: 'x'.repeat(1024 * 1024) };
      await expectCode('invalid-argument', store.create('disk', 'b', longer), /1048576/);
    });

    it('lists more than a gRPC message takes by default', async () => {
      const reason = 'x'.repeat(500_000);
      for (let i = 0; i < 12; i++) await store.create('disk', `d${i}`, { ...diskRecord(i), reason });
      expect((await store.list('disk')).items).toHaveLength(12);
    });

    it('holds records, versions and changes over a restart', async () => {
      if (tested.restart === undefined) return;
      const { revision } = await store.list('disk');
      await store.create('disk', 'a', { ...diskRecord(1) });
      const b = await store.create('disk', 'b', diskRecord(2));
      await store.delete('disk', 'a');
      const again = await tested.restart();
      expect((await again.list('disk')).items).toEqual([b]);
      expect((await take(again.watch('disk', revision, end.signal), 3)).map(keyOf)).toEqual(['a', 'b', 'a']);
      const c = await again.update('disk', 'b', diskRecord(3), b.version);
      expect(c.version).not.toBe(b.version);
      await expectCode('conflict', again.update('disk', 'b', diskRecord(4), b.version));
    });
  });
}

async function addOne(store: RecordStore): Promise<void> {
  for (;;) {
    const now = await store.get('disk', 'd1');
    if (now === undefined) throw new Error('the record is gone');
    try {
      await store.update('disk', 'd1', { ...now.record, usedBytes: now.record.usedBytes + 1 }, now.version);
      return;
    } catch (error) {
      if (codeOf(error) !== 'conflict') throw error;
    }
  }
}

/** The first `count` changes of a watch, or fewer where it ends before. */
export async function take<T>(changes: AsyncIterable<Change<T>>, count: number): Promise<Change<T>[]> {
  const taken: Change<T>[] = [];
  for await (const change of changes) {
    taken.push(change);
    if (taken.length === count) break;
  }
  return taken;
}

export function keyOf(change: Change<unknown>): string {
  return change.type === 'put' ? change.item.key : change.key;
}

/** Expects the promise to fail with a code, and with words in its message. */
export async function expectCode(code: string, promise: Promise<unknown>, words = /./): Promise<void> {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(codeOf(error), String(error)).toBe(code);
  expect(String(error)).toMatch(words);
}
