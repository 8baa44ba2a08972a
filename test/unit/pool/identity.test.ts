import { describe, expect, it } from 'vitest';
import { lookedAt, unfinishedXfsLabel } from '../../../src/pool/contents.js';
import { diskIdOf, isHoldfastLabel, labelOf, newUuid, parseIdentity } from '../../../src/pool/identity.js';

describe('the identity of a disk', () => {
  const right = { formatVersion: 1, diskId: 'disk-0123456789abcdef', clusterId: 'c' };

  it('is taken from the UUID of its filesystem', () => {
    expect(diskIdOf('0F0E0D0C-1111-4111-8111-0123456789AB')).toBe('disk-81110123456789ab');
    expect(diskIdOf(newUuid())).toMatch(/^disk-[0-9a-f]{16}$/);
  });

  it('has a label of the twelve characters that xfs takes, another one for each cluster', () => {
    expect(labelOf('c')).toHaveLength(12);
    expect(isHoldfastLabel(labelOf('c'))).toBe(true);
    expect(labelOf('c')).not.toBe(labelOf('d'));
    expect(isHoldfastLabel('holdfast')).toBe(false);
  });

  it('is read with fields that are not known', () => {
    expect(parseIdentity(JSON.stringify({ ...right, later: 1 }))).toEqual(right);
    const ebs = { ...right, ebsVolumeId: 'vol-0123' };
    expect(parseIdentity(JSON.stringify(ebs))).toEqual(ebs);
  });

  it.each([
    ['no JSON', 'xx', 'corrupt'],
    ['nothing', '', 'corrupt'],
    ['another JSON', '[1]', 'corrupt'],
    ['no version', JSON.stringify({ ...right, formatVersion: undefined }), 'corrupt'],
    ['a wrong id', JSON.stringify({ ...right, diskId: '../x' }), 'corrupt'],
    ['no cluster', JSON.stringify({ ...right, clusterId: '' }), 'corrupt'],
    ['a newer version', JSON.stringify({ ...right, formatVersion: 2, diskId: 7 }), 'failed-precondition'],
  ])('is refused with %s', (_what, text, code) => {
    expect(() => parseIdentity(text)).toThrow(expect.objectContaining({ code }) as Error);
  });
});

describe('the look at what a device holds', () => {
  it('stays within the device and covers its ends', () => {
    for (const size of [512, 4096, 1_000_000, 314_572_800, 3 * 1024 ** 4]) {
      const pieces = lookedAt(size);
      for (const { offset, length } of pieces) {
        expect(offset).toBeGreaterThanOrEqual(0);
        expect(length).toBeGreaterThan(0);
        expect(offset + length).toBeLessThanOrEqual(size);
      }
      expect(pieces.some(({ offset }) => offset === 0)).toBe(true);
      expect(pieces.some(({ offset, length }) => offset + length === size)).toBe(true);
    }
  });

  it('tells an unfinished xfs from a finished one and from anything else', () => {
    const head = Buffer.alloc(4096);
    expect(unfinishedXfsLabel(head)).toBeUndefined();
    head.write('XFSB', 0);
    head.write('hf0123456789', 108);
    expect(unfinishedXfsLabel(head)).toBeUndefined();
    head[126] = 1;
    expect(unfinishedXfsLabel(head)).toBe('hf0123456789');
    head.fill(0, 108, 120);
    expect(unfinishedXfsLabel(head)).toBe('');
    expect(unfinishedXfsLabel(new Uint8Array(10))).toBeUndefined();
  });
});
