import fc from 'fast-check';
import { describe, it } from 'vitest';
import { checkHistory } from '../../history/history.js';
import { historiesOfLosses, readsOverLoss, smallHistories } from './arbitrary.js';
import { isLegal } from './oracle.js';

const RUNS = Number(process.env['HOLDFAST_ORACLE_RUNS'] ?? '4000');

const few = { most: 7 };
/** Of losses and operations in a row. */
const long = { most: 11 };

/** The checker against a search through all orders of a few operations. */
describe('the checker of histories', { timeout: 600_000 }, () => {
  it.each([
    ['of operations at the same time', smallHistories({ trims: true, ...few })],
    ['of losses', historiesOfLosses({ trims: true, ...long })],
  ])('raises no alarm at what a volume may do: histories %s', (_, histories) => {
    fc.assert(
      fc.property(histories, (history) => checkHistory(history).length === 0 || !isLegal(history)),
      { numRuns: RUNS },
    );
  });

  it.each([
    ['of operations at the same time', smallHistories({ trims: false, ...few })],
    ['of losses', historiesOfLosses({ trims: false, ...long })],
  ])('misses nothing where every value tells which write made it: histories %s', (_, histories) => {
    fc.assert(
      fc.property(histories, (history) => {
        fc.pre(!readsOverLoss(history));
        return checkHistory(history).length > 0 || isLegal(history);
      }),
      { numRuns: RUNS },
    );
  });
});
