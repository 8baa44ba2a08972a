import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { type RunningServer, serveUnix } from '../../../src/base/unix-server.js';

describe('a server on a unix socket', () => {
  let directory: string;
  let path: string;
  const running: RunningServer[] = [];

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'holdfast-socket-'));
    path = join(directory, 'socket');
  });
  afterEach(async () => {
    for (const server of running.splice(0)) await server.stop();
    expect(await readdir(directory)).toEqual([]);
    await rm(directory, { recursive: true });
  });

  const serve = async (): Promise<void> => {
    running.push(await serveUnix(path, () => undefined, silentLog()));
  };

  const answers = (): Promise<boolean> =>
    new Promise((resolve) => {
      const probe = connect(path);
      probe.once('connect', () => {
        probe.destroy();
        resolve(true);
      });
      probe.once('error', () => resolve(false));
    });

  const until = async (claim: () => Promise<boolean>): Promise<void> => {
    while (!(await claim())) await new Promise((resolve) => setTimeout(resolve, 50));
  };

  it('makes a socket that vanished again, and it stays, however often', async () => {
    await serve();
    for (let round = 0; round < 2; round++) {
      await rm(path);
      await until(answers);
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      expect(existsSync(path)).toBe(true);
      expect(await answers()).toBe(true);
    }
  });

  it('is refused where another answers, and leaves that one alone', async () => {
    await serve();
    await expect(serveUnix(path, () => undefined, silentLog())).rejects.toMatchObject({ code: 'already-exists' });
    expect(await answers()).toBe(true);
  });

  it('is refused where something else lies', async () => {
    await writeFile(path, 'mine');
    await expect(serveUnix(path, () => undefined, silentLog())).rejects.toMatchObject({ code: 'already-exists' });
    await rm(path);
  });
});
