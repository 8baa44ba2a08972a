import { createServer, type ServerResponse } from 'node:http';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { RepeatedFault } from '../store/repeated-fault.js';
import { CONTENT_TYPE } from './exposition.js';

export interface MetricsServer {
  readonly port: number;
  stop(): Promise<void>;
}

/**
 * Serves GET /metrics over HTTP; `text` is asked each time. Port 0: any.
 * `unavailable`: the address can't be listened on.
 */
export async function serveMetrics(
  host: string,
  port: number,
  text: () => Promise<string>,
  log: Log,
): Promise<MetricsServer> {
  const fault = new RepeatedFault(log, 'telling metrics');
  const answer = async (response: ServerResponse): Promise<void> => {
    try {
      const body = await text();
      response.writeHead(200, { 'content-type': CONTENT_TYPE }).end(body);
      fault.succeeded();
    } catch (error) {
      fault.failed(error);
      response.writeHead(500, { 'content-type': 'text/plain' }).end(`${messageOf(error)}\n`);
    }
  };
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://localhost').pathname;
    if (request.method !== 'GET') response.writeHead(405, { allow: 'GET' }).end();
    else if (path === '/metrics') void answer(response);
    else response.writeHead(404, { 'content-type': 'text/plain' }).end('there is only /metrics\n');
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) =>
      reject(new HoldfastError('unavailable', `can't serve metrics on ${host}:${port}: ${error.message}`)),
    );
    server.listen(port, host, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
