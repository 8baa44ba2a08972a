import { run } from '../../src/base/run.js';
import type { DevDescription } from '../../src/dev/description.js';
import { CONTROLLER_ADDRESS } from '../../src/dev/layout.js';

const TIMEOUT_MS = 10_000;
/** Nobody has it: what is sent there, the switch gives to all, and all drop it. */
const NOWHERE = '02:00:00:00:00:01';

/** The controller's place in the network; nodes go by their names. */
export const CONTROLLER = 'controller';

/**
 * The wires between the nodes (and the controller) of a dev cluster, each direction on its own. What is sent on a dead
 * one vanishes in silence, as in a real partition: a sender has a permanent wrong entry for the address in its
 * neighbour table.
 */
export class Links {
  readonly #dead: { namespace: string; device: string; address: string }[] = [];

  constructor(private readonly cluster: DevDescription) {}

  /** Nothing that `from` sends to `to` arrives any more. Repeats do nothing. */
  async cut(from: string, to: string): Promise<void> {
    const [sender, receiver] = [this.#place(from), this.#place(to)];
    const dead = { namespace: sender.namespace, device: sender.device, address: receiver.address };
    if (this.#dead.some(({ namespace, address }) => namespace === dead.namespace && address === dead.address)) return;
    this.#dead.push(dead);
    const where = ['dev', dead.device, 'nud', 'permanent'];
    await this.#neighbour(dead.namespace, 'replace', dead.address, 'lladdr', NOWHERE, ...where);
  }

  async cutBothWays(one: string, other: string): Promise<void> {
    await this.cut(one, other);
    await this.cut(other, one);
  }

  /** What the node sends arrives nowhere; it goes on hearing the others. */
  async silence(node: string): Promise<void> {
    for (const other of this.#others(node)) await this.cut(node, other);
  }

  /** What is sent to the node does not arrive; the others go on hearing it. */
  async deafen(node: string): Promise<void> {
    for (const other of this.#others(node)) await this.cut(other, node);
  }

  /** All wires are well again. Repeats do nothing. */
  async heal(): Promise<void> {
    for (const { namespace, device, address } of this.#dead.splice(0)) {
      await this.#neighbour(namespace, 'del', address, 'dev', device);
    }
  }

  #others(node: string): string[] {
    return [CONTROLLER, ...this.cluster.nodes.map(({ name }) => name)].filter((name) => name !== node);
  }

  #place(name: string): { namespace: string; device: string; address: string } {
    const { switchNamespace, nodes } = this.cluster;
    if (name === CONTROLLER) return { namespace: switchNamespace, device: 'switch0', address: CONTROLLER_ADDRESS };
    const node = nodes.find((one) => one.name === name);
    if (node === undefined) throw new Error(`there is no node ${name}`);
    return { namespace: node.networkNamespace, device: 'eth0', address: node.address };
  }

  async #neighbour(namespace: string, ...args: string[]): Promise<void> {
    await run('ip', ['-n', namespace, 'neigh', ...args], { timeoutMs: TIMEOUT_MS });
  }
}
