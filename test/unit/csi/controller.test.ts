import { afterEach, describe, expect, it } from 'vitest';
import { present } from '../../../src/base/assert.js';
import { TOPOLOGY_NODE, TOPOLOGY_ZONE } from '../../../src/config.js';
import type { ControllerExpandVolumeRequest } from '../../../src/generated/csi/v1/ControllerExpandVolumeRequest.js';
import type { ControllerExpandVolumeResponse__Output } from '../../../src/generated/csi/v1/ControllerExpandVolumeResponse.js';
import type { ControllerGetVolumeHealthResponse__Output } from '../../../src/generated/csi/v1/ControllerGetVolumeHealthResponse.js';
import type { ControllerListVolumeHealthResponse__Output } from '../../../src/generated/csi/v1/ControllerListVolumeHealthResponse.js';
import type { CreateVolumeRequest } from '../../../src/generated/csi/v1/CreateVolumeRequest.js';
import type { CreateVolumeResponse__Output } from '../../../src/generated/csi/v1/CreateVolumeResponse.js';
import type { GetCapacityRequest } from '../../../src/generated/csi/v1/GetCapacityRequest.js';
import type { GetCapacityResponse__Output } from '../../../src/generated/csi/v1/GetCapacityResponse.js';
import type { ListVolumesRequest } from '../../../src/generated/csi/v1/ListVolumesRequest.js';
import type { ListVolumesResponse__Output } from '../../../src/generated/csi/v1/ListVolumesResponse.js';
import type { ValidateVolumeCapabilitiesRequest } from '../../../src/generated/csi/v1/ValidateVolumeCapabilitiesRequest.js';
import type { ValidateVolumeCapabilitiesResponse__Output } from '../../../src/generated/csi/v1/ValidateVolumeCapabilitiesResponse.js';
import type { VolumeCapability } from '../../../src/generated/csi/v1/VolumeCapability.js';
import type { Volume__Output } from '../../../src/generated/csi/v1/Volume.js';
import { volumeKey } from '../../../src/model/ids.js';
import { ask, codeFrom, FakeCluster, GIB, MIB, type NodePlan } from '../control/fake-cluster.js';

let cluster: FakeCluster;

async function start(plan: Readonly<Record<string, NodePlan>> = { a: {}, b: {}, c: {} }): Promise<void> {
  cluster = await FakeCluster.start(plan, { serve: true });
}

afterEach(() => cluster.stop());

const mount: VolumeCapability = { mount: { fs_type: '' }, access_mode: { mode: 'SINGLE_NODE_WRITER' } };
const block: VolumeCapability = { block: {}, access_mode: { mode: 'SINGLE_NODE_MULTI_WRITER' } };

function create(change: Partial<CreateVolumeRequest>, timeoutMs?: number): Promise<CreateVolumeResponse__Output> {
  const { controller } = cluster;
  const request: CreateVolumeRequest = { name: 'v', volume_capabilities: [mount], ...change };
  return ask(controller, (...call) => controller.CreateVolume(...call), request, timeoutMs);
}

async function created(change: Partial<CreateVolumeRequest> = {}): Promise<Volume__Output> {
  return present((await create(change)).volume, 'volume');
}

function remove(id: string): Promise<unknown> {
  const { controller } = cluster;
  return ask(controller, (...call) => controller.DeleteVolume(...call), { volume_id: id });
}

function expand(request: ControllerExpandVolumeRequest): Promise<ControllerExpandVolumeResponse__Output> {
  const { controller } = cluster;
  return ask(controller, (...call) => controller.ControllerExpandVolume(...call), request);
}

function list(request: ListVolumesRequest): Promise<ListVolumesResponse__Output> {
  const { controller } = cluster;
  return ask(controller, (...call) => controller.ListVolumes(...call), request);
}

function capacity(request: GetCapacityRequest): Promise<GetCapacityResponse__Output> {
  const { controller } = cluster;
  return ask(controller, (...call) => controller.GetCapacity(...call), request);
}

