/** What `holdfast node` is told. */
export interface NodeConfig {
  readonly nodeName: string;
  /** Unix socket of CSI Identity and Node. */
  readonly csiSocket: string;
  /** What the node remembers: its uid, sockets of its processes, notes on mounts. Survives restarts. */
  readonly stateDirectory: string;
  /** Disks are mounted in folders of this directory, on the host. */
  readonly poolDirectory: string;
  /** Files or block devices that are this node's pool. A file is put behind a loop device. */
  readonly disks: readonly string[];
  /** Address that peers and the controller reach this node by, and that it listens on. */
  readonly host: string;
  readonly agentPort: number;
  /** Data thread i listens on dataPort + i. */
  readonly dataPort: number;
  readonly dataThreads: number;
  /** I/O memory of each data thread, for each of its two sides (clients, peers). */
  readonly slabBytes: number;
  /** host:port of the store that the controller serves. */
  readonly storeAddress: string;
  /** Topology segments besides the node's own, e.g. topology.kubernetes.io/zone. */
  readonly topology: Readonly<Record<string, string>>;
  readonly leaseIntervalMs: number;
  /** Where /metrics is served; '' in a setting stands for `host`. */
  readonly metricsHost: string;
  /** 0: not served. */
  readonly metricsPort: number;
  readonly logLevel: string;
}

/** What `holdfast controller` is told. */
export interface ControllerConfig {
  /** Unix socket of CSI Identity and Controller, and of the admin service. */
  readonly csiSocket: string;
  /** Where the level store lies. */
  readonly stateDirectory: string;
  /** Address the store is served on. */
  readonly storeHost: string;
  readonly storePort: number;
  /** Provisioned bytes on a disk may be this many times its capacity. */
  readonly overcommit: number;
  /** A node whose lease has been expired for so long is not waited for: its replicas are rebuilt elsewhere. */
  readonly rebuildGraceMs: number;
  /** Replicas that are brought back at once from and to one node. */
  readonly rebuildsPerNode: number;
  /** Where /metrics is served; '' in a setting stands for `storeHost`. */
  readonly metricsHost: string;
  /** 0: not served. */
  readonly metricsPort: number;
  readonly logLevel: string;
}

/** What the device process is told, by the node plugin that starts it. */
export type DeviceConfig = Pick<NodeConfig, 'stateDirectory' | 'logLevel'>;

export const DRIVER_NAME = 'csi.holdfast.dev';
export const TOPOLOGY_NODE = 'topology.holdfast.dev/node';
export const TOPOLOGY_ZONE = 'topology.kubernetes.io/zone';
