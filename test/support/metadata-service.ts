import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

const IDENTITY = '/latest/dynamic/instance-identity/document';
const SPOT = '/latest/meta-data/spot/instance-action';
const REBALANCE = '/latest/meta-data/events/recommendations/rebalance';

/** A stand-in for the instance metadata service, version 2, on a free loopback port. */
export class MetadataService {
  /** What stands at a path; missing: 404. */
  readonly documents = new Map<string, string>();
  /** It takes questions and gives no answer. */
  silent = false;
  /** The status of every request for a token. */
  tokenStatus = 200;
  tokensGiven = 0;
  #token = '';

  private constructor(private readonly server: Server) {
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      if (!this.silent) this.#answer(request, response);
    });
  }

  static async start(): Promise<MetadataService> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new MetadataService(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  set identity(document: Readonly<Record<string, unknown>>) {
    this.documents.set(IDENTITY, JSON.stringify(document));
  }

  set interruption(notice: Readonly<Record<string, unknown>>) {
    this.documents.set(SPOT, JSON.stringify(notice));
  }

  set rebalance(notice: Readonly<Record<string, unknown>>) {
    this.documents.set(REBALANCE, JSON.stringify(notice));
  }

  /** The token in use is no longer known. */
  forgetToken(): void {
    this.#token = '';
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  #answer({ method, url = '', headers }: IncomingMessage, response: ServerResponse): void {
    if (url === '/latest/api/token') {
      const seconds = Number(headers['x-aws-ec2-metadata-token-ttl-seconds']);
      const right = method === 'PUT' && seconds >= 1 && seconds <= 21_600;
      response.writeHead(right ? this.tokenStatus : 400);
      this.#token = `token-${++this.tokensGiven}==`;
      response.end(right ? this.#token : '');
      return;
    }
    const known = this.#token !== '' && headers['x-aws-ec2-metadata-token'] === this.#token;
    const document = this.documents.get(url);
    response.writeHead(!known ? 401 : document === undefined ? 404 : 200);
    response.end(known ? document : '');
  }
}
