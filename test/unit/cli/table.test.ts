import { describe, expect, it } from 'vitest';
import { formatAge, formatBytes, formatTable } from '../../../src/cli/table.js';

describe('a table', () => {
  it('has columns as wide as their widest text and no blanks at the ends of lines', () => {
    const text = formatTable(
      ['NAME', 'SIZE', ''],
      [
        ['a', '10', 'x'],
        ['longer', '1', ''],
      ],
      ['SIZE'],
    );
    expect(text).toBe('NAME    SIZE\na         10  x\nlonger     1');
  });
});

describe('bytes', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024 ** 2 * 512, '512 MiB'],
    [1024 ** 3 * 1.5, '1.5 GiB'],
    [1024 ** 4 * 16, '16 TiB'],
  ])('%i are written %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
});

describe('an age', () => {
  const now = Date.parse('2030-01-10T00:00:00Z');
  it.each([
    ['2030-01-07T00:00:00Z', '3 d'],
    ['2030-01-09T22:00:00Z', '2 h'],
    ['2030-01-09T23:50:00Z', '10 min'],
    ['2030-01-09T23:59:19Z', '41 s'],
    ['2030-01-11T00:00:00Z', '0 s'],
    ['', '-'],
  ])('since %s is %s', (since, text) => {
    expect(formatAge(since, now)).toBe(text);
  });
});
