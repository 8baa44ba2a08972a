import { describe, expect, it } from 'vitest';
import { DescribeBatch, FILTER_VALUES_PER_CALL, IDS_PER_CALL } from '../../../src/ebs/describe-batch.js';
import { Ec2Error, type Ec2ErrorKind } from '../../../src/ebs/ec2-errors.js';
import { HandClock } from '../store/hand-clock.js';

interface Thing {
  readonly id: string;
}

/** An EC2 with things of which some ids are unknown. */
class Things {
  readonly calls: { form: 'ids' | 'filter'; ids: readonly string[] }[] = [];
  readonly clock = new HandClock();
  readonly missing = new Set<string>();
  failure: Ec2ErrorKind | undefined;
  /** Answers by ids wait for it. */
  held: Promise<void> = Promise.resolve();
  letGo: () => void = () => undefined;
  readonly batch = new DescribeBatch<Thing>(this.clock, {
    byIds: async (ids) => {
      this.#take('ids', ids);
      await this.held;
      if (ids.some((id) => this.missing.has(id))) throw new Ec2Error('not-found', 'failed', 'none');
      return ids.map((id) => ({ id }));
    },
    byFilter: (ids) => {
      this.#take('filter', ids);
      return Promise.resolve(ids.filter((id) => !this.missing.has(id)).map((id) => ({ id })));
    },
    idOf: ({ id }) => id,
  });

  #take(form: 'ids' | 'filter', ids: readonly string[]): void {
    this.calls.push({ form, ids });
    if (this.failure !== undefined) throw new Ec2Error(this.failure, 'failed', 'refused');
  }
}

function names(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `vol-${at}`);
}

/** All that is asked at once, answered in the next turn. */
async function answers(things: Things, asked: readonly string[][]): Promise<string[][]> {
  const found = asked.map((ids) => things.batch.describe(ids));
  await things.clock.advance(0);
  return (await Promise.all(found)).map((each) => [...each.keys()]);
}

describe('a batch of describes', () => {
  it('is one call for all that is asked in one turn, each id named once', async () => {
    const things = new Things();
    const asked = names(30).map((id) => [id, 'vol-0']);
    expect(await answers(things, asked)).toEqual(asked.map((ids) => [...new Set(ids)]));
    expect(things.calls).toEqual([{ form: 'ids', ids: names(30) }]);
  });

  it('asks again for what is asked in a later turn', async () => {
    const things = new Things();
    await answers(things, [['vol-1']]);
    await answers(things, [['vol-1']]);
    expect(things.calls).toHaveLength(2);
  });

  it('joins what is asked until its answer into the call after it', async () => {
    const things = new Things();
    things.held = new Promise((resolve) => (things.letGo = resolve));
    const first = things.batch.describe(['vol-0']);
    await things.clock.advance(10);
    const later: Promise<ReadonlyMap<string, Thing>>[] = [];
    for (const id of names(5)) {
      later.push(things.batch.describe([id]));
      await things.clock.advance(10);
    }
    expect(things.calls).toHaveLength(1);
    things.letGo();
    expect([...(await first).keys()]).toEqual(['vol-0']);
    expect((await Promise.all(later)).map((found) => [...found.keys()])).toEqual(names(5).map((id) => [id]));
    expect(things.calls.slice(1)).toEqual([{ form: 'ids', ids: names(5) }]);
  });

  it('is split at 500 ids', async () => {
    const things = new Things();
    const [found = []] = await answers(things, [names(IDS_PER_CALL + 1)]);
    expect(found).toHaveLength(IDS_PER_CALL + 1);
    expect(things.calls.map(({ ids }) => ids.length)).toEqual([IDS_PER_CALL, 1]);
  });

  it('lacks an unknown id for its asker alone', async () => {
    const things = new Things();
    things.missing.add('vol-1');
    expect(await answers(things, [['vol-0'], ['vol-1'], ['vol-1', 'vol-2']])).toEqual([['vol-0'], [], ['vol-2']]);
    expect(things.calls.map(({ form }) => form)).toEqual(['ids', 'filter']);
  });

  it('asks by filters of no more values than EC2 takes', async () => {
    const things = new Things();
    things.missing.add('vol-7');
    const [found = []] = await answers(things, [names(450)]);
    expect(found).toHaveLength(449);
    const sizes = things.calls.filter(({ form }) => form === 'filter').map(({ ids }) => ids.length);
    expect(sizes).toEqual([FILTER_VALUES_PER_CALL, FILTER_VALUES_PER_CALL, 50]);
  });

  it('costs one call for one unknown id', async () => {
    const things = new Things();
    things.missing.add('vol-0');
    expect(await answers(things, [['vol-0']])).toEqual([[]]);
    expect(things.calls).toHaveLength(1);
  });

  it('fails for all who were part of the call', async () => {
    const things = new Things();
    things.failure = 'denied';
    const asked = [things.batch.describe(['vol-0']), things.batch.describe(['vol-1'])];
    const ended = Promise.allSettled(asked);
    await things.clock.advance(0);
    expect((await ended).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });

  it('of nothing asks nothing', async () => {
    const things = new Things();
    expect(await answers(things, [[]])).toEqual([[]]);
    expect(things.calls).toEqual([]);
  });
});
