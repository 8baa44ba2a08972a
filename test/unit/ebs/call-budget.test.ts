import { describe, expect, it } from 'vitest';
import { NO_METERS } from '../../../src/base/meters.js';
import { BUDGET, CallBudget, type BudgetSettings } from '../../../src/ebs/call-budget.js';
import { Ec2Error, type Ec2ErrorKind } from '../../../src/ebs/ec2-errors.js';
import { MeterBook } from '../../../src/metrics/meter-book.js';
import { rowsOf } from '../../../src/metrics/table.js';
import { HandClock, settle } from '../store/hand-clock.js';

function error(kind: Ec2ErrorKind, outcome: Ec2Error['outcome'] = 'failed'): Ec2Error {
  return new Ec2Error(kind, outcome, kind);
}

class Fixture {
  readonly clock = new HandClock();
  readonly book = new MeterBook(rowsOf('controller'));
  readonly budget: CallBudget;
  readonly log: string[] = [];

  constructor(settings: Partial<BudgetSettings> = {}, fraction = 0.5) {
    this.budget = new CallBudget({
      clock: this.clock,
      random: { fraction: () => fraction },
      meters: this.book,
      settings: { ...BUDGET, ...settings },
    });
  }

  /** A call that fails with these in turn, and then succeeds. */
  call(name: string, failures: Ec2Error[] = [], unanswered: 'repeat' | 'look-first' = 'repeat'): Promise<string> {
    const left = [...failures];
    const attempt = (): Promise<string> => {
      this.log.push(`${name} ${this.clock.now()}`);
      const failure = left.shift();
      return failure === undefined ? Promise.resolve(name) : Promise.reject(failure);
    };
    const outcome = this.budget.run(unanswered, attempt);
    outcome.catch(() => undefined);
    return outcome;
  }

  gauge(name: string): number | undefined {
    return this.book.snapshot().values.find((value) => value.name === `holdfast_aws_budget_${name}`)?.value;
  }
}

/** No calls at once but one, and one a second. */
const SLOW = { firstPerSecond: 1, burst: 1, increasePerSecond: 0 };

