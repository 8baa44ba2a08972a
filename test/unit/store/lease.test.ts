import { describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { LeaseKeeper, LeaseObserver } from '../../../src/store/lease.js';
import { MemoryStore, StoreFaults } from '../../../src/store/memory-store.js';
import { HandClock, settle } from './hand-clock.js';

class World {
  readonly clock = new HandClock();
  readonly faults = new StoreFaults();
  readonly store = new MemoryStore({ faults: this.faults });
  readonly end = new AbortController();

  keeper(node: string, nodeUid = `uid-${node}`, intervalMs = 3000): { keeper: LeaseKeeper; stop: () => void } {
    const keeper = new LeaseKeeper({
      store: this.store,
      node,
      nodeUid,
      intervalMs,
      clock: this.clock,
      log: silentLog(),
    });
    const stop = new AbortController();
    void keeper.run(stop.signal);
    return { keeper, stop: () => stop.abort() };
  }

  observer(): LeaseObserver {
    return new LeaseObserver({ store: this.store, clock: this.clock, log: silentLog() });
  }

  /** Whether a wait for the expiry of the node's lease has ended. */
  expiry(observer: LeaseObserver, node: string): { done: boolean } {
    const state = { done: false };
    void observer.waitExpired(node, this.end.signal).then(
      () => (state.done = true),
      () => undefined,
    );
    return state;
  }

  async uidOf(node: string): Promise<string | undefined> {
    return (await this.store.get('lease', node))?.record.nodeUid;
  }
}

describe('LeaseKeeper', () => {
  it('creates the lease and gives it a new version every interval', async () => {
    const world = new World();
    const { keeper } = world.keeper('a');
    await keeper.held;
    const versions = new Set<string | undefined>();
    for (let i = 0; i < 5; i++) {
      versions.add((await world.store.get('lease', 'a'))?.version);
      await world.clock.advance(3000);
    }
    expect(versions.size).toBe(5);
  });

  it('stops when it is told and leaves no timer', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a');
    await keeper.held;
    stop();
    await settle();
    const { version } = (await world.store.get('lease', 'a')) ?? {};
    await world.clock.advance(30_000);
    expect((await world.store.get('lease', 'a'))?.version).toBe(version);
    expect(world.clock.timers).toBe(0);
  });

  it('renews again within a second after an outage of the store', async () => {
    const world = new World();
    const { keeper } = world.keeper('a');
    await keeper.held;
    const { version } = (await world.store.get('lease', 'a')) ?? {};
    world.faults.startOutage();
    await world.clock.advance(60_000);
    world.faults.endOutage();
    await world.clock.advance(1000);
    expect((await world.store.get('lease', 'a'))?.version).not.toBe(version);
  });

  it('goes on after a renewal whose answer was lost', async () => {
    const world = new World();
    const { keeper } = world.keeper('a');
    await keeper.held;
    world.faults.next('update', { lose: 'answer' });
    await world.clock.advance(4000);
    const lease = await world.store.get('lease', 'a');
    expect(lease?.record.beat).toBeGreaterThanOrEqual(3);
    await world.clock.advance(3000);
    expect((await world.store.get('lease', 'a'))?.version).not.toBe(lease?.version);
  });

  it('makes the lease again when somebody deleted it', async () => {
    const world = new World();
    const { keeper } = world.keeper('a');
    await keeper.held;
    await world.store.delete('lease', 'a');
    await world.clock.advance(5000);
    expect(await world.uidOf('a')).toBe('uid-a');
  });

  it('takes over the lease of an earlier incarnation only when that stands still', async () => {
    const world = new World();
    const old = world.keeper('a', 'old');
    await old.keeper.held;
    old.stop();
    world.keeper('a', 'new');
    await world.clock.advance(9000);
    expect(await world.uidOf('a')).toBe('old');
    await world.clock.advance(3000);
    expect(await world.uidOf('a')).toBe('new');
  });

  it('keeps out while another live node renews under its name', async () => {
    const world = new World();
    const first = world.keeper('a', 'first');
    await first.keeper.held;
    world.keeper('a', 'second');
    await world.clock.advance(120_000);
    expect(await world.uidOf('a')).toBe('first');
  });

  it('keeps fields that it does not know', async () => {
    const world = new World();
    const record = { schema: 1, nodeUid: 'uid-a', intervalMs: 3000, beat: 5, later: 'x' };
    await world.store.create('lease', 'a', record);
    await world.keeper('a').keeper.held;
    expect((await world.store.get('lease', 'a'))?.record).toEqual({ ...record, beat: 6 });
  });

  it('refuses an interval that would never pause', () => {
    expect(() => new World().keeper('a', 'u', 0)).toThrow(/leaseIntervalMs 0/);
  });
});