function validate(request: ValidateVolumeCapabilitiesRequest): Promise<ValidateVolumeCapabilitiesResponse__Output> {
  const { controller } = cluster;
  return ask(controller, (...call) => controller.ValidateVolumeCapabilities(...call), request);
}

describe('CreateVolume', () => {
  it('sizes: 1 GiB by default, rounded up to 1 MiB, the real one told', async () => {
    await start();
    expect((await created({ name: 'none' })).capacity_bytes).toBe(GIB);
    expect((await created({ name: 'odd', capacity_range: { required_bytes: GIB + 1 } })).capacity_bytes).toBe(
      GIB + MIB,
    );
    expect((await created({ name: 'small', capacity_range: { limit_bytes: 20 * MIB + 5 } })).capacity_bytes).toBe(
      20 * MIB,
    );
    const tiny = { name: 'tiny', capacity_range: { required_bytes: 1 }, volume_capabilities: [block] };
    expect((await created(tiny)).capacity_bytes).toBe(MIB);
  });

  it('sizes that can not be are out of range', async () => {
    await start();
    const xfs: VolumeCapability = { mount: { fs_type: 'xfs' }, access_mode: { mode: 'SINGLE_NODE_WRITER' } };
    const bad: Partial<CreateVolumeRequest>[] = [
      { capacity_range: { required_bytes: -1 } },
      { capacity_range: { limit_bytes: -5 } },
      { capacity_range: { required_bytes: 2 * GIB, limit_bytes: GIB } },
      { capacity_range: { required_bytes: GIB + 1, limit_bytes: GIB + 2 } },
      { capacity_range: { required_bytes: 17 * 1024 * GIB } },
      { capacity_range: { required_bytes: '9223372036854775807' } },
      { capacity_range: { required_bytes: 200 * MIB }, volume_capabilities: [xfs] },
      { capacity_range: { limit_bytes: 200 * MIB }, volume_capabilities: [xfs] },
    ];
    for (const request of bad) expect(await codeFrom(create(request)), JSON.stringify(request)).toBe('out-of-range');
    expect(await cluster.records()).toHaveLength(0);
  });

  it('what is not offered is an invalid argument that names it', async () => {
    await start();
    const mode = (word: 'MULTI_NODE_MULTI_WRITER' | 'UNKNOWN'): VolumeCapability => ({
      block: {},
      access_mode: { mode: word },
    });
    const bad: [Partial<CreateVolumeRequest>, string][] = [
      [{ name: '' }, 'name is missing'],
      [{ name: 'x'.repeat(129) }, 'name has 129 bytes'],
      [{ name: 'a\u0007b' }, 'control characters'],
      [{ volume_capabilities: [] }, 'volume_capabilities is missing'],
      [{ volume_capabilities: [mode('MULTI_NODE_MULTI_WRITER')] }, 'MULTI_NODE_MULTI_WRITER'],
      [{ volume_capabilities: [mode('UNKNOWN')] }, 'volume_capabilities[0].access_mode is missing'],
      [{ volume_capabilities: [{ access_mode: { mode: 'SINGLE_NODE_WRITER' } }] }, 'access_type is missing'],
      [{ volume_capabilities: [mount, block] }, 'block and mount'],
      [
        { volume_capabilities: [{ mount: { fs_type: 'ntfs' }, access_mode: { mode: 'SINGLE_NODE_WRITER' } }] },
        '"ntfs"',
      ],
      [{ parameters: { size: '1' } }, 'parameter "size" is unknown'],
      [{ parameters: { replicas: '9' } }, 'parameter replicas is "9"'],
      [{ mutable_parameters: { iops: '1' } }, 'mutable parameter "iops"'],
      [{ volume_content_source: { snapshot: { snapshot_id: 's' } } }, 'volume_content_source'],
    ];
    for (const [request, part] of bad) {
      await expect(create(request), part).rejects.toMatchObject({
        code: 'invalid-argument',
        message: expect.stringContaining(part) as string,
      });
    }
    expect(await cluster.records()).toHaveLength(0);
  });

  it('every single-node access mode is offered', async () => {
    await start();
    const modes = [
      'SINGLE_NODE_WRITER',
      'SINGLE_NODE_READER_ONLY',
      'SINGLE_NODE_SINGLE_WRITER',
      'SINGLE_NODE_MULTI_WRITER',
    ] as const;
    for (const mode of modes)
      await created({ name: mode, volume_capabilities: [{ block: {}, access_mode: { mode } }] });
  });

  it('odd names each make a volume of their own, and a repeat finds it', async () => {
    await start();
    const long = 'x'.repeat(127);
    const names = [
      `${long}a`,
      `${long}b`,
      'Capital',
      'capital',
      'pvc/../x',
      'with space',
      '...',
      '-dash',
      'ελληνικά',
      '🐙',
    ];
    names.push('\u00e9', 'e\u0301', 'vol-00000000000000000000000000000000');
    const ids: string[] = [];
    for (const name of names) {
      const { volume_id: id } = await created({ name, capacity_range: { required_bytes: 20 * MIB } });
      expect((await created({ name, capacity_range: { required_bytes: 20 * MIB } })).volume_id).toBe(id);
      expect(await codeFrom(create({ name, capacity_range: { required_bytes: GIB } }))).toBe('already-exists');
      ids.push(id);
    }
    expect(new Set(ids).size).toBe(names.length);
    expect(new Set(ids.map(volumeKey)).size).toBe(names.length);
  });

  it('no room is told as exhausted, with what is missing where', async () => {
    await start({ a: { disks: [40] }, b: { disks: [50] }, c: { disks: [10] }, d: { disks: [] } });
    const topology = { requisite: ['a', 'b', 'c'].map(onNode), preferred: [onNode('c')] };
    const request = { capacity_range: { required_bytes: 45 * GIB }, accessibility_requirements: topology };
    await expect(create(request)).rejects.toMatchObject({
      code: 'resource-exhausted',
      message: expect.stringMatching(/a has 40.00 GiB.*c has 10.00 GiB.*d has no disk/) as string,
    });
    const { accessible_topology: anywhere } = await created({
      ...request,
      capacity_range: { required_bytes: 40 * GIB },
    });
    expect(anywhere).toEqual([]);
  });

  it('the first replica lies where the volume is to be used', async () => {
    await start({ a: { zone: 'z1' }, b: { zone: 'z2' }, c: { zone: 'z3' } });
    for (const name of ['a', 'b', 'c']) {
      const { volume_id: id } = await created({ name, accessibility_requirements: { preferred: [onNode(name)] } });
      expect((await cluster.record(id)).replicas[0]?.node).toBe(name);
    }
    const elsewhere = { requisite: [{ segments: { [TOPOLOGY_ZONE]: 'no-pool' } }] };
    await created({ name: 'elsewhere', accessibility_requirements: elsewhere });
  });

  it('callers that go away leave nothing half made that its name does not find', async () => {
    await start();
    for (const timeoutMs of [1, 2, 5, 10, 20, 40]) {
      await codeFrom(create({ name: `t${timeoutMs}` }, timeoutMs));
      const { volume_id: id } = await created({ name: `t${timeoutMs}` });
      expect(cluster.holders(id)).toHaveLength(2);
    }
    expect(await cluster.records()).toHaveLength(6);
  });
});

