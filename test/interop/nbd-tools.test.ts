import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
  closeSync,
} from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/base/log.js';
import { createNodeIo } from '../../src/io/node-io.js';
import { NbdClient } from '../../src/nbd/client.js';
import { serveNbd, type NbdServer } from '../../src/nbd/server.js';
import { FileStage } from '../support/file-stage.js';
import { NamedExports } from '../support/memory-stage.js';

/** Other people's NBD clients and servers as judges of ours. */

const io = createNodeIo();
const SIZE = 256 * 1024 * 1024;
const MIB = 1024 * 1024;

let directory: string;
let stage: FileStage;
let server: NbdServer;
let uri: string;
let readOnlyUri: string;
const undo: (() => unknown)[] = [];

beforeAll(async () => {
  directory = mkdtempSync('/tmp/holdfast-interop-');
  stage = await FileStage.create(io, `${directory}/volume`, SIZE);
  server = await serveNbd({
    io,
    address: { kind: 'unix', path: `${directory}/nbd` },
    exports: new NamedExports({ volume: { stage, readOnly: false }, snapshot: { stage, readOnly: true } }),
    slab: io.slab(64 * MIB),
    log: silentLog(),
  });
  uri = `nbd+unix:///volume?socket=${directory}/nbd`;
  readOnlyUri = `nbd+unix:///snapshot?socket=${directory}/nbd`;
});

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
  expect(server.connectionCount).toBe(0);
});

afterAll(async () => {
  await server.close();
  await stage.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Runs a tool to its end. */
function run(command: string, ...args: string[]): Promise<{ code: number; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: directory });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const limit = setTimeout(() => child.kill('SIGKILL'), 100_000);
    child.once('error', reject);
    child.once('close', (code) => {
      clearTimeout(limit);
      resolve({ code: code ?? -1, output });
    });
  });
}

async function succeed(command: string, ...args: string[]): Promise<string> {
  const { code, output } = await run(command, ...args);
  expect(output + `\nexit ${code}`).toMatch(/\nexit 0$/);
  return output;
}

/** A sparse image of the export's size with data at the start, in the middle and at the end. */
function makeImage(path: string): void {
  writeFileSync(path, '');
  const file = openSync(path, 'r+');
  for (const offset of [0, 10 * MIB, 100 * MIB + 4096, SIZE - MIB]) writeSync(file, randomBytes(MIB), 0, MIB, offset);
  closeSync(file);
}

describe('nbdinfo', () => {
  it('tells the size, the flags and the block sizes', async () => {
    expect((await succeed('nbdinfo', '--size', uri)).trim()).toBe(String(SIZE));
    const [info] = (JSON.parse(await succeed('nbdinfo', '--json', uri)) as { exports: Record<string, unknown>[] })
      .exports;
    expect(info).toMatchObject({
      'export-size': SIZE,
      is_read_only: false,
      can_cache: false,
      can_df: true,
      can_fast_zero: true,
      can_flush: true,
      can_fua: true,
      can_multi_conn: true,
      can_trim: true,
      can_zero: true,
      contexts: ['base:allocation'],
      block_size_minimum: 4096,
      block_size_preferred: 4096,
      block_size_maximum: 4 * MIB,
    });
    await succeed('nbdinfo', '--is', 'read-only', readOnlyUri);
  });

  it('lists the exports', async () => {
    const list = await succeed('nbdinfo', '--list', '--json', `nbd+unix:///?socket=${directory}/nbd`);
    const names = (JSON.parse(list) as { exports: { 'export-name': string }[] }).exports.map((e) => e['export-name']);
    expect(names).toEqual(['volume', 'snapshot']);
  });

  it('is refused an export that there is not', async () => {
    expect((await run('nbdinfo', `nbd+unix:///missing?socket=${directory}/nbd`)).code).not.toBe(0);
  });

  it('maps data and holes', async () => {
    const client = await NbdClient.connect({ io, address: server.address, exportName: 'volume', timeoutMs: 5_000 });
    await client.zero(0, SIZE, false, false);
    const slab = io.slab(MIB);
    const data = await slab.take(MIB);
    data.bytes.fill(1);
    await client.write(8 * MIB, data, true);
    client.close();
    await client.lost;
    const map = JSON.parse(await succeed('nbdinfo', '--map', '--json', uri)) as Record<string, unknown>[];
    expect(map.map(({ offset, length, type }) => [offset, length, type])).toEqual([
      [0, 8 * MIB, 3],
      [8 * MIB, MIB, 0],
      [9 * MIB, SIZE - 9 * MIB, 3],
    ]);
  });
});