describe('LeaseObserver', () => {
  it('never calls a lease expired that is renewed', async () => {
    const world = new World();
    await world.keeper('a').keeper.held;
    const observer = world.observer();
    const expiry = world.expiry(observer, 'a');
    await world.clock.advance(300_000);
    expect(expiry.done).toBe(false);
    expect(observer.state('a')).toBe('live');
  });

  it('calls a lease expired after it stood still for ten seconds', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a');
    await keeper.held;
    stop();
    const expiry = world.expiry(world.observer(), 'a');
    await world.clock.advance(9500);
    expect(expiry.done).toBe(false);
    await world.clock.advance(1500);
    expect(expiry.done).toBe(true);
  });

  it('waits longer for a lease with a longer interval', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a', 'u', 10_000);
    await keeper.held;
    stop();
    const expiry = world.expiry(world.observer(), 'a');
    await world.clock.advance(32_500);
    expect(expiry.done).toBe(false);
    await world.clock.advance(2000);
    expect(expiry.done).toBe(true);
  });

  it('calls a missing lease expired after it was missing for ten seconds', async () => {
    const world = new World();
    const expiry = world.expiry(world.observer(), 'a');
    await world.clock.advance(9500);
    expect(expiry.done).toBe(false);
    await world.clock.advance(1500);
    expect(expiry.done).toBe(true);
  });

  it('counts anew after an outage of the store, so that no node is called dead on its return', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a');
    await keeper.held;
    stop();
    const expiry = world.expiry(world.observer(), 'a');
    await world.clock.advance(8000);
    world.faults.startOutage();
    await world.clock.advance(60_000);
    expect(expiry.done).toBe(false);
    world.faults.endOutage();
    await world.clock.advance(9500);
    expect(expiry.done).toBe(false);
    await world.clock.advance(2500);
    expect(expiry.done).toBe(true);
  });

  it('counts on over a single failed read', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a');
    await keeper.held;
    stop();
    const expiry = world.expiry(world.observer(), 'a');
    await world.clock.advance(5500);
    world.faults.next('get', { lose: 'answer' });
    await world.clock.advance(5500);
    expect(expiry.done).toBe(true);
  });

  it('counts nothing while it stood still itself', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a');
    await keeper.held;
    stop();
    const observer = world.observer();
    let goOn: () => void = () => undefined;
    const expiry = world.expiry(observer, 'a');
    await world.clock.advance(2500);
    world.faults.next('get', { after: new Promise((resolve) => (goOn = resolve)) });
    await world.clock.advance(60_000);
    goOn();
    await world.clock.advance(9500);
    expect(expiry.done).toBe(false);
    await world.clock.advance(2500);
    expect(expiry.done).toBe(true);
  });

  it('watches all leases at once and tells the state of each', async () => {
    const world = new World();
    await world.keeper('alive').keeper.held;
    const dead = world.keeper('dead');
    await dead.keeper.held;
    dead.stop();
    const observer = world.observer();
    const run = new AbortController();
    void observer.run(run.signal);
    await world.clock.advance(100);
    expect(observer.state('dead')).toBe('live');
    expect(observer.state('never-seen')).toBe('unknown');
    const expiry = world.expiry(observer, 'dead');
    await world.clock.advance(12_000);
    expect([observer.state('alive'), observer.state('dead'), observer.state('never-seen')]).toEqual([
      'live',
      'expired',
      'expired',
    ]);
    expect(expiry.done).toBe(true);
    run.abort();
    await world.clock.advance(5000);
    expect(observer.state('dead')).toBe('unknown');
    expect(world.clock.timers).toBe(1);
  });

  it('knows nothing while the store is away', async () => {
    const world = new World();
    const { keeper, stop } = world.keeper('a');
    await keeper.held;
    stop();
    const observer = world.observer();
    void observer.run(world.end.signal);
    await world.clock.advance(12_000);
    expect(observer.state('a')).toBe('expired');
    world.faults.startOutage();
    await world.clock.advance(5000);
    expect(observer.state('a')).toBe('unknown');
  });

  it('ends a wait when it is aborted, and reads no more', async () => {
    const world = new World();
    const observer = world.observer();
    const wait = observer.waitExpired('a', world.end.signal);
    await world.clock.advance(100);
    world.end.abort();
    await expect(wait).rejects.toMatchObject({ code: 'cancelled' });
    expect(world.clock.timers).toBe(0);
  });

  it('goes on waiting on its own when the watch of all leases ends', async () => {
    const world = new World();
    const observer = world.observer();
    const run = new AbortController();
    void observer.run(run.signal);
    const expiry = world.expiry(observer, 'a');
    await world.clock.advance(3000);
    run.abort();
    await world.clock.advance(11_000);
    expect(expiry.done).toBe(true);
  });
});
