import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** What the proxy does with a request instead of passing it on and its answer back. */
export type Ec2Fault =
  | { readonly kind: 'delay'; readonly delayMs: number }
  /** Answered so without effect. `clockAheadMs`: how far EC2's clock is ahead of this machine's, by the answer. */
  | { readonly kind: 'refuse'; readonly status: number; readonly code: string; readonly clockAheadMs?: number }
  | { readonly kind: 'lose-request' }
  /** Carried out, and the connection cut instead of an answer. */
  | { readonly kind: 'lose-answer' }
  /** Carried out, and answered with HTTP 500. */
  | { readonly kind: 'break-answer' }
  /** Answered with the oldest answer to the same question, up to 30 s old. */
  | { readonly kind: 'stale' };

export const THROTTLE: Ec2Fault = { kind: 'refuse', status: 503, code: 'RequestLimitExceeded' };

interface Order {
  readonly fault: Ec2Fault;
  readonly action: string | undefined;
  left: number;
}

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

interface Asked {
  readonly action: string;
  readonly parameters: URLSearchParams;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

const STALE_MS = 30_000;

/**
 * An EC2 endpoint that passes requests on to a stand-in (moto) and, on order, does to them what EC2 and networks do. It
 * also keeps two rules of EC2 that moto lacks: a ClientToken gives one volume, and a volume in use is not attached.
 */
export class Ec2Proxy {
  /** The actions that were asked for, in order, refused ones among them. */
  readonly asked: string[] = [];
  /** Calls beyond so many in one second are throttled. */
  callsPerSecond = Infinity;

  readonly #orders: Order[] = [];
  readonly #answers = new Map<string, { readonly atMs: number; readonly answer: Answer }[]>();
  readonly #tokens = new Map<string, { readonly body: string; readonly answer: Promise<Answer> }>();
  readonly #stop = new AbortController();
  #second = { atMs: 0, calls: 0 };

  private constructor(
    private readonly upstream: string,
    private readonly server: Server,
  ) {
    server.on('request', (request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  static async start(upstream: string): Promise<Ec2Proxy> {
    const server = createServer();
    const proxy = new Ec2Proxy(upstream, server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** For the next `times` requests (of one action). Orders are carried out in the order in which they were given. */
  order(fault: Ec2Fault, { action, times = 1 }: { action?: string; times?: number } = {}): void {
    this.#orders.push({ fault, action, left: times });
  }

  /** No order is left, no call is throttled, and nothing was asked. */
  clear(): void {
    this.#orders.length = 0;
    this.asked.length = 0;
    this.callsPerSecond = Infinity;
  }

  count(action: string): number {
    return this.asked.filter((each) => each === action).length;
  }

  async end(): Promise<void> {
    this.#stop.abort();
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const asked = await read(request);
    this.asked.push(asked.action);
    const fault = this.#isTooFast() ? THROTTLE : this.#take(asked.action);
    const answer = await this.#answer(asked, fault);
    if (answer === undefined) response.destroy();
    else send(response, answer, fault?.kind === 'refuse' ? fault.clockAheadMs : undefined);
  }

  /** Undefined: the connection is cut. */
  async #answer(asked: Asked, fault: Ec2Fault | undefined): Promise<Answer | undefined> {
    switch (fault?.kind) {
      case undefined:
        return this.#carryOut(asked);
      case 'delay':
        await sleep(fault.delayMs, undefined, { signal: this.#stop.signal });
        return this.#carryOut(asked);
      case 'refuse':
        return refusal(fault.status, fault.code);
      case 'lose-request':
        return undefined;
      case 'lose-answer':
        await this.#carryOut(asked);
        return undefined;
      case 'break-answer':
        await this.#carryOut(asked);
        return refusal(500, 'InternalError');
      case 'stale':
        return this.#oldest(asked.body) ?? this.#carryOut(asked);
    }
  }

  async #carryOut(asked: Asked): Promise<Answer> {
    if (asked.action === 'CreateVolume') return this.#once(asked);
    if (asked.action === 'AttachVolume' && (await this.#isInUse(asked))) return refusal(400, 'VolumeInUse');
    const answer = await this.#pass(asked, asked.body);
    if (asked.action.startsWith('Describe')) this.#keep(asked.body, answer);
    return answer;
  }

  /** As EC2 does it: the same token with the same parameters has the same answer. */
  async #once(asked: Asked): Promise<Answer> {
    const token = asked.parameters.get('ClientToken') ?? '';
    const known = this.#tokens.get(token);
    if (known !== undefined && known.body !== asked.body) return refusal(400, 'IdempotentParameterMismatch');
    if (known !== undefined) return known.answer;
    const answer = this.#pass(asked, asked.body);
    this.#tokens.set(token, { body: asked.body, answer });
    if ((await answer).status !== 200) this.#tokens.delete(token);
    return answer;
  }

  async #isInUse(asked: Asked): Promise<boolean> {
    const volume = asked.parameters.get('VolumeId') ?? '';
    const question = new URLSearchParams({ Action: 'DescribeVolumes', Version: '2016-11-15', 'VolumeId.1': volume });
    return (await this.#pass(asked, question.toString())).body.includes('<status>in-use</status>');
  }

  async #pass({ headers }: Asked, body: string): Promise<Answer> {
    const answer = await fetch(this.upstream, { method: 'POST', headers, body, signal: this.#stop.signal });
    return { status: answer.status, type: answer.headers.get('content-type') ?? 'text/xml', body: await answer.text() };
  }

  #take(action: string): Ec2Fault | undefined {
    const order = this.#orders.find((each) => each.left > 0 && (each.action ?? action) === action);
    if (order !== undefined) order.left--;
    return order?.fault;
  }

  #isTooFast(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#second.atMs >= 1_000) this.#second = { atMs: nowMs, calls: 0 };
    return ++this.#second.calls > this.callsPerSecond;
  }

  #keep(question: string, answer: Answer): void {
    this.#answers.set(question, [...this.#kept(question), { atMs: performance.now(), answer }]);
  }

  #oldest(question: string): Answer | undefined {
    return this.#kept(question)[0]?.answer;
  }

  #kept(question: string): { readonly atMs: number; readonly answer: Answer }[] {
    return (this.#answers.get(question) ?? []).filter(({ atMs }) => performance.now() - atMs < STALE_MS);
  }
}

async function read(request: IncomingMessage): Promise<Asked> {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) body += chunk as string;
  const parameters = new URLSearchParams(body);
  return {
    action: parameters.get('Action') ?? '',
    parameters,
    body,
    headers: {
      authorization: request.headers.authorization ?? '',
      'content-type': request.headers['content-type'] ?? '',
    },
  };
}

function send(response: ServerResponse, answer: Answer, clockAheadMs = 0): void {
  const date = new Date(Date.now() + clockAheadMs).toUTCString();
  response.writeHead(answer.status, { 'content-type': answer.type, date }).end(answer.body);
}

function refusal(status: number, code: string): Answer {
  const error = `<Error><Code>${code}</Code><Message>as ordered</Message></Error>`;
  const body = `<?xml version="1.0"?><Response><Errors>${error}</Errors><RequestID>0</RequestID></Response>`;
  return { status, type: 'text/xml', body };
}
