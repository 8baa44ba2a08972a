import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { parseDiskTemplate, selectsNode } from '../../../src/ebs/disk-template.js';

const templateOf = (volume: object, more: object = {}): object => ({
  name: 'data',
  volume: { sizeGiB: 100, ...volume },
  ...more,
});

function refusalOf(given: unknown): string {
  try {
    parseDiskTemplate(given);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === 'invalid-argument') return error.message;
    throw error;
  }
  return 'accepted';
}

describe('a disk template', () => {
  it('B09: without a type is gp3, with all its numbers written out', () => {
    expect(parseDiskTemplate(templateOf({}))).toEqual({
      name: 'data',
      nodeSelector: {},
      volume: { type: 'gp3', sizeGiB: 100, iops: 3_000, throughputMiBps: 125, encrypted: true, tags: {} },
      count: 1,
      growth: { maxSizeGiB: 100, maxCount: 1, highWaterPercent: 80, stepPercent: 50, leadHours: 12 },
      onNodeLoss: 'adopt',
    });
    expect(parseDiskTemplate(templateOf({ iops: 4_000 })).volume).toMatchObject({ type: 'gp3', iops: 4_000 });
  });

  it('keeps all that is given', () => {
    const given = {
      name: 'fast-1',
      nodeSelector: { 'topology.kubernetes.io/zone': 'eu-1a' },
      volume: {
        type: 'io2',
        sizeGiB: 500,
        iops: 20_000,
        encrypted: true,
        kmsKeyId: 'alias/data',
        tags: { team: 'storage' },
      },
      count: 2,
      growth: { maxSizeGiB: 2_000, maxCount: 4, highWaterPercent: 70, stepPercent: 25, leadHours: 0 },
      onNodeLoss: 'delete',
    };
    expect(parseDiskTemplate(given)).toEqual(given);
    expect(selectsNode(parseDiskTemplate(given), { 'topology.kubernetes.io/zone': 'eu-1a', other: 'x' })).toBe(true);
    expect(selectsNode(parseDiskTemplate(given), { other: 'x' })).toBe(false);
    expect(selectsNode(parseDiskTemplate(templateOf({})), {})).toBe(true);
  });

  it.each([
    [{ iops: 'abc' }, 'volume.iops is "abc"; it must be a whole number from 3000 to 80000 with type gp3 (iops-range)'],
    [{ iops: -1 }, 'volume.iops is -1; it must be a whole number from 3000 to 80000 with type gp3 (iops-range)'],
    [{ type: 'gp2', throughputMiBps: 250 }, 'volume.throughputMiBps is 250; it must be left out: type gp2 takes none'],
    [
      { throughputMiBps: 800 },
      'volume.throughputMiBps is 800; it must be a whole number from 125 to 750 MiB/s at 3000',
    ],
    [{ type: 'io2' }, 'volume.iops is missing; it must be a whole number from 100 to 256000 with type io2'],
    [{ IOPS: 4_000 }, 'volume.IOPS is unknown; it is written iops'],
    [{ speed: 1 }, 'volume.speed is unknown; known are type, sizeGiB, iops'],
    [{ type: 'GP3' }, 'volume.type is "GP3"; it must be one of gp3, gp2'],
    [{ type: 'gp4', iops: 'abc' }, 'volume.iops is "abc"; it must be a whole number'],
    [{ sizeGiB: '100' }, 'volume.sizeGiB is "100"; it must be a whole number from 1 to 65536 GiB'],
    [{ sizeGiB: undefined }, 'volume.sizeGiB is missing'],
    [{ encrypted: 'yes' }, 'volume.encrypted is "yes"; it must be true or false'],
    [
      { encrypted: false, kmsKeyId: 'alias/data' },
      'volume.encrypted is false; it must be true where kmsKeyId is given',
    ],
    [{ kmsKeyId: 'my key' }, 'volume.kmsKeyId is "my key"; it must be the id, alias/… or ARN'],
    [{ tags: { 'AWS:x': 'y' } }, 'volume.tags has "AWS:x"; keys that begin with aws: are reserved'],
    [{ tags: { 'holdfast.dev/disk': 'y' } }, 'keys that begin with holdfast.dev/ are reserved'],
    [{ tags: Object.fromEntries(Array.from({ length: 41 }, (_, i) => [`k${i}`, ''])) }, 'an object of at most 40 keys'],
    [{ tags: { a: 1 } }, 'volume.tags is {"a":1}'],
    [{ tags: { ['k'.repeat(129)]: '' } }, 'an object of at most 40 keys (1 to 128 characters)'],
  ])('B09: refuses %j by name', (volume, told) => {
    expect(refusalOf(templateOf(volume))).toContain(told);
  });

  it.each([
    [{ name: 'Data' }, 'a disk template: name is "Data"; it must be 1 to 63 lower-case letters'],
    [{ count: 0 }, 'count is 0; it must be a whole number from 1 to 64'],
    [{ nodeSelector: { zone: 1 } }, 'nodeSelector is {"zone":1}'],
    [{ nodeselector: {} }, 'nodeselector is unknown; it is written nodeSelector'],
    [{ onNodeLoss: 'keep' }, 'onNodeLoss is "keep"; it must be adopt or delete'],
    [
      { growth: { maxSizeGiB: 50 } },
      'growth.maxSizeGiB is 50; it must be a whole number from 100 (volume.sizeGiB) to 65536',
    ],
    [{ count: 3, growth: { maxCount: 2 } }, 'growth.maxCount is 2; it must be at least count, which is 3'],
    [{ growth: { highWaterPercent: 99 } }, 'growth.highWaterPercent is 99; it must be a whole number from 10 to 95'],
    [{ volume: 'gp3' }, 'volume is "gp3"; it must be an object'],
  ])('refuses %j by name', (more, told) => {
    expect(refusalOf(templateOf({}, more))).toContain(told);
  });

  it('tells all that is wrong at once', () => {
    const message = refusalOf({
      name: 'd',
      volume: { type: 'gp3', iops: 1, size: 5, tags: { 'aws:a': '' } },
      count: -1,
    });
    for (const path of ['volume.iops', 'volume.size ', 'volume.sizeGiB', 'volume.tags', 'count']) {
      expect(message).toContain(path);
    }
  });

  it('takes any value without another error, and what it gives is taken again unchanged', () => {
    const volume = fc.record(
      {
        type: fc.constantFrom('gp3', 'gp2', 'io2', 'x'),
        sizeGiB: fc.oneof(fc.integer(), fc.jsonValue()),
        iops: fc.nat(),
      },
      { requiredKeys: ['sizeGiB'] },
    );
    const given = fc.oneof(fc.jsonValue(), volume.map(templateOf), fc.dictionary(fc.string(), fc.jsonValue()));
    fc.assert(
      fc.property(given, (value) => {
        if (refusalOf(value) !== 'accepted') return;
        const parsed = parseDiskTemplate(value);
        expect(parseDiskTemplate(JSON.parse(JSON.stringify(parsed)))).toEqual(parsed);
      }),
    );
  });
});
