import type { MessagePort, Worker } from 'node:worker_threads';
import { type ErrorCode, HoldfastError, asHoldfastError } from './errors.js';

/** Methods that one side of a port offers the other: structured-cloneable arguments and results. */
export type Methods = Record<string, (...args: never[]) => Promise<unknown>>;

/** How the other side calls them. */
export type Remote<M> = { [K in keyof M]: M[K] };

type Message =
  | { readonly kind: 'call'; readonly id: number; readonly method: string; readonly args: unknown[] }
  | { readonly kind: 'result'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'error'; readonly id: number; readonly code: ErrorCode; readonly message: string };

interface Waiting {
  resolve(value: unknown): void;
  reject(error: HoldfastError): void;
}

/** Calls in both directions over a message port between threads. */
export class PortRpc<Theirs extends Methods> {
  readonly #waiting = new Map<number, Waiting>();
  #lastId = 0;

  constructor(
    private readonly port: MessagePort | Worker,
    private readonly ours: Methods,
  ) {
    port.on('message', (message: Message) => this.#onMessage(message));
  }

  /** The other side's methods. A call fails with the code and message that the method failed with. */
  call<K extends keyof Theirs & string>(method: K, ...args: Parameters<Theirs[K]>): ReturnType<Theirs[K]> {
    const id = ++this.#lastId;
    const answer = new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.port.postMessage({ kind: 'call', id, method, args } satisfies Message);
    });
    return answer as ReturnType<Theirs[K]>;
  }

  /** The other side is gone: every call that waits for it fails. */
  close(reason: HoldfastError): void {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const call of waiting) call.reject(reason);
  }

  #onMessage(message: Message): void {
    if (message.kind === 'call') {
      void this.#answer(message.id, message.method, message.args);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.kind === 'result') waiting?.resolve(message.value);
    else waiting?.reject(new HoldfastError(message.code, message.message));
  }

  async #answer(id: number, method: string, args: unknown[]): Promise<void> {
    try {
      const handle = this.ours[method];
      if (!handle) throw new HoldfastError('unimplemented', `no method ${method} on this side`);
      const value = await handle(...(args as never[]));
      this.port.postMessage({ kind: 'result', id, value } satisfies Message);
    } catch (error) {
      const { code, message } = asHoldfastError(error);
      this.port.postMessage({ kind: 'error', id, code, message } satisfies Message);
    }
  }
}
