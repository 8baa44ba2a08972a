import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { run } from '../../../src/base/run.js';
import { killAllIn } from '../../../src/dev/child.js';
import { devLayout, type DevLayout } from '../../../src/dev/layout.js';
import { clearHeld, heldBy } from '../../../src/dev/leftovers.js';
import {
  connectNode,
  inNamespace,
  makeSwitch,
  namespacesOf,
  processesIn,
  removeNamespace,
  setPlug,
} from '../../../src/dev/network.js';

const TIMEOUT = { timeoutMs: 20_000 };

describe('what a dev cluster makes outside of its directory', () => {
  let layout: DevLayout;

  beforeEach(async () => {
    layout = devLayout(await mkdtemp(join(tmpdir(), 'dev-take-down-')));
  });
  afterEach(async () => {
    for (const name of await namespacesOf(layout)) {
      await killAllIn(name, 10_000);
      await removeNamespace(name);
    }
    await clearHeld(layout.directory, silentLog());
    await rm(layout.directory, { recursive: true, force: true });
  });

  async function answers(from: string, host: string): Promise<boolean> {
    const probe = `require('net').connect({host:'${host}',port:9,timeout:1500}).on('timeout',()=>process.exit(1)).on('error',(e)=>process.exit(e.code==='ECONNREFUSED'?0:1))`;
    const [command, args] = inNamespace(from, [process.execPath, '-e', probe]);
    const { code } = await run(command, args, { ...TIMEOUT, okCodes: [0, 1] });
    return code === 0;
  }

  it('is a network whose nodes reach each other until a plug is pulled', async () => {
    const [a, b] = [layout.node('a'), layout.node('b')];
    await makeSwitch(layout);
    await connectNode(layout, a, '100.64.0.11');
    await connectNode(layout, b, '100.64.0.12');
    expect(await answers(a.namespace, '100.64.0.12')).toBe(true);
    await setPlug(layout, b, false);
    expect(await answers(a.namespace, '100.64.0.12')).toBe(false);
    await setPlug(layout, b, true);
    expect(await answers(a.namespace, '100.64.0.12')).toBe(true);
  });

  it('includes every process of a node, also one that ignores signals, and no other', async () => {
    const a = layout.node('a');
    await makeSwitch(layout);
    await connectNode(layout, a, '100.64.0.11');
    const [command, args] = inNamespace(a.namespace, ['sh', '-c', "trap '' TERM; sleep 600 & wait"]);
    const child = spawn(command, args, { detached: true, stdio: 'ignore' });
    const ended = new Promise((resolve) => child.once('exit', (_code, signal) => resolve(signal)));
    await expect.poll(() => processesIn(a.namespace)).toHaveLength(2);
    expect(await processesIn(layout.switchNamespace)).toEqual([]);
    await killAllIn(a.namespace, 10_000);
    expect(await ended).toBe('SIGKILL');
    expect(await processesIn(a.namespace)).toEqual([]);
  });

  it('includes mounts on mounts and loop devices on their files, wherever the mounts are', async () => {
    const { directory } = layout;
    const elsewhere = await mkdtemp(join(tmpdir(), 'dev-elsewhere-'));
    try {
      for (const name of ['outer', 'inner', 'bind']) await mkdir(join(directory, name));
      await formatFile(join(directory, 'outer.img'), 200);
      await run('mount', ['-o', 'loop', join(directory, 'outer.img'), join(directory, 'outer')], TIMEOUT);
      await formatFile(join(directory, 'outer', 'inner.img'), 50);
      await run('mount', ['-o', 'loop', join(directory, 'outer', 'inner.img'), elsewhere], TIMEOUT);
      await run('mount', ['--bind', elsewhere, join(directory, 'bind')], TIMEOUT);
      const held = await heldBy(directory);
      expect(held.mounts).toHaveLength(3);
      expect(held.loops).toHaveLength(2);
      expect(await clearHeld(directory, silentLog())).toEqual({ mounts: [], loops: [] });
      expect(await heldBy(directory)).toEqual({ mounts: [], loops: [] });
    } finally {
      await clearHeld(directory, silentLog());
      await rm(elsewhere, { recursive: true, force: true });
    }
  });

  it('includes a mount that is in use: it goes out of the tree, and its loop device goes with its last user', async () => {
    const { directory } = layout;
    await mkdir(join(directory, 'busy'));
    await formatFile(join(directory, 'busy.img'), 50);
    await run('mount', ['-o', 'loop', join(directory, 'busy.img'), join(directory, 'busy')], TIMEOUT);
    const user = spawn('sleep', ['600'], { cwd: join(directory, 'busy'), stdio: 'ignore' });
    const ended = new Promise((resolve) => user.once('exit', resolve));
    const held = await clearHeld(directory, silentLog());
    expect(held.mounts).toEqual([]);
    user.kill('SIGKILL');
    await ended;
    await expect.poll(async () => (await heldBy(directory)).loops).toEqual([]);
  });
});

async function formatFile(path: string, mebibytes: number): Promise<void> {
  const file = await open(path, 'wx');
  await file.truncate(mebibytes * 1024 ** 2);
  await file.close();
  await run('mkfs.ext4', ['-q', path], TIMEOUT);
}