describe('the budget of calls', () => {
  it('lets a burst through at once and the rest at its rate', async () => {
    const spread = new Fixture({ firstPerSecond: 2, burst: 3, increasePerSecond: 0 });
    for (let at = 0; at < 5; at++) void spread.call('call');
    await settle();
    expect(spread.log).toHaveLength(3);
    await spread.clock.advance(550);
    expect(spread.log).toHaveLength(4);
    await spread.clock.advance(550);
    expect(spread.log).toHaveLength(5);
  });

  it('halves its rate once for calls that are throttled together, and raises it with each that is taken', async () => {
    const fixture = new Fixture({ firstPerSecond: 8, burst: 10, increasePerSecond: 1 });
    for (let at = 0; at < 4; at++) void fixture.call('call', [error('throttled')]);
    await settle();
    expect(fixture.gauge('calls_per_second')).toBe(4);
    expect(fixture.gauge('tokens')).toBe(0);
    expect(fixture.gauge('waiting')).toBe(4);
    await fixture.clock.advance(5_000);
    expect(fixture.log).toHaveLength(8);
    expect(fixture.gauge('calls_per_second')).toBe(8);
    expect(fixture.gauge('waiting')).toBe(0);
  });

  it('keeps its rate within bounds', async () => {
    const fixture = new Fixture({
      firstPerSecond: 2,
      minPerSecond: 1,
      maxPerSecond: 3,
      increasePerSecond: 1,
      tries: 5,
    });
    void fixture.call('call', [error('throttled'), error('throttled'), error('throttled')]);
    await fixture.clock.advance(1_500);
    expect(fixture.gauge('calls_per_second')).toBe(1);
    await fixture.clock.advance(20_000);
    for (let at = 0; at < 8; at++) await fixture.call('call');
    expect(fixture.gauge('calls_per_second')).toBe(3);
  });

  it('pauses before each repeat by a part of a bound that doubles', async () => {
    const fixture = new Fixture({ firstPauseMs: 1_000, maxPauseMs: 3_000, burst: 100 }, 0.5);
    const unreachable = Array.from({ length: 4 }, () => error('unreachable', 'unknown'));
    void fixture.call('call', unreachable);
    await fixture.clock.advance(10_000);
    expect(fixture.log).toEqual(['call 0', 'call 500', 'call 1500', 'call 3000', 'call 4500']);
  });

  it('gives up after a bounded number of tries', async () => {
    const fixture = new Fixture({ tries: 3 });
    const outcome = fixture.call(
      'call',
      Array.from({ length: 9 }, () => error('throttled')),
    );
    await fixture.clock.advance(60_000);
    await expect(outcome).rejects.toMatchObject({ kind: 'throttled', outcome: 'failed' });
    expect(fixture.log).toHaveLength(3);
  });

  it.each<[Ec2ErrorKind, number]>([
    ['denied', 1],
    ['invalid', 1],
    ['not-found', 1],
    ['clock-skew', 2],
    ['expired-credentials', 2],
  ])('spends on a call that is %s %i tries', async (kind, tries) => {
    const fixture = new Fixture();
    const outcome = fixture.call(
      'call',
      Array.from({ length: 9 }, () => error(kind)),
    );
    await fixture.clock.advance(60_000);
    await expect(outcome).rejects.toMatchObject({ kind });
    expect(fixture.log).toHaveLength(tries);
  });

  it('does not repeat what is neither done nor failed where the caller has to look first', async () => {
    const fixture = new Fixture();
    const outcome = fixture.call('attach', [error('throttled'), error('server', 'unknown')], 'look-first');
    await fixture.clock.advance(60_000);
    await expect(outcome).rejects.toMatchObject({ kind: 'server', outcome: 'unknown' });
    expect(fixture.log).toHaveLength(2);
  });

  it('does not call a repeat failed for certain when nobody knows of the try before it', async () => {
    const fixture = new Fixture();
    const outcome = fixture.call('create', [error('unreachable', 'unknown'), error('limit')]);
    await fixture.clock.advance(60_000);
    await expect(outcome).rejects.toMatchObject({ kind: 'limit', outcome: 'unknown' });
  });

  it('lets first tries through between the repeats of others', async () => {
    const fixture = new Fixture({ ...SLOW, firstPauseMs: 0, tries: 20 });
    const failures = Array.from({ length: 9 }, () => error('unreachable', 'unknown'));
    for (let at = 0; at < 10; at++) void fixture.call('loud', failures);
    await fixture.clock.advance(20_000);
    const before = fixture.log.length;
    for (let at = 0; at < 3; at++) void fixture.call('quiet');
    await fixture.clock.advance(6_100);
    expect(fixture.log.slice(before).filter((line) => line.startsWith('quiet'))).toHaveLength(3);
    expect(fixture.log.slice(before).filter((line) => line.startsWith('loud')).length).toBeGreaterThanOrEqual(3);
  });

  it('that is closed refuses who waits, pauses or comes', async () => {
    const fixture = new Fixture({ ...SLOW });
    const pausing = fixture.call('pausing', [error('unreachable', 'unknown')]);
    await settle();
    const waiting = fixture.call('waiting');
    fixture.budget.close();
    await expect(pausing).rejects.toMatchObject({ code: 'cancelled' });
    await expect(waiting).rejects.toMatchObject({ code: 'cancelled' });
    await expect(fixture.call('late')).rejects.toMatchObject({ code: 'cancelled' });
    expect(fixture.clock.timers).toBe(0);
  });

  it('passes defects on as they are', async () => {
    const budget = new CallBudget({ clock: new HandClock(), random: { fraction: () => 0 }, meters: NO_METERS });
    const defect = new TypeError('a defect');
    await expect(budget.run('repeat', () => Promise.reject(defect))).rejects.toBe(defect);
  });
});
