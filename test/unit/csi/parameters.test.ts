import { describe, expect, it } from 'vitest';
import { parseParameters, describeParameters } from '../../../src/csi/parameters.js';

describe('parameters', () => {
  it('what is not said is the default', () => {
    expect(parseParameters({})).toEqual({
      parameters: { replicas: 2, minInSync: 1, zones: 'spread', failover: 'auto', diskTemplate: '', mkfsOptions: [] },
      filesystem: null,
    });
  });

  it('each is read', () => {
    const given = {
      replicas: '3',
      minInSync: '2',
      zones: 'same',
      failover: 'manual',
      diskTemplate: '',
      mkfsOptions: ' -i  size=512 -O ^has_journal',
      'csi.storage.k8s.io/fstype': 'xfs',
      'csi.storage.k8s.io/pvc/name': 'anything',
    };
    expect(parseParameters(given)).toEqual({
      parameters: {
        replicas: 3,
        minInSync: 2,
        zones: 'same',
        failover: 'manual',
        diskTemplate: '',
        mkfsOptions: ['-i', 'size=512', '-O', '^has_journal'],
      },
      filesystem: 'xfs',
    });
  });

  it('an unknown one is refused by name, with the known ones listed', () => {
    for (const name of ['Replicas', 'type', 'constructor', '__proto__', 'toString']) {
      const given = Object.fromEntries([[name, '1']]);
      expect(() => parseParameters(given)).toThrow(expect.objectContaining({ code: 'invalid-argument' }) as Error);
      expect(() => parseParameters(given)).toThrow(`parameter "${name}" is unknown; known are replicas, minInSync`);
    }
  });

  it('a bad value is refused with its name, the value and what would be right', () => {
    const bad: Record<string, string[]> = {
      replicas: ['0', '4', '-1', '1.5', 'abc', '', ' 2', '0x2', '1e0'],
      minInSync: ['0', '3', 'x'],
      zones: ['Spread', 'none', ''],
      failover: ['yes'],
      diskTemplate: ['gp3'],
      mkfsOptions: ['-d /etc', '$(id)', '-L a;b', 'x'.repeat(2000)],
      'csi.storage.k8s.io/fstype': ['btrfs', 'EXT4'],
    };
    for (const [name, values] of Object.entries(bad)) {
      for (const value of values) {
        expect(() => parseParameters({ [name]: value }), `${name}=${value}`).toThrow(name);
        expect(() => parseParameters({ [name]: value })).toThrow(JSON.stringify(value));
      }
    }
  });

  it('the table describes every parameter', () => {
    const names = Object.keys(parseParameters({}).parameters);
    expect(describeParameters().map((row) => row.name)).toEqual(names);
  });
});