describe('DeleteVolume', () => {
  it('an unknown id is fine, an empty one is not', async () => {
    await start();
    await remove('never-seen');
    await remove(`vol-${'0'.repeat(32)}`);
    expect(await codeFrom(remove(''))).toBe('invalid-argument');
  });

  it('a volume in use is refused with nothing changed, and deleted after its release', async () => {
    await start();
    const { volume_id: id } = await created();
    await cluster.change(id, { writer: { node: 'b', session: 'f'.repeat(32) } });
    expect(await codeFrom(remove(id))).toBe('failed-precondition');
    expect(cluster.holders(id)).toHaveLength(2);
    await cluster.change(id, { writer: null });
    await remove(id);
    expect(cluster.replicaCount()).toBe(0);
  });
});

describe('ListVolumes', () => {
  it('3,000 volumes with long names come in pages below 4 MiB, each once', async () => {
    await start({ a: { disks: [1_000_000] } });
    const parameters = { replicas: '1' };
    const { volume_id: first } = await created({ name: 'first', parameters });
    const model = await cluster.record(first);
    for (let index = 0; index < 2_999; index++) {
      const id = `vol-${String(index).padStart(24, '0')}00000000`;
      await cluster.store.create('volume', volumeKey(id), { ...model, id, name: `${'n'.repeat(120)}${index}` });
    }
    for (const max of [0, 7 * 101, 2 ** 31 - 1]) {
      const seen: string[] = [];
      let token = '';
      do {
        const answer = await list({ max_entries: max, starting_token: token });
        seen.push(...answer.entries.map((entry) => entry.volume?.volume_id ?? ''));
        token = answer.next_token;
      } while (token !== '');
      expect(seen).toHaveLength(3_000);
      expect(new Set(seen).size).toBe(3_000);
    }
  });

  it('bad paging is refused, and half-made volumes are shown', async () => {
    await start({ a: {}, b: {} });
    expect(await codeFrom(list({ max_entries: -1 }))).toBe('invalid-argument');
    expect(await codeFrom(list({ starting_token: 'invalid-token' }))).toBe('aborted');
    expect((await list({})).entries).toEqual([]);
    cluster.node('b').mode = 'broken';
    expect(await codeFrom(create({}))).toBe('unavailable');
    const [shown] = (await list({})).entries;
    await remove(present(shown?.volume, 'volume').volume_id);
    expect((await list({})).entries).toEqual([]);
  });
});

