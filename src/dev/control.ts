import { rm } from 'node:fs/promises';
import { createServer, request, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { codeOf, HoldfastError, messageOf, type ErrorCode } from '../base/errors.js';
import type { DevLayout } from './layout.js';

/*
 * The control of a running dev cluster: POST /nodes/NAME/VERB on a unix socket. The socket also tells a live dev
 * from the leavings of a dead one.
 */

/**
 * What can be done to a node.
 * start: the plugin again. stop: the plugin in good order; device process and mounts stay, as in an upgrade.
 * kill: a power cut; every process of the node dies, and its mounts and loop devices go with it.
 * cut: its network plug is pulled. heal: the plug is put in again.
 */
export const DEV_VERBS = ['start', 'stop', 'kill', 'cut', 'heal'] as const;
export type DevVerb = (typeof DEV_VERBS)[number];

export type DevAction = (node: string, verb: DevVerb) => Promise<void>;

const CALL_TIMEOUT_MS = 120_000;

interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Does something to a node of the dev cluster that runs on a directory. `failed-precondition`: none runs there. */
export async function controlNode(layout: DevLayout, node: string, verb: DevVerb): Promise<void> {
  const path = `/nodes/${encodeURIComponent(node)}/${verb}`;
  const { status, body } = await post(layout, path);
  if (status === 204) return;
  const refusal = JSON.parse(body) as Refusal;
  throw new HoldfastError(refusal.code, refusal.message);
}

/** Whether a dev process answers on the directory. */
export function devIsAlive(layout: DevLayout): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(layout.controlSocket);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => resolve(false));
  });
}

export interface ControlServer {
  stop(): Promise<void>;
}

/** Serves the control; the caller has made sure that no live dev does. */
export async function serveControl(layout: DevLayout, act: DevAction): Promise<ControlServer> {
  await rm(layout.controlSocket, { force: true });
  const server = createServer((message, response) => {
    const answer = (status: number, body?: Refusal): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(body === undefined ? '' : JSON.stringify(body));
    };
    carryOut(message, act).then(
      () => answer(204),
      (error: unknown) => answer(409, { code: codeOf(error), message: messageOf(error) }),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(layout.controlSocket, resolve);
  });
  return {
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function carryOut(message: IncomingMessage, act: DevAction): Promise<void> {
  const [, node, verb] = /^\/nodes\/([^/]+)\/([a-z]+)$/.exec(message.url ?? '') ?? [];
  const known = DEV_VERBS.find((one) => one === verb);
  if (message.method !== 'POST' || node === undefined || known === undefined) {
    throw new HoldfastError('invalid-argument', `${message.method ?? ''} ${message.url ?? ''}: no such control`);
  }
  await act(decodeURIComponent(node), known);
}

function post(layout: DevLayout, path: string): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const call = request(
      { socketPath: layout.controlSocket, path, method: 'POST', timeout: CALL_TIMEOUT_MS },
      (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text: string) => (body += text));
        response.once('end', () => resolve({ status: response.statusCode ?? 0, body }));
        response.once('error', reject);
      },
    );
    call.once('timeout', () =>
      call.destroy(new HoldfastError('deadline-exceeded', `holdfast dev did not answer within ${CALL_TIMEOUT_MS} ms`)),
    );
    call.once('error', (error) => reject(error instanceof HoldfastError ? error : noDev(layout, error)));
    call.end();
  });
}

function noDev(layout: DevLayout, cause: Error): HoldfastError {
  return new HoldfastError(
    'failed-precondition',
    `no dev cluster runs on ${layout.directory}; start one with: holdfast dev --dir ${layout.directory}`,
    { cause },
  );
}
