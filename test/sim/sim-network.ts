import { HoldfastError } from '../../src/base/errors.js';
import type { Address, Listener, Network, Stream } from '../../src/io/io.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import type { Deliverer, MachineClock } from './sim-clock.js';
import { Connection, type Endpoint } from './sim-connection.js';
import { shakeHands } from './sim-handshake.js';
import { Link, type NetworkHost } from './sim-link.js';
import type { Wire } from './sim-outgoing.js';

export { NetworkHost } from './sim-link.js';

/** One way within a machine. */
const LOCAL_LATENCY_MS: readonly [number, number] = [0.005, 0.03];
/** Longest path of a unix socket (sun_path without its closing zero). */
const MAX_UNIX_PATH_BYTES = 107;
const OWN_HOSTS: ReadonlySet<string> = new Set(['127.0.0.1', '::1', 'localhost']);

interface Listening {
  readonly process: Deliverer;
  readonly host: NetworkHost;
  readonly accept: (stream: Stream) => void;
}

/** Who calls, for the network of one process. */
interface Caller {
  readonly process: Deliverer;
  readonly host: NetworkHost;
  readonly clock: MachineClock;
  readonly isFile: (path: string) => boolean;
}

/** The machines' network: ordered, reliable streams over links that can be slow or cut, in each direction. */
export class SimNetwork implements Wire {
  /** One way between two machines. */
  latencyMs: [number, number] = [0.05, 0.3];
  readonly schedule: Schedule;
  readonly random: Prng;
  readonly #hosts = new Map<string, NetworkHost>();
  readonly #links = new Map<string, Map<string, Link>>();
  readonly #listeners = new Map<string, Listening>();
  readonly #connections = new Set<Connection>();

  constructor(schedule: Schedule, random: Prng) {
    this.schedule = schedule;
    this.random = random.fork();
  }

  /** Nothing from `from` reaches `to` any more; what is sent is held. */
  cut(from: string, to: string): void {
    if (from !== to) this.#link(from, to).cut = true;
  }

  /** What was held is delivered after a while, or its connection turns out to be broken. */
  heal(from: string, to: string): void {
    const link = this.#link(from, to);
    if (!link.cut) return;
    link.cut = false;
    for (const connection of this.#connections) {
      for (const end of connection.ends) {
        if (end.link === link) this.#resume(end);
        else if (end.peer.link === link) this.#hear(end);
      }
    }
  }

  healAll(): void {
    for (const links of this.#links.values()) for (const link of links.values()) this.heal(link.from, link.to);
  }

  isCut(from: string, to: string): boolean {
    return this.#link(from, to).cut;
  }

  /** Adds to the latency of the direction; 0 takes it back. */
  slow(from: string, to: string, extraMs: number): void {
    this.#link(from, to).extraMs = extraMs;
  }

  /** Every connection between the two breaks now; a side that the other's packets don't reach doesn't notice. */
  reset(one: string, other: string): void {
    for (const connection of this.#connections) {
      for (const end of connection.ends) {
        const { from, to } = end.link;
        if ((from !== one || to !== other) && (from !== other || to !== one)) continue;
        if (!end.peer.link.cut) end.break('the connection was reset');
      }
    }
  }

  /** Connections that some live process holds open. */
  connections(): number {
    let count = 0;
    for (const connection of this.#connections) if (connection.isOpen) count++;
    return count;
  }

  // What machines and processes need.

  join(host: NetworkHost): void {
    this.#hosts.set(host.name, host);
  }

  /** The network as one process sees it. `isFile` tells whether a path of its machine is a file. */
  of(process: Deliverer, host: NetworkHost, clock: MachineClock, isFile: (path: string) => boolean): Network {
    const caller: Caller = { process, host, clock, isFile };
    return {
      connect: (address, timeoutMs) => this.#connect(caller, address, timeoutMs),
      listen: (address, accept) => this.#listen(caller, address, accept),
    };
  }

  processKilled(process: Deliverer): void {
    this.#dropListeners((listening) => listening.process === process);
    this.#eachEnd((end) => {
      if (end.process === process) end.leave();
    });
  }

