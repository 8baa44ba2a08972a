import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { credentials } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { invoke, loadProto } from '../../../src/base/grpc.js';
import { silentLog } from '../../../src/base/log.js';
import { serveUnix, type RunningServer } from '../../../src/base/unix-server.js';
import { addNodeService } from '../../../src/csi/node.js';
import { StagingNotes } from '../../../src/csi/node-notes.js';
import { NodeVolumes } from '../../../src/csi/node-volumes.js';
import type { ProtoGrpcType } from '../../../src/generated/csi.js';
import type { NodeClient } from '../../../src/generated/csi/v1/Node.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { MemoryDevices, RecordAttachments } from './node-fakes.js';

const VOLUME = `vol-${'a'.repeat(32)}`;

describe('the CSI Node service on its socket', () => {
  let directory = '';
  let server: RunningServer;
  let client: NodeClient;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'holdfast-csi-'));
    const store = new MemoryStore();
    const volumes = new NodeVolumes({
      store,
      attachments: new RecordAttachments(store),
      devices: new MemoryDevices(),
      notes: new StagingNotes(join(directory, 'staged')),
      log: silentLog(),
    });
    const degraded = { status: 'STORAGE_DEGRADED' as const, reason: 'DiskFailed', message: 'disk-1' };
    server = await serveUnix(
      join(directory, 'socket'),
      (grpc) =>
        addNodeService(grpc, {
          nodeName: 'node-1',
          topology: { 'topology.holdfast.dev/node': 'node-1', zone: 'a' },
          volumes,
          storageConditions: () => Promise.resolve([degraded]),
          log: silentLog(),
        }),
      silentLog(),
    );
    const { Node } = (loadProto('csi.proto') as unknown as ProtoGrpcType).csi.v1;
    client = new Node(`unix:${join(directory, 'socket')}`, credentials.createInsecure());
  });
  afterAll(async () => {
    client.close();
    await server.stop();
    await rm(directory, { recursive: true, force: true });
  });

  it('tells who and where the node is, and what it can do', async () => {
    expect(await invoke(client, (...call) => client.NodeGetInfo(...call), {}, 5_000)).toMatchObject({
      node_id: 'node-1',
      max_volumes_per_node: 0,
      accessible_topology: { segments: { zone: 'a' } },
    });
    expect(await invoke(client, (...call) => client.NodeGetCapabilities(...call), {}, 5_000)).toMatchObject({
      capabilities: expect.arrayContaining([{ type: 'rpc', rpc: { type: 'STAGE_UNSTAGE_VOLUME' } }]) as unknown,
    });
    expect(await invoke(client, (...call) => client.NodeGetStorageHealth(...call), {}, 5_000)).toMatchObject({
      backend_health: [{ status: 'STORAGE_DEGRADED', reason: 'DiskFailed' }],
    });
  });

  it('refuses with the status that the spec asks for', async () => {
    const capability = { mount: {}, access_mode: { mode: 'SINGLE_NODE_WRITER' as const } };
    const stage = { staging_target_path: '/tmp/x', volume_capability: capability };
    await expect(invoke(client, (...call) => client.NodeStageVolume(...call), stage, 5_000)).rejects.toMatchObject({
      code: 'invalid-argument',
    });
    const unknown = { ...stage, volume_id: VOLUME };
    await expect(invoke(client, (...call) => client.NodeStageVolume(...call), unknown, 5_000)).rejects.toMatchObject({
      code: 'not-found',
    });
    const expand = { volume_id: VOLUME, volume_path: 'some/path' };
    await expect(invoke(client, (...call) => client.NodeExpandVolume(...call), expand, 5_000)).rejects.toMatchObject({
      code: 'not-found',
    });
    await expect(invoke(client, (...call) => client.NodeGetVolumeStats(...call), expand, 5_000)).rejects.toMatchObject({
      code: 'not-found',
    });
    const health = { volume_id: VOLUME };
    await expect(invoke(client, (...call) => client.NodeGetVolumeHealth(...call), health, 5_000)).rejects.toMatchObject(
      {
        code: 'not-found',
      },
    );
  });

  it('unpublish and unstage of what was never here succeed', async () => {
    const paths = { target_path: join(directory, 'target'), staging_target_path: join(directory, 'staging') };
    await invoke(client, (...call) => client.NodeUnpublishVolume(...call), { volume_id: 'other', ...paths }, 5_000);
    await invoke(client, (...call) => client.NodeUnstageVolume(...call), { volume_id: VOLUME, ...paths }, 5_000);
  });
});
