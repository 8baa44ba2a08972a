import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { credentials } from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { loadProto } from '../../../src/base/grpc.js';
import { silentLog } from '../../../src/base/log.js';
import type { ControllerConfig } from '../../../src/config.js';
import { runController } from '../../../src/controller.js';
import type { ProtoGrpcType as CsiProto } from '../../../src/generated/csi.js';
import type { ProtoGrpcType as HoldfastProto } from '../../../src/generated/holdfast.js';
import type { GetStatusResponse__Output } from '../../../src/generated/holdfast/v1/GetStatusResponse.js';
import { ask, codeFrom } from './fake-cluster.js';

let directory: string;
const stops: (() => Promise<void>)[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-controller-'));
});

afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop();
  await rm(directory, { recursive: true, force: true });
});

function config(change: Partial<ControllerConfig> = {}): ControllerConfig {
  return {
    csiSocket: join(directory, 'csi.sock'),
    stateDirectory: join(directory, 'state'),
    storeHost: '127.0.0.1',
    storePort: 0,
    metricsHost: '127.0.0.1',
    metricsPort: 0,
    overcommit: 1,
    rebuildGraceMs: 600_000,
    rebuildsPerNode: 2,
    logLevel: 'silent',
    ...change,
  };
}

async function start(change: Partial<ControllerConfig> = {}): Promise<{ stop(): Promise<void> }> {
  const running = await runController(config(change), silentLog());
  stops.push(() => running.stop());
  return running;
}

async function clusterId(): Promise<string> {
  const { Admin } = (loadProto('holdfast.proto') as unknown as HoldfastProto).holdfast.v1;
  const admin = new Admin(`unix:${config().csiSocket}`, credentials.createInsecure());
  const status: GetStatusResponse__Output = await ask(admin, (...call) => admin.GetStatus(...call), {});
  admin.close();
  return status.cluster_id;
}

it('a controller serves CSI and admin, keeps its cluster over a restart, and stops twice without harm', async () => {
  const running = await start();
  const { Controller } = (loadProto('csi.proto') as unknown as CsiProto).csi.v1;
  const controller = new Controller(`unix:${config().csiSocket}`, credentials.createInsecure());
  const request = {
    name: 'v',
    volume_capabilities: [{ block: {}, access_mode: { mode: 'SINGLE_NODE_WRITER' as const } }],
  };
  const call = ask(controller, (...rest) => controller.CreateVolume(...rest), request);
  await expect(call).rejects.toMatchObject({
    code: 'resource-exhausted',
    message: expect.stringContaining('no node') as string,
  });
  controller.close();
  const id = await clusterId();
  expect(id).toMatch(/^[0-9a-f-]{36}$/);
  await running.stop();
  await running.stop();
  await start();
  expect(await clusterId()).toBe(id);
});

it('a second controller on the same state is refused and leaves the first alone', async () => {
  await start();
  const second = runController(config({ csiSocket: join(directory, 'other.sock') }), silentLog());
  expect(await codeFrom(second)).toBe('already-exists');
  expect(await clusterId()).not.toBe('');
});

it('a controller that can not start leaves nothing behind', async () => {
  const blocker = createServer();
  const port = await new Promise<number>((resolve) =>
    blocker.listen(0, '127.0.0.1', () => {
      const address = blocker.address();
      resolve(typeof address === 'object' && address !== null ? address.port : 0);
    }),
  );
  stops.push(() => new Promise((resolve) => blocker.close(() => resolve())));
  expect(await codeFrom(runController(config({ storePort: port }), silentLog()))).toBe('unavailable');
  await start();
});
