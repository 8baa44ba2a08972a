import { describe, expect, it } from 'vitest';
import { changesBetween, type VolumeSight } from '../../../src/drill/changes.js';
import { longestPause } from '../../../src/drill/drill.js';
import type { LoadState } from '../../../src/drill/load.js';
import { judgeDrill, verdictText, type DrillFacts, type NodeCheck } from '../../../src/drill/verdict.js';

const RIGHT: NodeCheck = { node: 'a', blocks: 90, lost: 0, damaged: 0, examples: [] };
const FACTS: DrillFacts = {
  acknowledged: 100,
  checks: [RIGHT, { ...RIGHT, node: 'b' }],
  longestPauseMs: 5_140,
  healthyAfterMs: 2_000,
  unexcusedErrors: [],
};

describe('the verdict', () => {
  it('is PASS where all that was acknowledged is there, on every node, and the volume is healthy', () => {
    const verdict = judgeDrill(FACTS);
    expect(verdict).toEqual({ pass: true, reasons: [] });
    expect(
      verdictText(FACTS, verdict)
        .split('\n')
        .map((line) => line.trimEnd()),
    ).toEqual([
      'RESULT',
      'acknowledged writes checked  100, in 90 blocks, read on node a, b',
      'lost                         0',
      'damaged blocks               0',
      'longest pause of I/O         5.1 s',
      'healthy after the fault      in 2.0 s',
      'verdict                      PASS',
    ]);
  });

  it.each<[string, Partial<DrillFacts>, RegExp]>([
    [
      'a write is missing on one node',
      { checks: [RIGHT, { ...RIGHT, node: 'b', lost: 1, examples: ['block 7 holds write 1, acknowledged was 2'] }] },
      /^1 acknowledged writes are missing on node b: block 7/,
    ],
    ['a block is damaged', { checks: [{ ...RIGHT, damaged: 2 }] }, /^2 blocks are damaged on node a/],
    ['nothing was checked', { checks: [] }, /^nothing could be checked$/],
    ['nothing was acknowledged', { acknowledged: 0 }, /^no write was acknowledged/],
    ['I/O failed without excuse', { unexcusedErrors: ['I/O on node a failed: EIO'] }, /^I\/O on node a failed: EIO$/],
    ['it is not healthy again', { healthyAfterMs: undefined }, /^the volume did not become healthy again$/],
  ])('is FAIL where %s, and says so', (_what, change, reason) => {
    const facts = { ...FACTS, ...change };
    const verdict = judgeDrill(facts);
    expect(verdict.pass).toBe(false);
    expect(verdict.reasons).toEqual([expect.stringMatching(reason)]);
    expect(verdictText(facts, verdict)).toContain('FAIL');
  });
});

describe('the longest pause', () => {
  const load = (state: Partial<LoadState>): { state: LoadState } => ({
    state: { kind: 'state', acknowledged: 1, firstAt: 1, lastAt: 1, longestPauseMs: 0, ...state },
  });

  it('spans the move from one node to the next', () => {
    expect(longestPause([load({ lastAt: 1_000, longestPauseMs: 30 }), load({ firstAt: 14_000 })])).toBe(13_000);
  });

  it('is that of a load where nothing moves, or nothing came of the move', () => {
    expect(longestPause([load({ longestPauseMs: 30 })])).toBe(30);
    expect(longestPause([load({ lastAt: 9_000, longestPauseMs: 30 }), load({ firstAt: 0 })])).toBe(30);
  });
});

describe('what is told of a volume', () => {
  const SIGHT: VolumeSight = {
    health: 'healthy',
    conditions: [],
    epoch: 2,
    writer: 'a',
    inSync: ['a', 'b'],
    resync: undefined,
  };

  it('is what has changed', () => {
    expect(changesBetween(SIGHT, SIGHT)).toEqual([]);
    expect(
      changesBetween(SIGHT, { ...SIGHT, epoch: 3, inSync: ['a'], health: 'degraded', conditions: ['x: y'] }),
    ).toEqual(['drop: the replica on node b leaves the in-sync set (epoch 3)', 'the volume is degraded: x: y']);
    expect(changesBetween(SIGHT, { ...SIGHT, epoch: 4, writer: 'b' })).toEqual([
      'take-over: node b is the writer (epoch 4)',
    ]);
    const behind = { ...SIGHT, inSync: ['a'], resync: { node: 'b', regions: 3 } };
    expect(changesBetween({ ...behind, resync: undefined }, behind)).toEqual([
      'resync of the replica on node b begins',
    ]);
    expect(changesBetween(behind, SIGHT)).toEqual(['the replica on node b is in sync again (epoch 2)']);
  });
});
