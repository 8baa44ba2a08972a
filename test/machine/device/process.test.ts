import { mkdir, readFile, realpath, rmdir, symlink, writeFile } from 'node:fs/promises';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { codeOf } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import { run } from '../../../src/base/run.js';
import type { ExportAddress } from '../../../src/device/device.js';
import { DeviceProcessClient, ensureDeviceProcess, stopDeviceProcess } from '../../../src/device/device-client.js';
import { devicePaths } from '../../../src/device/device-paths.js';
import { bindMount, makeFilesystem, mountFilesystem, unmount } from '../../../src/device/filesystem.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { serveNbd, type NbdServer } from '../../../src/nbd/server.js';
import { NamedExports } from '../../support/memory-stage.js';
import { MIB, OTHER_VOLUME, VOLUME, codeOfRun, fio, leftBelow, until } from './rig.js';
import { SparseStage } from './sparse-stage.js';

/** The device process as it is installed: compiled, in a folder of its own. */
let installed: string;
let stateDirectory: string;
let server: NbdServer;
let address: ExportAddress;

beforeAll(async () => {
  installed = await mkdtemp(join(tmpdir(), 'holdfast-installed-'));
  const tsc = resolve('node_modules/typescript/bin/tsc');
  const options = ['--noCheck', '--module', 'NodeNext', '--target', 'ES2023', '--skipLibCheck', '--rootDir', 'src'];
  const args = [tsc, '--ignoreConfig', ...options, '--outDir', join(installed, 'dist'), 'src/device-process.ts'];
  await run(process.execPath, args, { timeoutMs: 100_000 });
  await symlink(resolve('node_modules'), join(installed, 'node_modules'));
  await symlink(resolve('proto'), join(installed, 'proto'));
  await writeFile(join(installed, 'package.json'), '{"type":"module"}');
  await writeFile(
    join(installed, 'start.js'),
    `import { runDeviceProcess } from './dist/device-process.js';
     await runDeviceProcess({ stateDirectory: process.argv[4], logLevel: 'debug' });`,
  );
});

afterAll(() => rm(installed, { recursive: true }));

beforeEach(async () => {
  stateDirectory = await realpath(await mkdtemp(join(tmpdir(), 'holdfast-state-')));
  await mkdir(join(stateDirectory, 'mnt'));
  const io = createNodeIo();
  const socketPath = join(stateDirectory, 'nbd.sock');
  address = { socketPath, exportName: 'volume' };
  const exports = new NamedExports({ volume: { stage: new SparseStage(64 * MIB), readOnly: false } });
  const at = { kind: 'unix', path: socketPath } as const;
  server = await serveNbd({ io, address: at, exports, slab: io.slab(16 * MIB), log: silentLog() });
});

afterEach(async () => {
  await unmount(join(stateDirectory, 'mnt'), { lazy: true });
  const devices = await ensure();
  for (const { volume } of await devices.list()) await devices.remove(volume);
  devices.close();
  await stopDeviceProcess(stateDirectory);
  await server.close();
  const left = await leftBelow(stateDirectory);
  await rm(stateDirectory, { recursive: true });
  expect(left).toEqual([]);
});

function command(): string[] {
  return [process.execPath, join(installed, 'start.js'), 'device', '--state-directory', stateDirectory];
}

const ensure = (): Promise<DeviceProcessClient> => ensureDeviceProcess(stateDirectory, silentLog(), command());

async function pidOfProcess(): Promise<number> {
  return Number(await readFile(devicePaths(stateDirectory).pid, 'utf8'));
}

test('it is started once, also by two at the same moment, and a second one refuses', async () => {
  const clients = await Promise.all([ensure(), ensure()]);
  const pid = await pidOfProcess();
  clients.push(await ensure());
  expect(await pidOfProcess()).toBe(pid);
  const [program = '', ...args] = command();
  expect(await codeOfRun(program, args)).not.toBe(0);
  expect(await pidOfProcess()).toBe(pid);
  for (const client of clients) client.close();
});

test('it serves devices to one client after another, and is not stopped while it has any', async () => {
  const first = await ensure();
  const made = await first.create(VOLUME, address, 64 * MIB, false);
  first.close();
  const devices = await ensure();
  expect(await devices.list()).toEqual([made]);
  expect(await devices.create(VOLUME, address, 64 * MIB, false)).toEqual(made);
  await expect(stopDeviceProcess(stateDirectory)).rejects.toMatchObject({ code: 'failed-precondition' });
  const pid = await pidOfProcess();
  process.kill(pid, 'SIGTERM');
  expect(await fio(made.path, { size: '8M' }).done).toBe(0);
  expect(await pidOfProcess()).toBe(pid);
  await devices.remove(VOLUME);
  devices.close();
  await stopDeviceProcess(stateDirectory);
  await stopDeviceProcess(stateDirectory);
  expect(await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).toBe('');
});

