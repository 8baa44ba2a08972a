import { existsSync } from 'node:fs';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { Server, ServerCredentials, type ServerInterceptor } from '@grpc/grpc-js';
import { HoldfastError, messageOf } from './errors.js';
import type { Log } from './log.js';

const WATCH_INTERVAL_MS = 2_000;
const STOP_GRACE_MS = 3_000;
/** A client behind a cut network is noticed, and its calls end. */
const KEEPALIVE = { 'grpc.keepalive_time_ms': 10_000, 'grpc.keepalive_timeout_ms': 5_000 };

/** A gRPC server bound to addresses of its own. */
export interface RunningServer {
  /** Lets calls end for a grace time, then cuts them off. */
  stop(): Promise<void>;
}

/**
 * Serves gRPC on a unix socket. A socket left by a dead process is replaced; one that a live process answers on is
 * refused with `already-exists`; one that vanishes while serving is made again.
 */
export async function serveUnix(
  path: string,
  addServices: (server: Server) => void,
  log: Log,
  interceptors: ServerInterceptor[] = [],
): Promise<RunningServer> {
  await mkdir(dirname(path), { recursive: true });
  if (await answers(path)) {
    throw new HoldfastError('already-exists', `socket ${path} is in use by a running process; stop that one first`);
  }
  let server = await bindUnix(path, addServices, interceptors);
  let making = false;
  const watch = setInterval(() => {
    if (existsSync(path) || making) return;
    making = true;
    log.warn({ path }, 'socket vanished; making it again');
    const old = server;
    void bindUnix(path, addServices, interceptors).then(
      (made) => {
        server = made;
        making = false;
        old.tryShutdown(() => undefined);
      },
      (error: unknown) => {
        making = false;
        log.error({ path, err: error }, 'socket can not be made again');
      },
    );
  }, WATCH_INTERVAL_MS);
  watch.unref();
  return {
    stop: async () => {
      clearInterval(watch);
      await stopServer(server);
      await rm(path, { force: true });
    },
  };
}

/** Serves gRPC on a TCP address; resolves to the port. */
export async function serveTcp(
  host: string,
  port: number,
  addServices: (server: Server) => void,
  interceptors: ServerInterceptor[] = [],
): Promise<RunningServer & { port: number }> {
  const server = new Server({ ...KEEPALIVE, interceptors });
  addServices(server);
  const listening = await bind(server, `${host.includes(':') ? `[${host}]` : host}:${String(port)}`);
  return { port: listening, stop: () => stopServer(server) };
}

/** Bound under a name of its own: a server that ends removes the name it was bound to, which must not be its successor's. */
async function bindUnix(
  path: string,
  addServices: (server: Server) => void,
  interceptors: ServerInterceptor[],
): Promise<Server> {
  const own = `${path}.${(++bound).toString(36)}`;
  await rm(own, { force: true });
  const server = new Server({ interceptors });
  addServices(server);
  await bind(server, `unix:${own}`);
  await rename(own, path);
  return server;
}

let bound = 0;

function bind(server: Server, address: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
      if (error) reject(new HoldfastError('unavailable', `can't listen on ${address}: ${messageOf(error)}`));
      else resolve(port);
    });
  });
}

function stopServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const force = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, STOP_GRACE_MS);
    server.tryShutdown(() => {
      clearTimeout(force);
      resolve();
    });
  });
}

async function answers(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return false;
  if (!found.isSocket()) throw new HoldfastError('already-exists', `${path} is there and is no socket; remove it`);
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => resolve(false));
  });
}
