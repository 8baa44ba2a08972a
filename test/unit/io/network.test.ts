import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect as rawConnect, createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createNodeIo } from '../../../src/io/node-io.js';

// What all implementations do is tested by test/contract/network.ts.

const { network } = createNodeIo();
let directory: string;

beforeEach(() => {
  directory = mkdtempSync('/tmp/holdfast-network-');
});

afterEach(() => {
  rmSync(directory, { recursive: true, force: true });
});

describe("Node's listening", () => {
  it('replaces the socket of a dead process, and removes its own when it ends', async () => {
    const path = `${directory}/dead`;
    spawnSync(process.execPath, ['-e', `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`]); // prettier-ignore
    expect(existsSync(path)).toBe(true);
    const listener = await network.listen({ kind: 'unix', path }, () => undefined);
    const client = await network.connect({ kind: 'unix', path }, 2_000);
    client.close();
    await listener.close();
    expect(existsSync(path)).toBe(false);
  });

  it('leaves a socket alone that somebody else listens on', async () => {
    const path = `${directory}/live`;
    const other = createServer().listen(path);
    await new Promise((resolve) => other.once('listening', resolve));
    await expect(network.listen({ kind: 'unix', path }, () => undefined)).rejects.toMatchObject({
      code: 'already-exists',
    });
    await new Promise<void>((resolve) => rawConnect(path, resolve).unref());
    other.close();
  });
});

describe("Node's connecting", () => {
  it('fails with unavailable where nobody listens, within its time', async () => {
    await expect(network.connect({ kind: 'tcp', host: '127.0.0.1', port: 1 }, 1_000)).rejects.toMatchObject({
      code: 'unavailable',
    });
    // A test address that no packet comes back from.
    await expect(network.connect({ kind: 'tcp', host: '192.0.2.1', port: 9 }, 50)).rejects.toMatchObject({
      code: 'unavailable',
    });
  });
});
