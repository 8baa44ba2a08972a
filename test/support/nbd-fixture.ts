import { mkdtempSync, rmSync } from 'node:fs';
import { silentLog } from '../../src/base/log.js';
import type { Address, Io, Lease, Slab } from '../../src/io/io.js';
import { createNodeIo } from '../../src/io/node-io.js';
import { NbdClient } from '../../src/nbd/client.js';
import { serveNbd, type NbdServer, type NbdServerOptions } from '../../src/nbd/server.js';
import type { Export } from '../../src/nbd/stage.js';
import { MemoryStage, NamedExports } from './memory-stage.js';
import { RawPeer } from './raw-nbd.js';

export const PAGE = 4096;
export const MIB = 1024 * 1024;

/** A server of one in-memory volume on a unix socket of its own. */
export interface NbdFixture {
  readonly io: Io;
  readonly stage: MemoryStage;
  readonly exports: NamedExports;
  readonly server: NbdServer;
  readonly address: Address;
  readonly path: string;
  /** Of the clients. */
  readonly slab: Slab;
  readonly serverSlab: Slab;
  connect(exportName?: string): Promise<NbdClient>;
  raw(): Promise<RawPeer>;
  filled(length: number, byte: number): Promise<Lease>;
  end(): Promise<void>;
}

export async function startNbd(
  changes: Partial<Export> = {},
  options: Partial<NbdServerOptions> = {},
): Promise<NbdFixture> {
  const io = options.io ?? createNodeIo();
  const directory = mkdtempSync('/tmp/holdfast-nbd-');
  const path = `${directory}/nbd`;
  const address: Address = { kind: 'unix', path };
  const stage = new MemoryStage(16 * MIB);
  const exports = new NamedExports({ volume: { stage, readOnly: false, ...changes } });
  const slab = io.slab(16 * MIB);
  const serverSlab = options.slab ?? io.slab(8 * MIB);
  const server = await serveNbd({ io, address, exports, slab: serverSlab, log: silentLog(), ...options });
  const clients: { close(): void }[] = [];
  return {
    io,
    stage,
    exports,
    server,
    address,
    path,
    slab,
    serverSlab,
    connect: async (exportName = 'volume') => {
      const client = await NbdClient.connect({ io, address, exportName, timeoutMs: 5_000 });
      clients.push(client);
      return client;
    },
    raw: async () => {
      const peer = await RawPeer.connect(path);
      clients.push(peer);
      return peer;
    },
    filled: async (length, byte) => {
      const lease = await slab.take(length);
      lease.bytes.fill(byte);
      return lease;
    },
    end: async () => {
      for (const client of clients) client.close();
      await server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Waits until a condition holds; the test's own time is the bound. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}
