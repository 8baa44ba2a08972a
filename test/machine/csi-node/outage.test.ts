import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { ServedDevices } from './served-devices.js';
import { TestNode } from './test-node.js';

let node: TestNode<ServedDevices>;
beforeEach(async () => (node = await TestNode.on((directory) => new ServedDevices(directory))));
afterEach(() => node.dispose());

describe('an outage of the data path', () => {
  it.each(['reads fail', 'stands still'] as const)(
    'device %s: error, no format, whatever the record says (B17)',
    async (outage) => {
      const volume = await node.addVolume('a');
      await node.stage(volume);
      await node.unstage(volume);
      const before = await node.checksum(volume);
      node.devices.plan.set(volume, outage);
      for (const format of ['formatted', 'blank'] as const) {
        await node.change(volume, { format });
        await expect(node.stage(volume, { deadlineMs: 4_000 })).rejects.toBeInstanceOf(HoldfastError);
        expect(await node.checksum(volume)).toBe(before);
        expect((await node.record(volume)).format).toBe(format);
        expect(await node.mounts(node.path('staging'))).toEqual([]);
        expect(await node.devices.list()).toEqual([]);
      }
      await node.change(volume, { format: 'formatted' });
      node.devices.plan.clear();
      await node.stage(volume);
      expect(await node.mounts(node.path('staging'))).toHaveLength(1);
    },
  );

  it('a volume that hangs holds up no other, and stages when it is healed (B25)', async () => {
    const hanging = await node.addVolume('a');
    const others = await Promise.all(['b', 'c', 'd'].map((digit) => node.addVolume(digit)));
    node.devices.plan.set(hanging, 'stands still');
    const calls = [1, 2].map(() => node.stage(hanging, { deadlineMs: 4_000 }));
    const refused = Promise.all(
      calls.map((call) =>
        call.then(
          () => 'staged',
          (error: unknown) => (error instanceof HoldfastError ? error.code : 'unknown'),
        ),
      ),
    );
    await Promise.all(others.map((volume) => node.stage(volume, { path: node.path(`staging-${volume}`) })));
    for (const code of await refused) expect(['deadline-exceeded', 'aborted']).toContain(code);
    expect((await node.devices.list()).map(({ volume }) => volume).sort()).toEqual(others);
    node.devices.plan.clear();
    await node.stage(hanging);
    expect(await node.mounts(node.path('staging'))).toHaveLength(1);
  });
});
