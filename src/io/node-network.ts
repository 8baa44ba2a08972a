import { chmod, rm, stat } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { Address, Listener, Network, Stream } from './io.js';
import { errnoOf, systemError } from './node-errors.js';
import { NodeStream } from './node-stream.js';

/** How long an address of this machine may take to tell whether a process answers there. */
const PROBE_TIMEOUT_MS = 2_000;
/** Longest path of a unix socket (sun_path without its closing zero). */
const MAX_UNIX_PATH_BYTES = 107;
const BACKLOG = 1_024;

export class NodeNetwork implements Network {
  async connect(address: Address, timeoutMs: number): Promise<Stream> {
    return new NodeStream(await connectSocket(address, timeoutMs));
  }

  async listen(address: Address, accept: (stream: Stream) => void): Promise<Listener> {
    if (address.kind === 'unix') await clearUnixPath(address.path);
    const server = createServer({ noDelay: true }, (socket) => accept(new NodeStream(socket)));
    await listenOn(server, address);
    if (address.kind === 'unix') await chmod(address.path, 0o600);
    const bound = server.address();
    return {
      address:
        address.kind === 'tcp' && typeof bound === 'object' && bound !== null
          ? { ...address, port: bound.port }
          : address,
      close: () => {
        // Node's own callback waits for the accepted connections as well; the address is free at once.
        server.close();
        return Promise.resolve();
      },
    };
  }
}

function listenOn(server: Server, address: Address): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error) => reject(listenError(error, address)));
    server.listen(
      address.kind === 'unix'
        ? { path: address.path, backlog: BACKLOG }
        : { host: address.host, port: address.port, backlog: BACKLOG },
      () => {
        server.removeAllListeners('error');
        // A failed accept (say, no file descriptor left) loses one connection, not the listener.
        server.on('error', () => undefined);
        resolve();
      },
    );
  });
}

function listenError(error: unknown, address: Address): HoldfastError {
  const known = systemError(error, `listen on ${describe(address)}`);
  return known.code === 'io-error' ? new HoldfastError('unavailable', known.message, { cause: error }) : known;
}

/** Makes way for a socket: one that nobody answers on is removed. */
async function clearUnixPath(path: string): Promise<void> {
  const length = new TextEncoder().encode(path).length;
  if (length > MAX_UNIX_PATH_BYTES) {
    const limit = `at most ${MAX_UNIX_PATH_BYTES} bytes`;
    throw new HoldfastError('invalid-argument', `unix socket path ${path} has ${length} bytes; it must have ${limit}`);
  }
  const found = await stat(path).catch(() => undefined);
  if (found === undefined) return;
  if (!found.isSocket()) throw new HoldfastError('already-exists', `${path} is there and is no socket; remove it`);
  try {
    (await connectSocket({ kind: 'unix', path }, PROBE_TIMEOUT_MS)).destroy();
  } catch (error) {
    const cause = error instanceof HoldfastError ? error.cause : error;
    // Refused is the one sure sign that no process has it open; a full backlog or a timeout is not.
    if (errnoOf(cause) === 'ECONNREFUSED' || errnoOf(cause) === 'ENOENT') {
      await rm(path, { force: true });
      return;
    }
  }
  throw new HoldfastError('already-exists', `socket ${path} is in use by a running process; stop that one first`);
}

function connectSocket(address: Address, timeoutMs: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket =
      address.kind === 'unix'
        ? connect({ path: address.path })
        : connect({ host: address.host, port: address.port, noDelay: true });
    const fail = (error: unknown): void => {
      clearTimeout(timeout);
      socket.destroy();
      const message = `connect to ${describe(address)}: ${messageOf(error) || errnoOf(error)}`;
      reject(new HoldfastError('unavailable', message, { cause: error }));
    };
    const timeout = setTimeout(() => fail(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    socket.on('error', fail);
    socket.once('connect', () => {
      clearTimeout(timeout);
      socket.removeListener('error', fail);
      resolve(socket);
    });
  });
}

function describe(address: Address): string {
  return address.kind === 'unix' ? address.path : `${address.host}:${address.port}`;
}