describe('nbdcopy', () => {
  it('copies an image in over several connections, and out again, unchanged', async () => {
    makeImage(`${directory}/in`);
    await succeed('nbdcopy', '--connections=4', '--flush', '--', `${directory}/in`, uri);
    await succeed('nbdcopy', '--connections=4', '--', uri, `${directory}/out`);
    expect(readFileSync(`${directory}/out`).equals(readFileSync(`${directory}/in`))).toBe(true);
    // Holes stayed holes on the way in.
    expect(statSync(`${directory}/volume`).blocks * 512).toBeLessThan(16 * MIB);
  });

  it('is refused a write to a read-only export', async () => {
    expect((await run('nbdcopy', '--', `${directory}/in`, readOnlyUri)).code).not.toBe(0);
  });
});

describe('qemu-img', () => {
  it('converts in and out and finds them equal', async () => {
    makeImage(`${directory}/in`);
    await succeed('qemu-img', 'convert', '-n', '-f', 'raw', '-O', 'raw', `${directory}/in`, uri);
    const info = JSON.parse(await succeed('qemu-img', 'info', '--output=json', uri)) as Record<string, unknown>;
    expect(info['virtual-size']).toBe(SIZE);
    await succeed('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', `${directory}/in`, uri);
    await succeed('qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', uri, `${directory}/out.qcow2`);
    await succeed('qemu-img', 'compare', `${directory}/in`, `${directory}/out.qcow2`);
    await succeed('qemu-img', 'map', '--output=json', '-f', 'raw', uri);
  });

  it('writes, trims and reads patterns', async () => {
    const commands = [
      'write -P 0x11 0 1M',
      'write -f -P 0x22 1M 64k',
      'write -z 2M 4k',
      'write -z -u 0 4k',
      'discard 1M 4k',
      'flush',
      'read -P 0 0 4k',
      'read -P 0x11 4k 1020k',
      'read -P 0x22 1028k 60k',
      // qemu makes these whole by reading around them.
      'write -P 0x33 512 512',
      'read -P 0x33 512 512',
    ];
    const output = await succeed('qemu-io', '-f', 'raw', ...commands.flatMap((command) => ['-c', command]), uri);
    expect(output).not.toMatch(/failed|error/i);
  });
});

describe('fio', () => {
  it('verifies what it wrote, with many requests of many sizes in flight', async () => {
    await succeed(
      'fio', '--name=verify', '--ioengine=nbd', `--uri=${uri}`, '--rw=randwrite', '--bsrange=4k-1m', '--blockalign=4k',
      '--iodepth=32', '--size=64m', '--verify=crc32c', '--verify_fatal=1', '--fsync=64', '--randseed=7',
    ); // prettier-ignore
  });
});

describe('nbdkit', () => {
  it('relays the export with its nbd plugin, trimming and zeroing through it', async () => {
    makeImage(`${directory}/in`);
    const script = [
      `nbdcopy --flush -- ${directory}/in "$uri"`,
      `nbdcopy -- "$uri" ${directory}/out`,
      `cmp ${directory}/in ${directory}/out`,
      `qemu-io -f raw -c 'discard 0 1M' -c 'write -z 1M 1M' -c flush -c 'read -P 0 0 2M' "$uri"`,
    ].join(' && ');
    const output = await succeed('nbdkit', '--unix', '-', 'nbd', `uri=${uri}`, '--run', script);
    expect(output).not.toMatch(/failed/);
  });

  it.each([[], ['--no-sr']])('is a server that our client can use (%s)', async (...flags) => {
    const socket = `${directory}/kit`;
    const child = spawn('nbdkit', ['-f', '--exit-with-parent', ...flags, '--unix', socket, 'memory', 'size=64M'], {
      stdio: 'ignore',
    });
    undo.push(async () => {
      const gone = new Promise((resolve) => child.once('close', resolve));
      child.kill();
      await gone;
      rmSync(socket, { force: true });
    });
    while (!existsSync(socket)) await io.clock.sleep(20);
    await exercise(socket);
  });
});

async function exercise(socket: string): Promise<void> {
  const client = await NbdClient.connect({
    io,
    address: { kind: 'unix', path: socket },
    exportName: '',
    timeoutMs: 5_000,
  });
  const slab = io.slab(8 * MIB);
  const data = await slab.take(MIB);
  data.bytes.fill(7);
  await client.write(4 * MIB, data, true);
  await client.flush();
  await client.trim(4 * MIB, 4096, false);
  await client.zero(5 * MIB - 4096, 4096, true, false);
  const back = await client.read(4 * MIB - 4096, MIB + 8192, slab);
  expect(back.bytes.findIndex((byte) => byte !== 0)).toBe(8192);
  expect(back.bytes.findLastIndex((byte) => byte !== 0)).toBe(MIB - 1);
  const extents = await client.extents(0, 64 * MIB);
  expect(extents.reduce((sum, extent) => sum + extent.length, 0)).toBeGreaterThan(0);
  await expect(client.read(64 * MIB, 4096, slab)).rejects.toMatchObject({ code: 'invalid-argument' });
  back.release();
  data.release();
  expect(slab.usedBytes).toBe(0);
  client.close();
  expect((await client.lost).code).toBe('unavailable');
}
