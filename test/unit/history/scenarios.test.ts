import { describe, expect, it } from 'vitest';
import { checkHistory, CORRUPT } from '../../history/history.js';
import { attached, type HistoryBuilder, rules, torn } from './build.js';

describe('within one attachment', () => {
  it('reads of the last acknowledged write are legal, and of one still in flight', () => {
    const { history } = attached()
      .read(0, { at: [1, 2] })
      .write(1, { at: [3, 4] })
      .read(1, { at: [5, 6] })
      .write(2, { at: [7, 20] })
      .read(1, { at: [8, 9] })
      .read(2, { at: [10, 11] })
      .read(2, { at: [12, 13] });
    expect(rules(history)).toEqual([]);
  });

  it('a read may not return what was overwritten', () => {
    const { history } = attached()
      .write(1, { at: [1, 2] })
      .write(2, { at: [3, 4] })
      .read(1, { at: [5, 6] })
      .read(2, { at: [7, 8] });
    expect(rules(history)).toEqual(['I4']);
  });

  it('an acknowledged write that never appears is lost', () => {
    const { history } = attached()
      .write(1, { at: [1, 2] })
      .write(2, { at: [3, 4] })
      .read(1, { at: [5, 6] });
    expect(rules(history)).toEqual(['I2']);
  });

  it('a flushed write that never appears is lost against I1, and so is one with FUA', () => {
    const flushed = attached()
      .write(1, { at: [1, 2] })
      .flush({ at: [3, 4] })
      .read(0, { at: [5, 6] });
    expect(rules(flushed.history)).toEqual(['I1']);
    const fua = attached()
      .write(1, { at: [1, 2], fua: true })
      .read(0, { at: [5, 6] });
    expect(rules(fua.history)).toEqual(['I1']);
  });

  it('writes at the same time may take effect in either order, but not in both', () => {
    const together = (): HistoryBuilder =>
      attached()
        .write(1, { at: [1, 10] })
        .write(2, { at: [1, 10] });
    expect(rules(together().read(1, { at: [11, 12] }).history)).toEqual([]);
    expect(rules(together().read(2, { at: [11, 12] }).history)).toEqual([]);
    const flips = together()
      .read(1, { at: [11, 12] })
      .read(2, { at: [13, 14] });
    expect(rules(flips.history)).toEqual(['I4']);
  });

  it('reads at the same time as a write may differ, but what was seen does not flip back', () => {
    const written = (): HistoryBuilder =>
      attached()
        .write(1, { at: [0, 1] })
        .write(2, { at: [2, 20] });
    const overlapping = written()
      .read(2, { at: [5, 9] })
      .read(1, { at: [8, 10] });
    expect(rules(overlapping.history)).toEqual([]);
    const flips = written()
      .read(2, { at: [5, 7] })
      .read(1, { at: [8, 10] });
    expect(rules(flips.history)).toEqual(['I4']);
  });

  it('a write that failed may take effect late, or never, but not in turns', () => {
    const failed = (): HistoryBuilder =>
      attached()
        .write(1, { at: [0, 1] })
        .write(2, { at: [2, 3], outcome: 'failed' })
        .read(1, { at: [4, 5] });
    expect(rules(failed().read(2, { at: [6, 7] }).history)).toEqual([]);
    expect(rules(failed().read(1, { at: [6, 7] }).history)).toEqual([]);
    const turns = failed()
      .read(2, { at: [6, 7] })
      .read(1, { at: [8, 9] });
    expect(rules(turns.history)).toEqual(['I4']);
  });

  it('a write that failed may be torn; one that was acknowledged not, once it is', () => {
    const pending = attached()
      .write(1, { at: [0, 1] })
      .write(2, { at: [2, Infinity] })
      .read([torn(2, 3, 1)], { at: [3, 4] })
      .read([torn(2, 3, 1)], { at: [5, 6] });
    expect(rules(pending.history)).toEqual([]);
    const done = attached()
      .write(1, { at: [0, 1] })
      .write(2, { at: [2, 3] })
      .read([torn(2, 3, 1)], { at: [4, 5] });
    expect(checkHistory(done.history).map(({ text }) => text.slice(0, 21))).toEqual(['I2: block 0, sector 3']);
  });

  it('each sector of a torn block has a history of its own', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .write(2, { at: [2, Infinity] })
      .read([torn(2, 3, 1)], { at: [3, 4] })
      .read([torn(2, 2, 1)], { at: [5, 6] });
    expect(checkHistory(history).map(({ text }) => text.slice(0, 21))).toEqual(['I4: block 0, sector 2']);
  });

  it('a write over several blocks is not atomic between them', () => {
    const { history } = attached()
      .write(1, { at: [0, 10], firstBlock: 4, blockCount: 2 })
      .read([0, 1], { at: [2, 3], firstBlock: 4 })
      .read([1, 1], { at: [11, 12], firstBlock: 4 });
    expect(rules(history)).toEqual([]);
  });

  it('bytes that no write made are rot: corrupt ones, of another block, or from the future', () => {
    expect(rules(attached().read(CORRUPT, { at: [1, 2] }).history)).toEqual(['rot']);
    const misplaced = attached()
      .write(7, { at: [0, 1], firstBlock: 3 })
      .read(7, { at: [2, 3] });
    expect(rules(misplaced.history)).toEqual(['rot']);
    const early = attached()
      .read(1, { at: [0, 1] })
      .write(1, { at: [2, 3] });
    expect(rules(early.history)).toEqual(['rot']);
  });

  it('reports one violation for each block', () => {
    const { history } = attached()
      .read([CORRUPT, 0, CORRUPT], { at: [1, 2] })
      .read([CORRUPT, 0, 0], { at: [3, 4] });
    expect(checkHistory(history).map(({ block }) => block)).toEqual([0, 2]);
  });

  it('what was asked and not answered says nothing', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .read([], { at: [2, 3], outcome: 'failed', blockCount: 1 })
      .read([], { at: [2, Infinity], blockCount: 1 });
    expect(rules(history)).toEqual([]);
  });
});

