import { describe, expect, it } from 'vitest';
import type { History } from '../../history/history.js';
import { attached, type HistoryBuilder, rules, torn } from './build.js';

describe('over attachments', () => {
  it('what was in flight takes effect before the next one serves, or never', () => {
    const left = (): HistoryBuilder =>
      attached()
        .write(1, { at: [0, 1] })
        .write(2, { at: [2, Infinity] })
        .attachment(10);
    expect(rules(left().read(2, { at: [11, 12] }).history)).toEqual([]);
    expect(rules(left().read(1, { at: [11, 12] }).history)).toEqual([]);
    const late = left()
      .read(1, { at: [11, 12] })
      .read(2, { at: [13, 14] });
    expect(rules(late.history)).toEqual(['I3']);
    const over = left()
      .write(3, { at: [11, 12] })
      .read(2, { at: [13, 14] });
    expect(rules(over.history)).toEqual(['I3']);
  });

  it('an older one may acknowledge late, but only what the newer one holds', () => {
    const late = (): HistoryBuilder =>
      attached()
        .write(1, { at: [0, 15] })
        .attachment(10);
    expect(rules(late().read(1, { at: [11, 12], attachment: 1 }).history)).toEqual([]);
    expect(rules(late().read(0, { at: [11, 12], attachment: 1 }).history)).toEqual(['I2']);
  });

  it('an older one may not acknowledge what it was asked after the newer one served', () => {
    const { history } = attached()
      .attachment(10)
      .write(1, { at: [11, 12], attachment: 0 });
    expect(rules(history)).toEqual(['I3']);
  });

  it('what an older one was asked after the newer one served is never seen', () => {
    const zombie = (): HistoryBuilder =>
      attached()
        .attachment(10)
        .write(1, { at: [11, 12], attachment: 0, outcome: 'failed' });
    expect(rules(zombie().read(0, { at: [13, 14] }).history)).toEqual([]);
    expect(rules(zombie().read(1, { at: [13, 14] }).history)).toEqual(['I3']);
  });

  it('an older one may not return what the newer one has overwritten', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .attachment(10)
      .write(2, { at: [11, 12] })
      .read(1, { at: [13, 14], attachment: 0 });
    expect(rules(history)).toEqual(['I2']);
  });

  it('acknowledged writes are there without a flush, unless every replica had crashed', () => {
    const story = (lossAllowed: boolean): History =>
      attached()
        .write(1, { at: [0, 1] })
        .attachment(10, { lossAllowed })
        .read(0, { at: [11, 12] }).history;
    expect(rules(story(false))).toEqual(['I2']);
    expect(rules(story(true))).toEqual([]);
  });
});

describe('after a loss of unflushed writes', () => {
  const lost = (): HistoryBuilder => attached().attachment(10, { lossAllowed: true });

  it('a flushed write, and one with FUA, are there still', () => {
    const flushed = attached()
      .write(1, { at: [0, 1] })
      .flush({ at: [2, 3] })
      .attachment(10, { lossAllowed: true })
      .read(0, { at: [11, 12] });
    expect(rules(flushed.history)).toEqual(['I1']);
    const fua = attached()
      .write(1, { at: [0, 1], fua: true })
      .write(2, { at: [2, 3] })
      .attachment(10, { lossAllowed: true });
    expect(rules(fua.read(1, { at: [11, 12] }).history)).toEqual([]);
    expect(rules(fua.read(0, { at: [13, 14] }).history)).toEqual(['I1']);
  });

  it('a flush that failed, or began before the write ended, or was answered too late, keeps nothing', () => {
    const flushes = [
      { at: [2, 3], outcome: 'failed' },
      { at: [1, 3] },
      { at: [2, 11] },
      { at: [2, Infinity] },
    ] as const;
    for (const flush of flushes) {
      const { history } = attached()
        .write(1, { at: [0, 1] })
        .flush(flush)
        .attachment(10, { lossAllowed: true })
        .read(0, { at: [11, 12] });
      expect(rules(history)).toEqual([]);
    }
  });

  it('any unflushed value may be there, also torn, but from then on it stays', () => {
    const written = (): HistoryBuilder =>
      attached()
        .write(1, { at: [0, 1] })
        .flush({ at: [2, 3] })
        .write(2, { at: [4, 5] })
        .write(3, { at: [6, 7] })
        .attachment(10, { lossAllowed: true });
    for (const value of [1, 2, 3]) expect(rules(written().read(value, { at: [11, 12] }).history)).toEqual([]);
    const halves = written()
      .read([torn(1, 4, 3)], { at: [11, 12] })
      .read([torn(1, 4, 3)], { at: [13, 14] });
    expect(rules(halves.history)).toEqual([]);
    const flips = written()
      .read(2, { at: [11, 12] })
      .read(3, { at: [13, 14] });
    expect(rules(flips.history)).toEqual(['I4']);
  });

  it('what was read before it does not bind', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .read(1, { at: [2, 3] })
      .attachment(10, { lossAllowed: true })
      .read(0, { at: [11, 12] });
    expect(rules(history)).toEqual([]);
  });

  it('new writes count as ever', () => {
    const { history } = lost()
      .write(1, { at: [11, 12] })
      .read(0, { at: [13, 14] });
    expect(rules(history)).toEqual(['I2']);
  });

  it('another one may bring other values back, but for what was read between them and flushed', () => {
    const twice = (flushed: boolean): HistoryBuilder => {
      const builder = attached()
        .write(1, { at: [0, 1] })
        .attachment(10, { lossAllowed: true })
        .read(0, { at: [11, 12] });
      if (flushed) builder.flush({ at: [13, 14] });
      return builder.attachment(20, { lossAllowed: true });
    };
    expect(rules(twice(false).read(1, { at: [21, 22] }).history)).toEqual([]);
    expect(rules(twice(true).read(0, { at: [21, 22] }).history)).toEqual([]);
    expect(rules(twice(true).read(1, { at: [21, 22] }).history)).toEqual(['I1']);
    const kept = attached()
      .write(1, { at: [0, 1] })
      .attachment(10, { lossAllowed: true })
      .read(1, { at: [11, 12] })
      .flush({ at: [13, 14] })
      .attachment(20, { lossAllowed: true });
    expect(rules(kept.read(0, { at: [21, 22] }).history)).toEqual(['I1']);
  });

  it('a flush after it does not make durable what it had taken', () => {
    const { history } = attached()
      .write(1, { at: [0, 1] })
      .write(2, { at: [2, 3] })
      .attachment(10, { lossAllowed: true })
      .flush({ at: [11, 12] })
      .attachment(20, { lossAllowed: true })
      .read(1, { at: [21, 22] });
    expect(rules(history)).toEqual([]);
  });
});
