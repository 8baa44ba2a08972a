import { describe, expect, it } from 'vitest';
import { ASSUMED_LIMIT, judgeAttachRoom } from '../../../src/ebs/attach-room.js';
import type { Instance, InstanceDevice, InstanceType } from '../../../src/ebs/ec2.js';

const devices = (count: number, first: number, state: InstanceDevice['state'] = 'attached'): InstanceDevice[] =>
  Array.from({ length: count }, (_, index) => ({
    device: `/dev/xvd${first + index}`,
    volumeId: `vol-${first + index}`,
    state,
    deleteOnTermination: false,
  }));

function instanceOf(fields: Partial<Instance>): Instance {
  return { id: 'i-1', state: 'running', type: 'm5.large', zone: 'a', devices: [], networkInterfaces: 1, ...fields };
}

const SHARED: InstanceType = {
  name: 'm5.large',
  maximumAttachments: 28,
  attachmentLimit: 'shared',
  instanceStoreDisks: 0,
};
const NONE: ReadonlySet<string> = new Set();

describe('the room for attachments', () => {
  it('B08: of 28 slots with 26 taken by interfaces and foreign disks two are left', () => {
    const room = judgeAttachRoom(instanceOf({ networkInterfaces: 4, devices: devices(22, 0) }), SHARED, NONE, 0);
    expect(room).toEqual({
      free: 2,
      limit: 28,
      taken: 26,
      explanation:
        'instance i-1 (m5.large) has 28 slots, 26 taken by 4 network interfaces and 22 other EBS volumes; 2 left',
    });
  });

  it('B08: the two that were added leave none for a third', () => {
    const full = instanceOf({ networkInterfaces: 4, devices: devices(23, 0) });
    const room = judgeAttachRoom(full, SHARED, new Set(['vol-22']), 1);
    expect(room.free).toBe(0);
    expect(room.explanation).toBe(
      'instance i-1 (m5.large) has 28 slots, 28 taken by 4 network interfaces, 1 disk of this cluster, ' +
        '22 other EBS volumes and 1 attachment under way; 0 left',
    );
  });

  it('counts interfaces and instance-store disks only where the limit is shared', () => {
    const instance = instanceOf({ networkInterfaces: 3, devices: devices(1, 0) });
    const store = { ...SHARED, instanceStoreDisks: 2 };
    expect(judgeAttachRoom(instance, store, NONE, 0).free).toBe(28 - 6);
    expect(judgeAttachRoom(instance, { ...store, attachmentLimit: 'dedicated' }, NONE, 0).free).toBe(27);
  });

  it('counts a volume in every state but detached', () => {
    const states = ['attaching', 'attached', 'detaching', 'busy', 'unknown', 'detached'] as const;
    const all = states.flatMap((state, index) => devices(1, index, state));
    expect(judgeAttachRoom(instanceOf({ devices: all }), SHARED, NONE, 0).taken).toBe(6);
  });

  it('assumes a shared limit, and says so, where EC2 tells none, and is never below nothing', () => {
    const room = judgeAttachRoom(
      instanceOf({ devices: devices(40, 0) }),
      { name: 't', instanceStoreDisks: 1 },
      NONE,
      0,
    );
    expect(room).toMatchObject({ free: 0, limit: ASSUMED_LIMIT, taken: 42 });
    expect(room.explanation).toContain('assumed');
  });
});
