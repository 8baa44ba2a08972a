import { describe, expect, it } from 'vitest';
import { acceptRecord, decodeRecord, encodeRecord, parseKind } from '../../../src/store/records.js';
import { diskRecord } from '../../contract/record-store.js';

const volume = {
  schema: 1,
  id: 'vol-0123456789abcdef0123456789abcdef',
  name: 'pvc-1',
  capacityBytes: 1024,
  parameters: { replicas: 2, minInSync: 1, zones: 'spread', failover: 'auto', diskTemplate: '', mkfsOptions: [] },
  content: { kind: 'filesystem', type: 'ext4' },
  format: 'blank',
  phase: 'creating',
  accessibleTopology: [{ 'topology.kubernetes.io/zone': 'eu-1a' }],
  epoch: 1,
  writer: null,
  replicas: [{ node: 'a', disk: 'd', inSync: true }],
  createdAt: '',
  lastAttachedAt: '',
};

function wrong(change: Record<string, unknown>): string {
  return JSON.stringify({ ...volume, ...change });
}

describe('records', () => {
  it('are read as they were written, with fields that are not known', () => {
    const more = { ...volume, extra: 1, parameters: { ...volume.parameters, extra: 2 } };
    expect(decodeRecord('volume', 'k', JSON.stringify(more))).toEqual(more);
  });

  it.each([
    ['text that is no JSON', '{', /no JSON/],
    ['a list', '[]', /JSON object/],
    ['no schema', wrong({ schema: undefined }), /schema \(missing\)/],
    ['a missing field', wrong({ phase: undefined }), /phase \(missing\)/],
    ['a field of another type', wrong({ epoch: '1' }), /epoch "1" must be a whole number/],
    ['a number that is not whole', wrong({ epoch: 1.5 }), /epoch 1.5/],
    ['a wrong writer', wrong({ writer: { node: 'a' } }), /writer \{"node":"a"\} must be null/],
    ['a wrong replica', wrong({ replicas: [{ node: 'a', disk: 'd', inSync: 'yes' }] }), /replicas/],
    ['a wrong parameter', wrong({ parameters: { ...volume.parameters, replicas: 0 } }), /parameters/],
  ])('are refused with %s, naming it', (_what, json, words) => {
    expect(() => decodeRecord('volume', 'k', json)).toThrow(words);
    expect(() => decodeRecord('volume', 'k', json)).toThrow(expect.objectContaining({ code: 'corrupt' }) as Error);
    expect(() => acceptRecord('volume', 'k', json)).toThrow(
      expect.objectContaining({ code: 'invalid-argument' }) as Error,
    );
  });

  it('of a newer schema are refused before their fields are looked at', () => {
    const newer = JSON.stringify({ schema: 2 });
    const refused = expect.objectContaining({ code: 'failed-precondition' }) as Error;
    expect(() => decodeRecord('volume', 'k', newer)).toThrow(refused);
    expect(() => decodeRecord('volume', 'k', newer)).toThrow(/newer Holdfast/);
  });

  it('are not made of kinds that do not exist', () => {
    expect(() => parseKind('Volume')).toThrow(/kind Volume is unknown/);
    expect(parseKind('volume')).toBe('volume');
  });

  it('become JSON text', () => {
    expect(JSON.parse(encodeRecord('disk', 'd', diskRecord(1)))).toEqual(diskRecord(1));
  });
});
