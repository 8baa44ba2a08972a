import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chooseDeviceName, DEVICE_NAMES, deviceKey } from '../../../src/ebs/device-names.js';

describe('device names', () => {
  it('are those from xvdba to xvddx and from sdf to sdp', () => {
    expect(DEVICE_NAMES).toHaveLength(26 + 26 + 24 + 11);
    expect(DEVICE_NAMES).toEqual(expect.arrayContaining(['/dev/xvdba', '/dev/xvdbz', '/dev/xvdca', '/dev/xvddx']));
    expect(DEVICE_NAMES).toEqual(expect.arrayContaining(['/dev/sdf', '/dev/sdp']));
    for (const root of ['/dev/sda1', '/dev/xvda']) expect(DEVICE_NAMES.map(deviceKey)).not.toContain(deviceKey(root));
  });

  it('are not chosen where the instance has the same device under another spelling', () => {
    expect(chooseDeviceName(['/dev/sda1'])).toBe('/dev/xvdba');
    expect(chooseDeviceName(['/dev/sdba', 'xvdbb', '/dev/xvdbc1'], ['/dev/xvdbd'])).toBe('/dev/xvdbe');
  });

  it('run out one by one, each used once, whatever is in use or was refused', () => {
    const some = fc.subarray([...DEVICE_NAMES, '/dev/xvda', '/dev/sdf1', '/dev/nvme0n1']);
    fc.assert(
      fc.property(some, some, (inUse, avoided) => {
        const taken = [...inUse];
        for (let name = chooseDeviceName(taken, avoided); name; name = chooseDeviceName(taken, avoided)) {
          expect([...taken, ...avoided].map(deviceKey)).not.toContain(deviceKey(name));
          expect(chooseDeviceName([...taken].reverse(), avoided)).toBe(name);
          taken.push(name);
        }
        const all = new Set([...taken, ...avoided].map(deviceKey));
        for (const name of DEVICE_NAMES) expect(all).toContain(deviceKey(name));
      }),
      { numRuns: 30 },
    );
  });
});
