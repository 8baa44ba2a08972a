import { execFile } from 'node:child_process';
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { OpenDisks } from '../../../src/agent/open-disks.js';
import { silentLog } from '../../../src/base/log.js';
import { readMountTable } from '../../../src/base/mount-table.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { LAYOUT } from '../../../src/model/layout.js';
import { detachLoop, loopOf } from '../../../src/pool/loop.js';
import { openPool, type Pool } from '../../../src/pool/pool.js';
import { ReplicaHost } from '../../../src/replica/host.js';

const run = promisify(execFile);
const MIB = 1024 * 1024;
const VOLUME = `vol-${'5'.repeat(32)}`;

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-slow-'));
  await writeFile(join(directory, 'a.img'), '');
  await truncate(join(directory, 'a.img'), 320 * MIB);
});

afterEach(async () => {
  for (const { mountPoint } of await readMountTable()) {
    if (!mountPoint.startsWith(`${directory}/`)) continue;
    await run('fsfreeze', ['--unfreeze', mountPoint]).catch(() => undefined);
    await run('umount', [mountPoint]);
  }
  const loop = await loopOf(join(directory, 'a.img'));
  if (loop !== undefined) await detachLoop(loop);
  await rm(directory, { recursive: true, force: true });
});

/** A plugin's disks and their replicas, after its start. */
async function started(): Promise<{ pool: Pool; host: ReplicaHost; openDisks: OpenDisks }> {
  const io = createNodeIo();
  const log = silentLog();
  const pool = await openPool({
    disks: [join(directory, 'a.img')],
    poolDirectory: join(directory, 'pool'),
    stateDirectory: join(directory, 'state'),
    clusterId: '5f0c1f3e-0000-4000-8000-000000000002',
    log,
  });
  const host = new ReplicaHost({
    ...{ io, log, layout: LAYOUT, slab: io.slab(MIB) },
    mine: () => true,
    stopOlderWriter: () => Promise.resolve(),
  });
  const replicas = { openDisk: (disk: Parameters<ReplicaHost['openDisk']>[0]) => host.openDisk(disk).then(() => []) };
  const openDisks = new OpenDisks({ pool, replicas, clock: io.clock, log });
  await openDisks.openAtStart();
  return { pool, host, openDisks };
}

it('a disk that takes no write when its plugin starts serves its replicas as soon as it does, without another start', async () => {
  const before = await started();
  const [{ diskId, directory: mount } = { diskId: '', directory: '' }] = before.pool.disks;
  await before.host.create(VOLUME, diskId, 16 * MIB);
  await before.host.close();
  await before.pool.close({ unmount: false });
  await run('fsfreeze', ['--freeze', mount]);
  const { pool, host, openDisks } = await started();
  expect(await openDisks.round()).toMatchObject([
    { diskId, state: 'failed', reason: expect.stringContaining('no write') as string },
  ]);
  expect(host.list()).toEqual([]);
  await run('fsfreeze', ['--unfreeze', mount]);
  await expect.poll(() => pool.report(), { timeout: 20_000 }).toMatchObject([{ state: 'ready' }]);
  expect(await openDisks.report()).toMatchObject([
    { diskId, state: 'failed', reason: expect.stringContaining('being opened') as string },
  ]);
  expect(await openDisks.round()).toMatchObject([{ diskId, state: 'ready', reason: '' }]);
  expect(host.list()).toMatchObject([{ volume: VOLUME, disk: diskId }]);
  await host.close();
  await pool.close({ unmount: true });
});