describe('ValidateVolumeCapabilities', () => {
  it('confirms what a volume can, and says why it can not', async () => {
    await start();
    const { volume_id: id } = await created({ parameters: { replicas: '2' } });
    const request = { volume_id: id, volume_capabilities: [mount], parameters: { replicas: '2' } };
    expect((await validate(request)).confirmed).toMatchObject({ parameters: { replicas: '2' }, volume_context: {} });
    const many: VolumeCapability = { mount: {}, access_mode: { mode: 'MULTI_NODE_READER_ONLY' } };
    const xfs: VolumeCapability = { mount: { fs_type: 'xfs' }, access_mode: { mode: 'SINGLE_NODE_WRITER' } };
    const unfit: [Partial<ValidateVolumeCapabilitiesRequest>, string][] = [
      [{ volume_capabilities: [block] }, 'not block'],
      [{ volume_capabilities: [many] }, 'MULTI_NODE_READER_ONLY'],
      [{ volume_capabilities: [xfs] }, 'not xfs'],
      [{ parameters: { replicas: '3' } }, 'parameter replicas'],
      [{ volume_context: { a: 'b' } }, 'volume_context'],
    ];
    for (const [change, part] of unfit) {
      const answer = await validate({ ...request, ...change });
      expect(answer.confirmed).toBeNull();
      expect(answer.message).toContain(part);
    }
  });

  it('a malformed request is invalid, an unknown volume not found', async () => {
    await start();
    expect(await codeFrom(validate({ volume_capabilities: [mount] }))).toBe('invalid-argument');
    expect(await codeFrom(validate({ volume_id: 'x' }))).toBe('invalid-argument');
    expect(await codeFrom(validate({ volume_id: 'x', volume_capabilities: [mount] }))).toBe('not-found');
  });
});

describe('GetCapacity', () => {
  it('tells what can be reached, whatever the topology; nothing where no node is', async () => {
    await start({ a: { disks: [40] }, b: { disks: [50] }, c: { disks: [10] }, d: { disks: [] } });
    const all = {
      available_capacity: 50 * GIB,
      maximum_volume_size: { value: 40 * GIB },
      minimum_volume_size: { value: MIB },
    };
    expect(await capacity({})).toEqual(all);
    expect(await capacity({ accessible_topology: onNode('d') })).toEqual(all);
    expect((await capacity({ accessible_topology: onNode('nowhere') })).available_capacity).toBe(0);
    expect((await capacity({ parameters: { replicas: '1' } })).available_capacity).toBe(100 * GIB);
    const xfs: VolumeCapability = { mount: { fs_type: 'xfs' }, access_mode: { mode: 'SINGLE_NODE_WRITER' } };
    expect((await capacity({ volume_capabilities: [xfs] })).minimum_volume_size).toEqual({ value: 300 * MIB });
    expect(await codeFrom(capacity({ parameters: { nonsense: '1' } }))).toBe('invalid-argument');
  });

  it('shrinks with what is provisioned', async () => {
    await start({ a: { disks: [40] }, b: { disks: [40] } });
    await created({ capacity_range: { required_bytes: 15 * GIB } });
    expect(await capacity({})).toMatchObject({
      available_capacity: 25 * GIB,
      maximum_volume_size: { value: 25 * GIB },
    });
  });
});

