import { describe, expect, it } from 'vitest';
import { codeOf, messageOf } from '../../../src/base/errors.js';
import { parseExpand, parsePublish, parseStage, parseStats, parseUnpublish } from '../../../src/csi/node-parse.js';
import type { NodePublishVolumeRequest__Output } from '../../../src/generated/csi/v1/NodePublishVolumeRequest.js';
import type { VolumeCapability__Output } from '../../../src/generated/csi/v1/VolumeCapability.js';

const VOLUME = `vol-${'0'.repeat(32)}`;

function mount(flags: string[] = [], mode = 'SINGLE_NODE_WRITER' as const): VolumeCapability__Output {
  return {
    access_type: 'mount',
    mount: { fs_type: '', mount_flags: flags, volume_mount_group: '' },
    access_mode: { mode },
  };
}

function publish(change: Partial<NodePublishVolumeRequest__Output> = {}): NodePublishVolumeRequest__Output {
  return {
    volume_id: VOLUME,
    staging_target_path: '/var/lib/staging',
    target_path: '/var/lib/target',
    volume_capability: mount(),
    readonly: false,
    publish_context: {},
    volume_context: {},
    secrets: {},
    ...change,
  };
}

function stage(change: Partial<NodePublishVolumeRequest__Output> = {}): Parameters<typeof parseStage>[0] {
  return publish(change);
}

function refusal(parse: () => unknown): { code: string; message: string } {
  try {
    parse();
  } catch (error) {
    return { code: codeOf(error), message: messageOf(error) };
  }
  throw new Error('it was not refused');
}

describe('requests of the CSI Node service', () => {
  it('a sound publish request becomes a typed value', () => {
    expect(parsePublish(publish({ readonly: true, target_path: '/var/lib//target/' }))).toMatchObject({
      volume: VOLUME,
      stagingPath: '/var/lib/staging',
      targetPath: '/var/lib/target',
      readOnly: true,
      capability: { access: { kind: 'mount', filesystem: null, mountFlags: [] }, mode: 'SINGLE_NODE_WRITER' },
    });
  });

  it('a reader-only mode is published read-only', () => {
    const capability = { ...mount(), access_mode: { mode: 'SINGLE_NODE_READER_ONLY' as const } };
    expect(parsePublish(publish({ volume_capability: capability })).readOnly).toBe(true);
  });

  it.each([
    ['volume_id', { volume_id: '' }],
    ['target_path', { target_path: '' }],
    ['staging_target_path', { staging_target_path: '' }],
    ['volume_capability', { volume_capability: null }],
  ])('without %s it is refused by name', (field, change) => {
    const { code, message } = refusal(() => parsePublish(publish(change)));
    expect(code).toBe('invalid-argument');
    expect(message).toContain(`${field} is missing`);
  });

  it('an id that can be no volume of ours is not found, but malformed fields come first', () => {
    expect(refusal(() => parseStage(stage({ volume_id: 'other' }))).code).toBe('not-found');
    expect(refusal(() => parseStage(stage({ volume_id: 'other', volume_capability: null }))).code).toBe(
      'invalid-argument',
    );
  });

  it.each(['relative/path', '/a/../b', '/', '/nul\0', `/${'x'.repeat(4096)}`])('path %j is refused', (path) => {
    expect(refusal(() => parseStage(stage({ staging_target_path: path }))).code).toBe('invalid-argument');
    expect(refusal(() => parseUnpublish({ volume_id: VOLUME, target_path: path })).code).toBe('invalid-argument');
  });

  it('a staging path that is the target path is refused', () => {
    const { message } = refusal(() => parsePublish(publish({ target_path: '/var/lib/staging' })));
    expect(message).toContain('it must be another');
  });

  it('a path of no volume is no malformed request: the volume is not found there', () => {
    const request = { volume_id: VOLUME, volume_path: 'some/path', staging_target_path: '' };
    expect(parseStats(request).path).toBe('some/path');
  });

  it.each([['bind'], ['remount'], ['noatime,rbind'], ['loop=/dev/loop9'], ['']])('mount flag %j is refused', (flag) => {
    const { code, message } = refusal(() => parseStage(stage({ volume_capability: mount([flag]) })));
    expect(code).toBe('invalid-argument');
    expect(message).toContain('mount_flags');
  });

  it('an SELinux context with commas is one flag', () => {
    const flags = ['context="system_u:object_r:container_file_t:s0:c1,c2"', 'noatime'];
    const { access } = parseStage(stage({ volume_capability: mount(flags) })).capability;
    expect(access).toMatchObject({ mountFlags: flags });
  });

  it('mount flags are never told, for they may be secret', () => {
    const { message } = refusal(() => parseStage(stage({ volume_capability: mount(['offset=s3cret']) })));
    expect(message).not.toContain('s3cret');
  });

  it('capacities that contradict each other are refused', () => {
    const request = {
      volume_id: VOLUME,
      volume_path: '/a',
      staging_target_path: '',
      volume_capability: null,
      secrets: {},
    };
    const range = { required_bytes: 10, limit_bytes: 5 };
    expect(refusal(() => parseExpand({ ...request, capacity_range: range })).code).toBe('out-of-range');
    const negative = { required_bytes: -1, limit_bytes: 0 };
    expect(refusal(() => parseExpand({ ...request, capacity_range: negative })).code).toBe('invalid-argument');
    expect(parseExpand({ ...request, capacity_range: null })).toMatchObject({ requiredBytes: 0, limitBytes: 0 });
  });
});