test('errors cross the socket with their code', async () => {
  const devices = await ensure();
  const missing = { ...address, exportName: 'other' };
  await expect(devices.create(VOLUME, missing, 64 * MIB, false)).rejects.toMatchObject({ code: 'not-found' });
  await expect(devices.create('x', address, 64 * MIB, false)).rejects.toMatchObject({ code: 'invalid-argument' });
  await expect(devices.grow(VOLUME, 64 * MIB)).rejects.toMatchObject({ code: 'not-found' });
  await devices.fail(VOLUME);
  await devices.remove(VOLUME);
  devices.close();
});

test('when it is killed its I/O fails, and the next one clears away what it left', async () => {
  const first = await ensure();
  const { path } = await first.create(VOLUME, address, 64 * MIB, false);
  const work = fio(path, { size: '32M', loops: 20 });
  await new Promise((resolve) => setTimeout(resolve, 500));
  const pid = await pidOfProcess();
  process.kill(pid, 'SIGKILL');
  expect(await work.done).not.toBe(0);
  await until(async () => codeOf(await first.list().catch((error: unknown) => error)) === 'unavailable');
  first.close();
  expect(await leftBelow(stateDirectory)).not.toEqual([]);

  const second = await ensure();
  expect(await leftBelow(stateDirectory)).toEqual([]);
  expect(await second.list()).toEqual([]);
  const again = await second.create(VOLUME, address, 64 * MIB, false);
  expect(await fio(again.path, { size: '8M' }).done).toBe(0);
  second.close();
});

test('a filesystem that was mounted when it was killed does not keep a new device from being made', async () => {
  const first = await ensure();
  const { path } = await first.create(VOLUME, address, 64 * MIB, false);
  await makeFilesystem(path, 'ext4', []);
  const mountPoint = join(stateDirectory, 'mnt');
  await mountFilesystem(path, mountPoint, 'ext4', []);
  process.kill(await pidOfProcess(), 'SIGKILL');
  await until(async () => codeOf(await first.list().catch((error: unknown) => error)) === 'unavailable');
  first.close();

  const second = await ensure();
  const again = await second.create(VOLUME, address, 64 * MIB, false);
  expect(again.path).not.toBe(path);
  await unmount(mountPoint);
  await until(async () => (await codeOfRun('test', ['-e', `/sys/block/${path.slice(5)}/loop/backing_file`])) === 1);
  await mountFilesystem(again.path, mountPoint, 'ext4', []);
  await unmount(mountPoint);
  second.close();
});

test('a device whose node was bound to a path when it was killed keeps its number, failed, until it is removed', async () => {
  const first = await ensure();
  const { path } = await first.create(VOLUME, address, 64 * MIB, false);
  const target = join(stateDirectory, 'mnt');
  await rmdir(target);
  await bindMount(path, target, false);
  process.kill(await pidOfProcess(), 'SIGKILL');
  await until(async () => codeOf(await first.list().catch((error: unknown) => error)) === 'unavailable');
  first.close();

  const second = await ensure();
  expect(await second.list()).toMatchObject([{ volume: VOLUME, path, failed: true }]);
  expect((await second.create(OTHER_VOLUME, address, 64 * MIB, false)).path).not.toBe(path);
  expect(await codeOfRun('dd', [`if=${target}`, 'of=/dev/null', 'bs=4k', 'count=1', 'iflag=direct'])).not.toBe(0);
  await expect(second.remove(VOLUME)).rejects.toMatchObject({ code: 'failed-precondition' });
  await expect(second.create(VOLUME, address, 64 * MIB, false)).rejects.toMatchObject({ code: 'failed-precondition' });
  await unmount(target);
  expect(await second.create(VOLUME, address, 64 * MIB, false)).toMatchObject({ failed: false });
  second.close();
});

describe('a device process whose files were deleted', () => {
  let living: number;
  let path: string;
  beforeEach(async () => {
    const first = await ensure();
    path = (await first.create(VOLUME, address, 64 * MIB, false)).path;
    await makeFilesystem(path, 'ext4', []);
    await mountFilesystem(path, join(stateDirectory, 'mnt'), 'ext4', []);
    first.close();
    living = await pidOfProcess();
    const { pid, socket, log } = devicePaths(stateDirectory);
    for (const file of [pid, socket, log]) await rm(file);
  });

  test('is found again by who starts one at once, and its device can be removed', async () => {
    const devices = await ensure();
    expect(await devices.list()).toMatchObject([{ volume: VOLUME, path, failed: false }]);
    await writeFile(join(stateDirectory, 'mnt', 'file'), 'on and on');
    await unmount(join(stateDirectory, 'mnt'));
    await devices.remove(VOLUME);
    devices.close();
    await stopDeviceProcess(stateDirectory);
    expect(await readFile(`/proc/${living}/cmdline`, 'utf8').catch(() => '')).toBe('');
  });

  test('is let alone by a second one, which ends', async () => {
    const before = await leftBelow(stateDirectory);
    const [program = '', ...args] = command();
    expect(await codeOfRun(program, args)).not.toBe(0);
    expect(await leftBelow(stateDirectory)).toEqual(before);
    await writeFile(join(stateDirectory, 'mnt', 'file'), 'on and on');
  });
});
