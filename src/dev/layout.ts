import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { HoldfastError } from '../base/errors.js';
import { SOCKET_PATH_BYTES } from '../config-values.js';

/*
 *   DIR/dev.json                 what is there, written when all of it is ready
 *   DIR/dev.sock                 control of the running dev: start, stop, kill, cut, heal
 *   DIR/controller.sock          CSI Identity and Controller, admin service
 *   DIR/controller/              the cluster store
 *   DIR/nodes/NAME/csi.sock      CSI Identity and Node
 *   DIR/nodes/NAME/disks/0.img   the node's disk
 *   DIR/nodes/NAME/pool/         where it is mounted
 *   DIR/nodes/NAME/kubelet/      staging and publish paths belong below this
 *   DIR/nodes/NAME/state/        what the node remembers
 *   DIR/logs/                    one log for each process
 */
export interface DevLayout {
  readonly directory: string;
  readonly description: string;
  readonly controlSocket: string;
  readonly controllerSocket: string;
  readonly controllerState: string;
  readonly controllerLog: string;
  readonly nodesDirectory: string;
  readonly logsDirectory: string;
  /** Network namespace with the switch and the controller; those of the nodes begin with it. */
  readonly switchNamespace: string;
  node(name: string): DevNodeLayout;
}

export interface DevNodeLayout {
  readonly name: string;
  readonly directory: string;
  readonly csiSocket: string;
  readonly kubeletDirectory: string;
  readonly stateDirectory: string;
  readonly poolDirectory: string;
  readonly disk: string;
  readonly log: string;
  readonly namespace: string;
  /** The node's port on the switch, in the switch's namespace. */
  readonly switchPort: string;
}

/** The longest part that a node puts behind its state directory when it names a socket. */
const SOCKET_NAME_BYTES = 24;

/** Where everything of a dev cluster is. `invalid-argument` where the directory's path is too long for its sockets. */
export function devLayout(directory: string): DevLayout {
  const hash = createHash('sha256').update(directory).digest('hex').slice(0, 8);
  const nodesDirectory = join(directory, 'nodes');
  const logsDirectory = join(directory, 'logs');
  const switchNamespace = `holdfast-${hash}`;
  const longest = SOCKET_PATH_BYTES - Buffer.byteLength('/nodes/a/state/') - SOCKET_NAME_BYTES;
  if (Buffer.byteLength(directory) > longest) {
    throw new HoldfastError(
      'invalid-argument',
      `--dir ${directory} is ${Buffer.byteLength(directory)} bytes long; unix sockets lie in it, so give a path of at most ${longest}`,
    );
  }
  return {
    directory,
    description: join(directory, 'dev.json'),
    controlSocket: join(directory, 'dev.sock'),
    controllerSocket: join(directory, 'controller.sock'),
    controllerState: join(directory, 'controller'),
    controllerLog: join(logsDirectory, 'controller.log'),
    nodesDirectory,
    logsDirectory,
    switchNamespace,
    node: (name) => {
      const own = join(nodesDirectory, name);
      return {
        name,
        directory: own,
        csiSocket: join(own, 'csi.sock'),
        kubeletDirectory: join(own, 'kubelet'),
        stateDirectory: join(own, 'state'),
        poolDirectory: join(own, 'pool'),
        disk: join(own, 'disks', '0.img'),
        log: join(logsDirectory, `node-${name}.log`),
        namespace: `${switchNamespace}-${name}`,
        switchPort: `port-${name}`,
      };
    },
  };
}

/** Names of nodes: a, b, c … */
export function devNodeName(index: number): string {
  return String.fromCharCode('a'.charCodeAt(0) + index);
}

export const MOST_DEV_NODES = 16;

export const STORE_PORT = 7410;

/** Of the controller and of every node: each has an address of its own. */
const METRICS_PORT = 7421;

/** Where the process at an address tells its metrics. */
export function metricsUrl(address: string): string {
  return `http://${address}:${METRICS_PORT}/metrics`;
}

/** The settings that make it tell them there. */
export const METRICS_SETTINGS = { 'metrics-port': String(METRICS_PORT) };

export const CONTROLLER_ADDRESS = '100.64.0.1';

/** Addresses lie in namespaces of their own, so that every dev cluster can have the same. */
export function nodeAddress(index: number): string {
  return `100.64.0.${index + 11}`;
}
