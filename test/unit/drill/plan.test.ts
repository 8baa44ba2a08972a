import { describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { describeFault, planDrill, type DrillFlags, type DrillKind } from '../../../src/drill/plan.js';

const NODES = ['a', 'b', 'c'];

function refusal(kind: DrillKind, flags: DrillFlags, nodes = NODES): string {
  try {
    planDrill(kind, flags, nodes, 'x');
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    return (error as HoldfastError).message;
  }
  throw new Error('was not refused');
}

describe('the plan of a drill', () => {
  it('uses the volume on the node that the fault befalls', () => {
    expect(planDrill('kill', { node: 'b' }, NODES, '1f')).toEqual({
      fault: { kind: 'kill', node: 'b' },
      seconds: 3,
      user: 'b',
      touched: ['b'],
      volumeName: 'drill-1f',
      replicas: 2,
      moves: false,
    });
  });

  it('takes node names with and without their prefix, and other flags as they are', () => {
    const plan = planDrill('fill', { node: 'node-a', on: 'node-c', seconds: '7', volume: 'mine' }, NODES, 'x');
    expect(plan).toMatchObject({ fault: { kind: 'fill', node: 'a' }, user: 'c', seconds: 7, volumeName: 'mine' });
    // A replica on every node, so that one is on the node that is filled.
    expect(plan.replicas).toBe(3);
  });

  it('tells a partition between two nodes from one between a node and all others', () => {
    expect(planDrill('partition', { between: 'a, node-b', oneWay: true }, NODES, 'x')).toMatchObject({
      fault: { kind: 'split', from: 'a', to: 'b', oneWay: true },
      user: 'a',
      touched: ['a', 'b'],
      replicas: 3,
    });
    expect(planDrill('partition', { node: 'c' }, NODES, 'x').fault).toEqual({ kind: 'cut', node: 'c', oneWay: false });
  });

  it.each<[DrillKind, DrillFlags, boolean]>([
    ['pause', { node: 'a' }, true],
    ['pause', { node: 'a', seconds: '14' }, false],
    ['pause', { node: 'a', on: 'b' }, false],
    ['partition', { node: 'a', seconds: '15' }, true],
    ['partition', { between: 'a,b', seconds: '60' }, false],
    ['kill', { node: 'a', seconds: '60' }, false],
    ['fill', { node: 'a', seconds: '60' }, false],
  ])('moves the volume only where its writer is away for longer than a lease lasts: %s %o', (kind, flags, moves) => {
    expect(planDrill(kind, flags, NODES, 'x').moves).toBe(moves);
  });

  it.each<[string, DrillKind, DrillFlags, RegExp]>([
    ['no node', 'kill', {}, /^--node is not given; there are a, b, c$/],
    ['an unknown node', 'pause', { node: 'd' }, /^--node: there is no node d; there are a, b, c$/],
    ['an unknown user', 'pause', { node: 'a', on: 'z' }, /^--on: there is no node z/],
    ['a partition of nothing', 'partition', {}, /^give --between A,B \(two nodes\) or --node A/],
    ['a partition of two kinds', 'partition', { node: 'a', between: 'a,b' }, /^give --between A,B/],
    ['half a pair', 'partition', { between: 'a' }, /^--between is "a"; give two nodes, e.g. a,b$/],
    ['three of a pair', 'partition', { between: 'a,b,c' }, /^--between is "a,b,c"/],
    ['a pair of one', 'partition', { between: 'a,node-a' }, /^--between names node a twice/],
    ['no time', 'fill', { node: 'a', seconds: '0' }, /^--seconds is "0"; give a whole number from 1 to 600$/],
    ['a time that is none', 'fill', { node: 'a', seconds: '5s' }, /^--seconds is "5s"/],
    ['a name that is none', 'fill', { node: 'a', volume: '' }, /^--volume is ""; give a name/],
  ])('refuses %s in one line', (_what, kind, flags, message) => {
    expect(refusal(kind, flags)).toMatch(message);
  });

  it('refuses what one node alone can not show', () => {
    expect(refusal('pause', { node: 'a' }, ['a'])).toMatch(/this drill needs 2/);
    expect(planDrill('kill', { node: 'a' }, ['a'], 'x').replicas).toBe(1);
  });

  it('says what begins and what ends', () => {
    const { fault } = planDrill('partition', { between: 'a,b', oneWay: true }, NODES, 'x');
    expect(describeFault(fault)).toEqual({
      begins: 'packets from node a to node b are lost',
      ends: 'packets from node a to node b arrive again',
    });
  });
});
