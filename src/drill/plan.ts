import { HoldfastError } from '../base/errors.js';
import { integer } from '../config-values.js';

export const DRILL_KINDS = ['kill', 'pause', 'partition', 'fill'] as const;
export type DrillKind = (typeof DRILL_KINDS)[number];

/** The real thing that is done to the cluster. */
export type DrillFault =
  /** SIGKILL of the node plugin; it is started again at the end. */
  | { readonly kind: 'kill'; readonly node: string }
  /** SIGSTOP of the node plugin, SIGCONT at the end: a writer that wakes up when another has taken over. */
  | { readonly kind: 'pause'; readonly node: string }
  /** Packets between a node and all others, the controller too, are lost; `oneWay`: only those that it sends. */
  | { readonly kind: 'cut'; readonly node: string; readonly oneWay: boolean }
  /** Packets between two nodes are lost; `oneWay`: only those from the first to the second. */
  | { readonly kind: 'split'; readonly from: string; readonly to: string; readonly oneWay: boolean }
  /** The node's disks are full to the last byte. */
  | { readonly kind: 'fill'; readonly node: string };

export interface DrillPlan {
  readonly fault: DrillFault;
  readonly seconds: number;
  /** Name of the volume that the drill makes. */
  readonly volumeName: string;
  /** Whose node the volume is used on when the fault begins. */
  readonly user: string;
  readonly replicas: number;
  /** Nodes without whose replica the fault would show nothing. */
  readonly touched: readonly string[];
  /** The load moves to another node, as an orchestrator moves the pods of a node that is gone. */
  readonly moves: boolean;
}

/** Flags as the command line gave them. */
export interface DrillFlags {
  readonly node?: string;
  readonly between?: string;
  readonly oneWay?: true;
  readonly on?: string;
  readonly seconds?: string;
  readonly volume?: string;
}

const SECONDS = { kill: 3, pause: 20, cut: 20, split: 10, fill: 10 } as const;
const MOST_SECONDS = 600;

/** A lease expires after 10 s; a fault that is over soon after it would be a race against the take-over. */
const MOVES_FROM_SECONDS = 15;

/**
 * What a drill will do. `nodes` are those of the cluster; a name may be given as `a` or `node-a`.
 * `invalid-argument`, `not-found`: one line that says what would be right.
 */
export function planDrill(kind: DrillKind, flags: DrillFlags, nodes: readonly string[], random: string): DrillPlan {
  const fault = faultOf(kind, flags, nodes);
  const touched = fault.kind === 'split' ? [fault.from, fault.to] : [fault.node];
  const first = fault.kind === 'split' ? fault.from : fault.node;
  const user = flags.on === undefined ? first : nodeNamed('--on', flags.on, nodes);
  const seconds = secondsOf(flags.seconds ?? String(SECONDS[fault.kind]));
  if (fault.kind !== 'kill' && nodes.length < 2) {
    throw new HoldfastError('invalid-argument', `the cluster has one node; this drill needs 2`);
  }
  const isAway = fault.kind === 'pause' || fault.kind === 'cut';
  return {
    fault,
    seconds,
    user,
    touched,
    volumeName: volumeNameOf(flags.volume ?? `drill-${random}`),
    // With three replicas a small cluster has one on every node.
    replicas: Math.min(nodes.length, touched.length > 1 || !touched.includes(user) ? 3 : 2),
    moves: isAway && user === first && seconds >= MOVES_FROM_SECONDS,
  };
}

/** What happens, in words. */
export function describeFault(fault: DrillFault): { readonly begins: string; readonly ends: string } {
  switch (fault.kind) {
    case 'kill':
      return {
        begins: `the plugin of node ${fault.node} is killed (SIGKILL)`,
        ends: `the plugin of node ${fault.node} is started again`,
      };
    case 'pause':
      return {
        begins: `the plugin of node ${fault.node} is stopped where it is (SIGSTOP)`,
        ends: `the plugin of node ${fault.node} goes on (SIGCONT)`,
      };
    case 'cut':
      return fault.oneWay
        ? { begins: `all packets that node ${fault.node} sends are lost`, ends: `node ${fault.node} is heard again` }
        : { begins: `the network plug of node ${fault.node} is pulled`, ends: 'the plug is put in again' };
    case 'split': {
      const between = fault.oneWay
        ? `from node ${fault.from} to node ${fault.to}`
        : `between nodes ${fault.from} and ${fault.to}`;
      return { begins: `packets ${between} are lost`, ends: `packets ${between} arrive again` };
    }
    case 'fill':
      return {
        begins: `the disks of node ${fault.node} are filled to the last byte`,
        ends: `the disks of node ${fault.node} have room again`,
      };
  }
}

function faultOf(kind: DrillKind, flags: DrillFlags, nodes: readonly string[]): DrillFault {
  const { node, between, oneWay = false } = flags;
  if (kind !== 'partition') return { kind, node: nodeNamed('--node', node, nodes) };
  if ((node === undefined) === (between === undefined)) {
    throw new HoldfastError('invalid-argument', 'give --between A,B (two nodes) or --node A (one from all others)');
  }
  if (between === undefined) return { kind: 'cut', node: nodeNamed('--node', node, nodes), oneWay };
  const [from = '', to = '', ...more] = between.split(',').map((name) => name.trim());
  if (from === '' || to === '' || more.length > 0) {
    throw new HoldfastError('invalid-argument', `--between is ${JSON.stringify(between)}; give two nodes, e.g. a,b`);
  }
  const pair = { from: nodeNamed('--between', from, nodes), to: nodeNamed('--between', to, nodes) };
  if (pair.from === pair.to) {
    throw new HoldfastError('invalid-argument', `--between names node ${pair.from} twice; give two nodes`);
  }
  return { kind: 'split', ...pair, oneWay };
}

function nodeNamed(flag: string, name: string | undefined, nodes: readonly string[]): string {
  const known = nodes.join(', ');
  if (name === undefined || name === '') {
    throw new HoldfastError('invalid-argument', `${flag} is not given; there are ${known}`);
  }
  const found = nodes.find((node) => node === name || `node-${node}` === name);
  if (found === undefined)
    throw new HoldfastError('not-found', `${flag}: there is no node ${name}; there are ${known}`);
  return found;
}

function secondsOf(text: string): number {
  try {
    return integer(text, 1, MOST_SECONDS);
  } catch (error) {
    if (error instanceof HoldfastError) throw new HoldfastError(error.code, `--seconds ${error.message}`);
    throw error;
  }
}

function volumeNameOf(text: string): string {
  if (/^[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$/.test(text)) return text;
  throw new HoldfastError(
    'invalid-argument',
    `--volume is ${JSON.stringify(text)}; give a name of at most 63 letters, digits, '-', '_' and '.'`,
  );
}
