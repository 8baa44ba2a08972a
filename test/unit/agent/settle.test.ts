import { describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import { DeviceSettler } from '../../../src/agent/settle.js';
import { MemoryDevices } from '../csi/node-fakes.js';

const VOLUME = `vol-${'a'.repeat(32)}`;

describe('settling devices', () => {
  it('a device that can not be settled is tried again, ever less often, without end', async () => {
    const devices = new MemoryDevices();
    await devices.create(VOLUME, { socketPath: '/s', exportName: VOLUME }, 4096, false);
    let time = 0;
    const triedAt: number[] = [];
    const settle = (): Promise<void> => {
      triedAt.push(time);
      return triedAt.length < 4 ? Promise.reject(new HoldfastError('unavailable', 'store')) : Promise.resolve();
    };
    const settler = new DeviceSettler({ devices, settle, log: silentLog(), now: () => time });
    for (time = 0; time <= 10_000; time += 500) await settler.round();
    expect(triedAt.slice(0, 4)).toEqual([0, 1_000, 3_000, 7_000]);
  });

  it('one that fails holds up no other', async () => {
    const devices = new MemoryDevices();
    const other = `vol-${'b'.repeat(32)}`;
    for (const volume of [VOLUME, other]) {
      await devices.create(volume, { socketPath: '/s', exportName: volume }, 4096, false);
    }
    const settled: string[] = [];
    const settle = (volume: string): Promise<void> => {
      if (volume === VOLUME) return Promise.reject(new HoldfastError('unavailable', 'store'));
      settled.push(volume);
      return Promise.resolve();
    };
    await new DeviceSettler({ devices, settle, log: silentLog() }).round();
    expect(settled).toEqual([other]);
  });
});
