import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  fillVolumeSpec,
  judgeVolumeSpec,
  VOLUME_RULES,
  VOLUME_TYPES,
  type VolumeSpec,
} from '../../../src/ebs/volume-rules.js';

const rulesOf = (spec: VolumeSpec): string[] => judgeVolumeSpec(spec).map(({ rule }) => rule);

describe('the rules of EBS volumes', () => {
  it('take the limits of each type, and nothing beyond', () => {
    for (const type of VOLUME_TYPES) {
      const { sizeGiB, iops, throughputMiBps } = VOLUME_RULES[type];
      const most: VolumeSpec = {
        type,
        sizeGiB: sizeGiB.most,
        ...(iops === undefined ? {} : { iops: iops.most }),
        ...(throughputMiBps === undefined ? {} : { throughputMiBps: throughputMiBps.most }),
      };
      expect(judgeVolumeSpec(most)).toEqual([]);
      expect(rulesOf({ ...most, sizeGiB: sizeGiB.most + 1 })).toEqual(['size-range']);
      expect(rulesOf({ ...most, sizeGiB: sizeGiB.least - 1 })).toEqual(['size-range']);
      expect(rulesOf({ ...most, iops: (iops?.most ?? 0) + 1 })).toContain(iops ? 'iops-range' : 'iops-not-taken');
      const throughput = { ...most, throughputMiBps: (throughputMiBps?.most ?? 0) + 1 };
      expect(rulesOf(throughput)).toEqual([throughputMiBps ? 'throughput-range' : 'throughput-not-taken']);
    }
  });

  it('B09: name the field, the value, what is allowed, and the rule', () => {
    expect(judgeVolumeSpec({ type: 'gp2', sizeGiB: 100, throughputMiBps: 250 })).toEqual([
      { field: 'throughputMiBps', value: 250, allowed: 'left out: type gp2 takes none', rule: 'throughput-not-taken' },
    ]);
    expect(judgeVolumeSpec({ type: 'io2', sizeGiB: 100 })).toEqual([
      {
        field: 'iops',
        value: undefined,
        allowed: 'a whole number from 100 to 256000 with type io2, which has no default',
        rule: 'iops-required',
      },
    ]);
    expect(judgeVolumeSpec({ type: 'gp3', sizeGiB: 100, iops: 4_000, throughputMiBps: 1_001 })).toEqual([
      {
        field: 'throughputMiBps',
        value: 1_001,
        allowed: 'a whole number from 125 to 1000 MiB/s at 4000 IOPS, 0.25 MiB/s for each IOPS with type gp3',
        rule: 'throughput-per-iops',
      },
    ]);
    expect(judgeVolumeSpec({ type: 'gp3', sizeGiB: 10, iops: 5_001 })).toEqual([
      {
        field: 'iops',
        value: 5_001,
        allowed: 'a whole number from 3000 to 5000 at 10 GiB, 500 for each GiB with type gp3',
        rule: 'iops-per-gib',
      },
    ]);
  });

  it('allow the least speed at every size', () => {
    expect(judgeVolumeSpec({ type: 'gp3', sizeGiB: 1, iops: 3_000, throughputMiBps: 125 })).toEqual([]);
  });

  it('refuse what is no whole number, and judge no ratio by it', () => {
    expect(rulesOf({ type: 'gp3', sizeGiB: Number.NaN, iops: 1.5, throughputMiBps: -1 })).toEqual([
      'size-range',
      'iops-range',
      'throughput-range',
    ]);
    expect(rulesOf({ type: 'gp3', sizeGiB: 0, iops: 80_000, throughputMiBps: 2_000 })).toEqual(['size-range']);
  });

  it('fill in only what is absent, and what is filled in is always right', () => {
    const spec = fc.record(
      {
        type: fc.constantFrom(...VOLUME_TYPES),
        sizeGiB: fc.integer({ min: -5, max: 70_000 }),
        iops: fc.integer({ min: -5, max: 300_000 }),
        throughputMiBps: fc.integer({ min: -5, max: 3_000 }),
      },
      { requiredKeys: ['type', 'sizeGiB'] },
    );
    fc.assert(
      fc.property(spec, (given) => {
        const filled = fillVolumeSpec(given);
        expect(filled).toMatchObject(given);
        expect(fillVolumeSpec(filled)).toEqual(filled);
        expect(judgeVolumeSpec(filled)).toEqual(judgeVolumeSpec(given));
        const { iops, throughputMiBps, type, sizeGiB } = filled;
        if (judgeVolumeSpec(given).length > 0) return;
        const rule = VOLUME_RULES[type];
        expect(iops ?? 0).toBeLessThanOrEqual(Math.max(rule.iops?.least ?? 0, (rule.iops?.ratio ?? 0) * sizeGiB));
        expect((throughputMiBps ?? 0) * 4).toBeLessThanOrEqual(iops ?? 0);
      }),
    );
  });
});
