import { mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseMountTable } from '../../../src/base/mount-table.js';
import { canonicalPath, hasGivenUp, isDeviceNode, isReadOnly, KernelView } from '../../../src/csi/node-kernel.js';

const A = `vol-${'a'.repeat(32)}`;
const B = `vol-${'b'.repeat(32)}`;

const TABLE = parseMountTable(
  [
    '20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw',
    '30 20 7:3 / /staging/a rw,noatime shared:2 - ext4 /dev/loop3 rw,stripe=4',
    '31 20 7:3 / /target/a ro,noatime shared:2 - ext4 /dev/loop3 rw,stripe=4',
    '32 20 7:4 / /staging/b rw shared:3 - xfs /dev/loop4 rw',
    '33 20 0:5 /loop5 /block/c rw shared:4 - devtmpfs devtmpfs rw',
    '34 20 0:5 /loop9//deleted /block/old rw shared:4 - devtmpfs devtmpfs rw',
    '35 20 7:8 / /stale rw shared:5 - ext4 /dev/loop8 ro,emergency_ro',
    '36 20 0:40 / /tmp/share rw shared:6 - tmpfs tmpfs rw',
    '37 20 7:10 / /image rw shared:7 - ext4 /dev/loop10 rw',
    '38 20 0:5 /loop10 /image-node rw shared:4 - devtmpfs devtmpfs rw',
    '39 20 43:0 / /export rw shared:8 - ext4 /dev/nbd0 rw',
  ].join('\n'),
);

function device(volume: string, path: string, majorMinor: string | undefined) {
  return { device: { volume, path, sizeBytes: 1, readOnly: false, failed: false }, majorMinor };
}

const C = `vol-${'c'.repeat(32)}`;
const view = new KernelView(
  TABLE,
  [device(A, '/dev/loop3', '7:3'), device(B, '/dev/loop4', '7:4'), device(C, '/dev/loop5', '7:5')],
  [{ name: 'loop10', majorMinor: '7:10' }],
);

describe('the kernel view', () => {
  it('tells what lies at a path by device numbers, not by names', () => {
    expect(view.at('/staging/a', A).kind).toBe('own');
    expect(view.at('/staging/b', A)).toMatchObject({ kind: 'other', volume: B });
    expect(view.at('/tmp/share', A).kind).toBe('foreign');
    expect(view.at('/', A).kind).toBe('foreign');
    expect(view.at('/nothing', A).kind).toBe('none');
  });

  it('a mount of a device that is no volume any more is stale', () => {
    expect(view.at('/stale', A).kind).toBe('stale');
    expect(view.at('/block/old', A).kind).toBe('stale');
  });

  it('a loop device on a file of somebody else is foreign, and so is any other device', () => {
    for (const path of ['/image', '/image-node', '/export']) expect(view.at(path, A).kind).toBe('foreign');
  });

  it('knows a bound device node as its volume', () => {
    const found = view.at('/block/c', C);
    expect(found.kind).toBe('own');
    expect(found.kind === 'own' && isDeviceNode(found.entry)).toBe(true);
  });

  it('lists all mounts of a volume, the latest first', () => {
    expect(view.mountsOf(A).map((entry) => entry.mountPoint)).toEqual(['/target/a', '/staging/a']);
    expect(view.mountsOf(`vol-${'d'.repeat(32)}`)).toEqual([]);
  });

  it('a device whose node is missing owns nothing by number', () => {
    const blind = new KernelView(TABLE, [device(A, '/dev/loop77', undefined)]);
    expect(blind.mountsOf(A)).toEqual([]);
  });

  it('tells a read-only mount from a filesystem that has given up', () => {
    const [target] = view.mountsOf(A);
    const stale = TABLE.find((entry) => entry.mountPoint === '/stale');
    expect(target && [isReadOnly(target), hasGivenUp(target, false)]).toEqual([true, false]);
    expect(stale && [hasGivenUp(stale, false), hasGivenUp(stale, true)]).toEqual([true, true]);
  });
});

describe('canonical paths', () => {
  let directory = '';
  beforeEach(async () => (directory = await mkdtemp(join(tmpdir(), 'holdfast-kernel-'))));
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('links are resolved in folders and in the last name, missing folders are taken as written', async () => {
    await mkdir(join(directory, 'real/inner'), { recursive: true });
    await symlink(join(directory, 'real'), join(directory, 'link'));
    await symlink('real/inner', join(directory, 'short'));
    expect(await canonicalPath(join(directory, 'link/inner'))).toBe(join(directory, 'real/inner'));
    expect(await canonicalPath(join(directory, 'short'))).toBe(join(directory, 'real/inner'));
    expect(await canonicalPath(join(directory, 'link/new/deeper'))).toBe(join(directory, 'real/new/deeper'));
  });

  it('links in a circle are refused', async () => {
    await symlink('two', join(directory, 'one'));
    await symlink('one', join(directory, 'two'));
    await expect(canonicalPath(join(directory, 'one'))).rejects.toMatchObject({ code: 'invalid-argument' });
  });
});