describe('ControllerExpandVolume', () => {
  it('refuses what is malformed or unknown, and tells the new size', async () => {
    await start();
    expect(await codeFrom(expand({ capacity_range: { required_bytes: GIB } }))).toBe('invalid-argument');
    const { volume_id: id } = await created();
    expect(await codeFrom(expand({ volume_id: id }))).toBe('invalid-argument');
    expect(await codeFrom(expand({ volume_id: 'x', capacity_range: { required_bytes: GIB } }))).toBe('not-found');
    expect(await expand({ volume_id: id, capacity_range: { required_bytes: 3 * GIB } })).toEqual({
      capacity_bytes: 3 * GIB,
      node_expansion_required: true,
    });
    expect((await created()).capacity_bytes).toBe(3 * GIB);
  });
});

describe('health calls', () => {
  it('list what ails, page by page, and tell of one volume', async () => {
    await start();
    for (let index = 0; index < 6; index++) {
      const { volume_id: id } = await created({ name: `v${index}` });
      const { replicas } = await cluster.record(id);
      const stale = replicas.map((replica, place) => ({ ...replica, inSync: place === 0 || index % 2 === 0 }));
      await cluster.change(id, { replicas: stale });
    }
    const { controller } = cluster;
    const page = (token: string) =>
      ask<object, ControllerListVolumeHealthResponse__Output>(
        controller,
        (...call) => controller.ControllerListVolumeHealth(...call),
        { max_entries: 2, starting_token: token },
      );
    const first = await page('');
    const second = await page(first.next_token);
    expect([first.entries.length, second.entries.length, second.next_token]).toEqual([2, 1, '']);
    const id = present(first.entries[0], 'entry').volume_id;
    const one: ControllerGetVolumeHealthResponse__Output = await ask(
      controller,
      (...call) => controller.ControllerGetVolumeHealth(...call),
      { volume_id: id },
    );
    expect(one.volume_health).toEqual(first.entries[0]);
    expect(one.volume_health?.health_statuses[0]).toMatchObject({ status: 'DEGRADED', reason: 'ReplicasNotInSync' });
    const volumesToken = (await list({ max_entries: 1 })).next_token;
    expect(await codeFrom(page(volumesToken))).toBe('aborted');
  });
});

describe('the services', () => {
  it('what is not advertised is unimplemented', async () => {
    await start();
    const { controller } = cluster;
    const calls = [
      ask(controller, (...call) => controller.ControllerPublishVolume(...call), {}),
      ask(controller, (...call) => controller.CreateSnapshot(...call), {}),
      ask(controller, (...call) => controller.ControllerModifyVolume(...call), {}),
    ];
    for (const call of calls) expect(await codeFrom(call)).toBe('unimplemented');
  });

  it('the plugin says who it is and that it is ready', async () => {
    await start();
    const { identity } = cluster;
    expect(await ask(identity, (...call) => identity.GetPluginInfo(...call), {})).toMatchObject({
      name: 'csi.holdfast.dev',
    });
    expect(await ask(identity, (...call) => identity.Probe(...call), {})).toEqual({ ready: { value: true } });
    const told = await ask<object, { capabilities: unknown[] }>(
      identity,
      (...call) => identity.GetPluginCapabilities(...call),
      {},
    );
    expect(told.capabilities).toHaveLength(3);
  });
});

function onNode(name: string): { segments: Record<string, string> } {
  return { segments: { [TOPOLOGY_NODE]: name } };
}
