import { describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { MemoryStore, StoreFaults } from '../../../src/store/memory-store.js';
import { follow } from '../../../src/store/watch.js';
import { diskRecord } from '../../contract/record-store.js';
import { HandClock } from './hand-clock.js';

describe('RecordCache', () => {
  function start(maxEntries = 100) {
    const clock = new HandClock();
    const faults = new StoreFaults();
    const store = new MemoryStore({ faults, bounds: { maxEntries, maxCharacters: 1_000_000 } });
    const end = new AbortController();
    const changes: string[] = [];
    const cache = follow(store, 'disk', end.signal, {
      clock,
      random: { fraction: () => 0 },
      log: silentLog(),
      onChange: (key, now, before) => {
        changes.push(`${key} ${before?.record.usedBytes ?? '-'}→${now?.record.usedBytes ?? '-'}`);
        if (key === 'bad') throw new Error('not my day');
      },
    });
    return { clock, faults, store, end, changes, cache };
  }

  it('shows what was there and what changes', async () => {
    const { clock, store, cache, changes } = start();
    const a = await store.create('disk', 'a', diskRecord(1));
    await cache.ready;
    await clock.advance(0);
    expect(cache.get('a')).toEqual(a);
    const b = await store.create('disk', 'b', diskRecord(2));
    await store.update('disk', 'a', diskRecord(3), a.version);
    await store.delete('disk', 'a');
    await clock.advance(0);
    expect(cache.all()).toEqual([b]);
    expect(changes).toEqual(['a -→1', 'b -→2', 'a 1→3', 'a 3→-']);
    expect(cache.current).toBe(true);
  });

  it('goes on after an outage and misses nothing', async () => {
    const { clock, faults, store, cache, changes } = start();
    await cache.ready;
    await clock.advance(100);
    faults.startOutage();
    await clock.advance(30_000);
    expect(cache.current).toBe(false);
    faults.endOutage();
    await store.create('disk', 'a', diskRecord(1));
    await store.delete('disk', 'a');
    await clock.advance(6000);
    expect(changes).toEqual(['a -→1', 'a 1→-']);
    expect(cache.current).toBe(true);
  });

  it('lists anew when the store has forgotten the changes in between', async () => {
    const { clock, faults, store, cache, changes } = start(3);
    const kept = await store.create('disk', 'kept', diskRecord(1));
    const gone = await store.create('disk', 'gone', diskRecord(1));
    await cache.ready;
    await clock.advance(100);
    changes.length = 0;
    faults.startOutage();
    await clock.advance(1000);
    faults.endOutage();
    await store.delete('disk', 'gone', gone.version);
    for (let i = 0; i < 5; i++) await store.create('disk', `n${i}`, diskRecord(i));
    await clock.advance(20_000);
    expect(cache.all().map((item) => item.key)).toEqual(['kept', 'n0', 'n1', 'n2', 'n3', 'n4']);
    expect(cache.get('kept')).toEqual(kept);
    expect(changes[0]).toBe('gone 1→-');
  });

  it('knows that it stands again though nothing changes', async () => {
    const { clock, faults, cache } = start();
    await cache.ready;
    faults.startOutage();
    await clock.advance(1000);
    faults.endOutage();
    await clock.advance(12_000);
    expect(cache.current).toBe(true);
  });

  it('survives a callback that throws', async () => {
    const { clock, store, cache } = start();
    await cache.ready;
    await store.create('disk', 'bad', diskRecord(1));
    const good = await store.create('disk', 'good', diskRecord(1));
    await clock.advance(0);
    expect(cache.get('good')).toEqual(good);
  });

  it('waits for a store that is not there yet, and ends when told', async () => {
    const { clock, faults, end, cache } = start();
    faults.startOutage();
    await clock.advance(60_000);
    faults.endOutage();
    await clock.advance(5000);
    await cache.ready;
    end.abort();
    await clock.advance(0);
    expect(clock.timers).toBe(0);
  });
});