  /** The machine has lost its power. */
  vanished(host: NetworkHost): void {
    host.up = false;
    this.#dropListeners((listening) => listening.host === host);
    this.#eachEnd((end) => {
      if (end.host === host) end.vanish();
    });
  }

  /** It is up again and knows nothing of earlier connections. */
  booted(host: NetworkHost): void {
    host.up = true;
    this.#eachEnd((end) => {
      if (end.peer.host === host) end.outgoing.retry();
    });
  }

  latency(link: Link): number {
    const [low, high] = link.from === link.to ? LOCAL_LATENCY_MS : this.latencyMs;
    return this.random.between(low, high) + link.extraMs;
  }

  #listen(caller: Caller, address: Address, accept: (stream: Stream) => void): Promise<Listener> {
    const { process, host } = caller;
    return new Promise((resolve, reject) => {
      if (!process.alive) return;
      try {
        const listener = this.#register(caller, address, { process, host, accept });
        this.schedule.after(0, () => process.deliver(() => resolve(listener)));
      } catch (error) {
        if (!(error instanceof HoldfastError)) throw error;
        this.schedule.after(0, () => process.deliver(() => reject(error)));
      }
    });
  }

  #register({ host, process, isFile }: Caller, address: Address, listening: Listening): Listener {
    let bound = address;
    if (address.kind === 'unix') {
      const length = new TextEncoder().encode(address.path).length;
      if (length > MAX_UNIX_PATH_BYTES) {
        const limit = `at most ${MAX_UNIX_PATH_BYTES} bytes`;
        throw new HoldfastError('invalid-argument', `unix socket path ${address.path}: it must have ${limit}`);
      }
      if (isFile(address.path)) throw new HoldfastError('already-exists', `${address.path} is there and is no socket`);
    } else if (address.port === 0) {
      const port = host.freshPort((taken) => this.#listeners.has(keyOf(host.name, { ...address, port: taken })));
      bound = { ...address, port };
    }
    const key = keyOf(host.name, bound);
    if (this.#listeners.has(key)) throw new HoldfastError('already-exists', `listen on ${describe(address)}: in use`);
    this.#listeners.set(key, listening);
    return {
      address: bound,
      close: () => {
        if (!process.alive) return new Promise(() => undefined);
        if (this.#listeners.get(key) === listening) this.#listeners.delete(key);
        return Promise.resolve();
      },
    };
  }

  #connect(caller: Caller, address: Address, timeoutMs: number): Promise<Stream> {
    const { process, host } = caller;
    return new Promise((resolve, reject) => {
      if (!process.alive) return;
      let settled = false;
      const fail = (reason: string): void => {
        if (settled) return;
        settled = true;
        stop();
        reject(new HoldfastError('unavailable', `connect to ${describe(address)}: ${reason}`));
      };
      const stop = caller.clock.timer(process, timeoutMs, () => fail(`no answer within ${timeoutMs} ms`));
      const target = address.kind === 'unix' || OWN_HOSTS.has(address.host) ? host : this.#hosts.get(address.host);
      if (target === undefined) {
        this.schedule.after(this.random.between(...LOCAL_LATENCY_MS), () =>
          process.deliver(() => fail('there is no such machine')),
        );
        return;
      }
      const key = keyOf(target.name, address);
      const way = { there: this.#link(host.name, target.name), back: this.#link(target.name, host.name) };
      shakeHands(this, way, target, {
        isWanted: () => !settled && process.alive,
        asked: () => this.#listeners.get(key),
        refused: () => process.deliver(() => fail('nobody listens there')),
        accepted: (listening) => {
          const end = this.#open(caller, { ...way, key, listening });
          process.deliver(() => {
            if (settled) {
              end.close();
              return;
            }
            settled = true;
            stop();
            resolve(end);
          });
        },
      });
    });
  }

  #open(caller: Caller, way: { there: Link; back: Link; key: string; listening: Listening }): Endpoint {
    const { there, back, key, listening } = way;
    const client = { process: caller.process, host: caller.host, link: there };
    const server = { process: listening.process, host: listening.host, link: back };
    const connection = new Connection(this, client, server, {
      open: (end) => {
        if (this.#listeners.get(key) !== listening) return false;
        listening.process.deliver(() => listening.accept(end));
        return true;
      },
      ended: () => this.#connections.delete(connection),
    });
    this.#connections.add(connection);
    return connection.client;
  }

  #resume(end: Endpoint): void {
    if (!end.outgoing.isStuck) return;
    if (this.random.chance(0.5)) end.outgoing.retry();
    else {
      end.break('the connection was lost');
      end.peer.break('the connection was lost');
    }
  }

  /** What the far side says reaches this one again. */
  #hear(end: Endpoint): void {
    end.outgoing.hear();
    if (!end.link.cut) end.outgoing.retry();
  }

  #link(from: string, to: string): Link {
    let links = this.#links.get(from);
    if (!links) this.#links.set(from, (links = new Map<string, Link>()));
    let link = links.get(to);
    if (!link) links.set(to, (link = new Link(from, to)));
    return link;
  }

  #eachEnd(visit: (end: Endpoint) => void): void {
    for (const connection of this.#connections) for (const end of connection.ends) visit(end);
  }

  #dropListeners(isGone: (listening: Listening) => boolean): void {
    for (const [key, listening] of this.#listeners) if (isGone(listening)) this.#listeners.delete(key);
  }
}

/** What a listener is found by. All addresses of a machine are one. */
function keyOf(machine: string, address: Address): string {
  return address.kind === 'unix' ? `${machine} ${address.path}` : `${machine}:${address.port}`;
}

function describe(address: Address): string {
  return address.kind === 'unix' ? address.path : `${address.host}:${address.port}`;
}