describe('zeros', () => {
  it('come from a trim, or the start, until something overwrote them for certain', () => {
    const { history } = attached()
      .write(1, { at: [1, 2] })
      .trim({ at: [3, 4] })
      .read(0, { at: [5, 6] })
      .write(2, { at: [7, 8] })
      .trim({ at: [9, Infinity] })
      .read(2, { at: [10, 11] })
      .read(0, { at: [12, 13] });
    expect(rules(history)).toEqual([]);
  });

  it('may not be there after an acknowledged write', () => {
    const after = attached()
      .trim({ at: [0, 1] })
      .write(1, { at: [2, 3] })
      .read(0, { at: [4, 5] })
      .trim({ at: [6, 7] });
    expect(rules(after.history)).toEqual(['I2']);
  });

  it('may not be there after an acknowledged write, whatever else was under way', () => {
    const { history } = attached()
      .write(1, { at: [1, 6] })
      .trim({ at: [2, 3] })
      .write(2, { at: [4, 5] })
      .read(0, { at: [7, 8] });
    expect(rules(history)).toEqual(['I2']);
  });

  it('may not hide between reads of one write', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .read(1, { at: [2, 3] })
      .read(0, { at: [4, 5] })
      .read(1, { at: [6, 7] });
    expect(rules(history)).toEqual(['I4']);
  });

  it('of an acknowledged trim may not be lost', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .trim({ at: [2, 3] })
      .read(1, { at: [4, 5] });
    expect(rules(history)).toEqual(['I2']);
  });

  it('of a trim that only one read can have seen make that trim certain', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .trim({ at: [2, Infinity] })
      .read(0, { at: [3, 4] })
      .read(1, { at: [5, 6] });
    expect(rules(history)).toEqual(['I4']);
  });

  it('are not told apart where two trims may have made them', () => {
    const { history } = attached()
      .trim({ at: [0, 20] })
      .trim({ at: [0, 20] })
      .write(1, { at: [1, 2] })
      .read(0, { at: [3, 4] })
      .read(0, { at: [5, 6] });
    expect(rules(history)).toEqual([]);
  });
});
