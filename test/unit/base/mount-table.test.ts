import { describe, expect, it } from 'vitest';
import { mountAt, parseMountTable, readMountTable } from '../../../src/base/mount-table.js';

const TABLE = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro
36 22 0:31 / /run/user\\0401 rw,nosuid master:3 propagate_from:2 - tmpfs tmp\\134fs rw,size=1k
44 22 7:0 /sub\\011dir /mnt rw,noatime - xfs /dev/loop0 ro,attr2
45 44 7:1 / /mnt rw - ext4 /dev/loop1 rw
rubbish
46 22 7:1 / /short
`;

describe('the mount table', () => {
  it('is read with any number of optional fields', () => {
    expect(parseMountTable(TABLE)[0]).toEqual({
      mountId: 22,
      parentId: 1,
      majorMinor: '254:0',
      root: '/',
      mountPoint: '/',
      options: ['rw', 'relatime'],
      fsType: 'ext4',
      source: '/dev/root',
      superOptions: ['rw', 'errors=remount-ro'],
    });
    expect(parseMountTable(TABLE)).toHaveLength(4);
  });

  it('is read with spaces, tabs and backslashes in names', () => {
    const [, second, third] = parseMountTable(TABLE);
    expect(second).toMatchObject({ mountPoint: '/run/user 1', source: 'tmp\\fs' });
    expect(third).toMatchObject({ root: '/sub\tdir', superOptions: ['ro', 'attr2'] });
  });

  it('shows the last mount at a place', () => {
    expect(mountAt(parseMountTable(TABLE), '/mnt')?.source).toBe('/dev/loop1');
    expect(mountAt(parseMountTable(TABLE), '/other')).toBeUndefined();
  });

  it('of this machine has a root', async () => {
    expect(mountAt(await readMountTable(), '/')).toBeDefined();
  });
});
