import { describe, expect, it } from 'vitest';
import type { AttachmentStatus } from '../../../src/writer/attachments.js';
import { judgeMaintenance, progressOf, type MaintenanceFacts } from '../../../src/writer/maintenance-rule.js';

const status: AttachmentStatus = {
  state: 'serving',
  epoch: 2,
  inSync: ['a', 'b'],
  regionsOpen: 3,
  regionsToReconcile: 0,
  resync: null,
  waitsFor: [],
};
const timing = { maintenanceIdleMs: 30_000, maintenanceMs: 3_600_000 };

function judge(behind: boolean, change: Partial<MaintenanceFacts> = {}): string {
  const replicas = [
    { node: 'a', disk: 'd', inSync: true },
    { node: 'b', disk: 'd', inSync: !behind },
  ];
  const facts = { status, record: { replicas }, drop: [], idleMs: 0, totalMs: 0, ...change };
  return judgeMaintenance(facts, timing);
}

describe('a writer without a device', () => {
  it('leaves when all is in line; open regions are closed by its release', () => {
    expect(judge(false)).toBe('leave');
    expect(judge(true)).toBe('go-on');
    expect(judge(false, { status: { ...status, regionsToReconcile: 1 } })).toBe('go-on');
  });

  it('lets replicas leave that are to, once nothing else is left to do or can be done', () => {
    expect(judge(false, { drop: ['b'] })).toBe('drop');
    expect(judge(true, { drop: ['b'] })).toBe('go-on');
    expect(judge(true, { drop: ['b'], idleMs: 30_000 })).toBe('drop');
  });

  it('leaves when it gets no further, and after its time in any case', () => {
    expect(judge(true, { idleMs: 29_999 })).toBe('go-on');
    expect(judge(true, { idleMs: 30_000 })).toBe('leave');
    expect(judge(true, { totalMs: 3_600_000 })).toBe('leave');
  });

  it('gets further with every region that is compared or copied, and every replica that is in sync', () => {
    const seen = [
      status,
      { ...status, inSync: ['a'] },
      { ...status, regionsToReconcile: 4 },
      { ...status, resync: { node: 'b', regionsTotal: 9, regionsDone: 1 } },
      { ...status, resync: { node: 'b', regionsTotal: 9, regionsDone: 2 } },
    ].map(progressOf);
    expect(new Set(seen).size).toBe(seen.length);
    expect(progressOf({ ...status, inSync: ['b', 'a'], regionsOpen: 9 })).toBe(progressOf(status));
  });
});
