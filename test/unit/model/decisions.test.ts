import { describe, expect, it } from 'vitest';
import { decided, KEPT_DECISIONS } from '../../../src/model/decisions.js';
import { volumeRecord } from '../csi/node-fakes.js';

const record = volumeRecord(`vol-${'a'.repeat(32)}`);
const decision = { at: '2026-01-01T00:00:00.000Z', by: 'a', what: 'took over' };

describe('the decisions in a record', () => {
  it('carry the epoch of the change, and older records have none', () => {
    expect(record.decisions).toBeUndefined();
    expect(decided({ ...record, epoch: 7 }, decision).decisions).toEqual([{ ...decision, epoch: 7 }]);
  });

  it('are the last ones only', () => {
    let changed = record;
    for (let i = 0; i < 40; i++) changed = decided(changed, { ...decision, what: `change ${i}` });
    expect(changed.decisions).toHaveLength(KEPT_DECISIONS);
    expect(changed.decisions?.at(-1)?.what).toBe('change 39');
  });

  it('that repeat the one before are one with a count and the latest time', () => {
    let changed = decided(record, { ...decision, what: 'before' });
    for (let i = 1; i <= 3; i++) changed = decided({ ...changed, epoch: i }, { ...decision, at: `time ${i}` });
    expect(changed.decisions).toEqual([
      { ...decision, what: 'before', epoch: 1 },
      { ...decision, at: 'time 3', epoch: 3, times: 3 },
    ]);
    expect(decided(changed, { ...decision, by: 'b' }).decisions).toHaveLength(3);
  });

  it('stay short, whatever is told in them', () => {
    const [told] = decided(record, { ...decision, what: 'x'.repeat(5_000) }).decisions ?? [];
    expect(told?.what.length).toBeLessThanOrEqual(400);
  });
});
