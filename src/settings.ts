import { HoldfastError } from './base/errors.js';
import {
  absolutePath,
  duration,
  hostAndPort,
  hostName,
  integer,
  logLevel,
  nodeName,
  nonNegativeNumber,
  segments,
  size,
  socketPath,
} from './config-values.js';
import { TOPOLOGY_NODE, TOPOLOGY_ZONE, type ControllerConfig, type DeviceConfig, type NodeConfig } from './config.js';

/** One setting: how it is called on the command line and in the environment, and how its text becomes a value. */
export interface Setting<T> {
  /** Without the leading dashes. */
  readonly flag: string;
  readonly environment: string;
  readonly what: string;
  readonly placeholder: string;
  /** Stands for the value where none is given; without it the setting must be given. */
  readonly standard?: string;
  /** The flag may be given several times; in the environment the values stand with commas between them. */
  readonly repeatable?: true;
  /** Refuses with a sentence that says what would be right; the setting's name is put before it. */
  readonly parse: (texts: readonly string[]) => T;
}

export type Settings<C> = { readonly [K in keyof C]: Setting<C[K]> };

const LOG_LEVEL: Setting<string> = {
  flag: 'log-level',
  environment: 'HOLDFAST_LOG_LEVEL',
  what: 'fatal, error, warn, info, debug or trace',
  placeholder: 'LEVEL',
  standard: 'info',
  parse: one(logLevel),
};

/** `standsFor`: the setting whose value it has where it is not given. */
function metricsHost(standsFor: string): Setting<string> {
  return {
    flag: 'metrics-host',
    environment: 'HOLDFAST_METRICS_HOST',
    what: `address that /metrics is served on, over HTTP; without it that of --${standsFor}`,
    placeholder: 'ADDRESS',
    standard: '',
    parse: (texts) => (texts.join('') === '' ? '' : one(hostName)(texts)),
  };
}

function metricsPort(standard: string): Setting<number> {
  return {
    flag: 'metrics-port',
    environment: 'HOLDFAST_METRICS_PORT',
    what: 'TCP port of /metrics; 0: off',
    placeholder: 'PORT',
    standard,
    parse: one((text) => integer(text, 0, 65_535)),
  };
}

export const NODE_SETTINGS: Settings<NodeConfig> = {
  nodeName: {
    flag: 'node-name',
    environment: 'HOLDFAST_NODE_NAME',
    what: 'what the orchestrator calls this node',
    placeholder: 'NAME',
    parse: one(nodeName),
  },
  csiSocket: {
    flag: 'csi-socket',
    environment: 'HOLDFAST_CSI_SOCKET',
    what: 'unix socket of the CSI Identity and Node services',
    placeholder: 'PATH',
    parse: one(socketPath),
  },
  stateDirectory: {
    flag: 'state-directory',
    environment: 'HOLDFAST_STATE_DIRECTORY',
    what: 'what the node remembers; must survive restarts',
    placeholder: 'PATH',
    parse: one(absolutePath),
  },
  poolDirectory: {
    flag: 'pool-directory',
    environment: 'HOLDFAST_POOL_DIRECTORY',
    what: 'the disks are mounted in folders of this directory',
    placeholder: 'PATH',
    parse: one(absolutePath),
  },
  disks: {
    flag: 'disk',
    environment: 'HOLDFAST_DISKS',
    what: "block device or file that belongs to this node's pool",
    placeholder: 'PATH',
    standard: '',
    repeatable: true,
    parse: (texts) => distinct(texts.map(absolutePath)),
  },
  host: {
    flag: 'host',
    environment: 'HOLDFAST_HOST',
    what: 'address that peers and the controller reach this node by, and that it listens on',
    placeholder: 'ADDRESS',
    parse: one(hostName),
  },
  agentPort: {
    flag: 'agent-port',
    environment: 'HOLDFAST_AGENT_PORT',
    what: 'TCP port of the service for the controller and for peers',
    placeholder: 'PORT',
    standard: '7420',
    parse: one((text) => integer(text, 1, 65_535)),
  },
  dataPort: {
    flag: 'data-port',
    environment: 'HOLDFAST_DATA_PORT',
    what: 'TCP port of data thread 0; thread i listens i ports above',
    placeholder: 'PORT',
    standard: '7430',
    parse: one((text) => integer(text, 1, 65_535)),
  },
  dataThreads: {
    flag: 'data-threads',
    environment: 'HOLDFAST_DATA_THREADS',
    what: 'threads that carry data; must stay the same for the life of the cluster',
    placeholder: 'COUNT',
    standard: '2',
    parse: one((text) => integer(text, 1, 64)),
  },
  slabBytes: {
    flag: 'slab',
    environment: 'HOLDFAST_SLAB',
    what: 'I/O memory of each data thread, for each of its two sides',
    placeholder: 'SIZE',
    standard: '128MiB',
    parse: one((text) => size(text, '64MiB', '4GiB')),
  },
  storeAddress: {
    flag: 'store-address',
    environment: 'HOLDFAST_STORE_ADDRESS',
    what: 'host:port of the store that the controller serves',
    placeholder: 'HOST:PORT',
    parse: one(hostAndPort),
  },
  topology: {
    flag: 'topology',
    environment: 'HOLDFAST_TOPOLOGY',
    what: `topology segment of this node, e.g. ${TOPOLOGY_ZONE}=eu-1a`,
    placeholder: 'KEY=VALUE',
    standard: '',
    repeatable: true,
    parse: (texts) => segments(texts, TOPOLOGY_NODE),
  },
  leaseIntervalMs: {
    flag: 'lease-interval-ms',
    environment: 'HOLDFAST_LEASE_INTERVAL_MS',
    what: 'time between two renewals of the lease',
    placeholder: 'MILLISECONDS',
    standard: '3000',
    parse: one((text) => integer(text, 100, 60_000)),
  },
  metricsHost: metricsHost('host'),
  metricsPort: metricsPort('7421'),
  logLevel: LOG_LEVEL,
};

export const CONTROLLER_SETTINGS: Settings<ControllerConfig> = {
  csiSocket: {
    flag: 'csi-socket',
    environment: 'HOLDFAST_CSI_SOCKET',
    what: 'unix socket of the CSI Identity and Controller services and of the admin service',
    placeholder: 'PATH',
    parse: one(socketPath),
  },
  stateDirectory: {
    flag: 'state-directory',
    environment: 'HOLDFAST_STATE_DIRECTORY',
    what: 'where the cluster store lies; must survive restarts',
    placeholder: 'PATH',
    parse: one(absolutePath),
  },
  storeHost: {
    flag: 'store-host',
    environment: 'HOLDFAST_STORE_HOST',
    what: 'address the store is served on',
    placeholder: 'ADDRESS',
    parse: one(hostName),
  },
  storePort: {
    flag: 'store-port',
    environment: 'HOLDFAST_STORE_PORT',
    what: 'TCP port the store is served on',
    placeholder: 'PORT',
    standard: '7410',
    parse: one((text) => integer(text, 1, 65_535)),
  },
  overcommit: {
    flag: 'overcommit',
    environment: 'HOLDFAST_OVERCOMMIT',
    what: 'provisioned bytes on a disk may be this many times its capacity',
    placeholder: 'FACTOR',
    standard: '1',
    parse: one((text) => nonNegativeNumber(text, 1, 100)),
  },
  rebuildGraceMs: {
    flag: 'rebuild-grace',
    environment: 'HOLDFAST_REBUILD_GRACE',
    what: 'how long a dead node is waited for before its replicas are rebuilt elsewhere, e.g. 90s, 10min',
    placeholder: 'TIME',
    standard: '10min',
    parse: one((text) => duration(text, '1s', '240h')),
  },
  rebuildsPerNode: {
    flag: 'rebuilds-per-node',
    environment: 'HOLDFAST_REBUILDS_PER_NODE',
    what: 'replicas that are rebuilt at once from and to one node',
    placeholder: 'COUNT',
    standard: '2',
    parse: one((text) => integer(text, 1, 100)),
  },
  metricsHost: metricsHost('store-host'),
  metricsPort: metricsPort('7411'),
  logLevel: LOG_LEVEL,
};

export const DEVICE_SETTINGS: Settings<DeviceConfig> = {
  stateDirectory: NODE_SETTINGS.stateDirectory,
  logLevel: LOG_LEVEL,
};

/** The settings of a Config in the order of their table. */
export function settingEntries<C>(settings: Settings<C>): [keyof C & string, Setting<unknown>][] {
  return Object.entries(settings) as [keyof C & string, Setting<unknown>][];
}

function one<T>(parse: (text: string) => T): (texts: readonly string[]) => T {
  return (texts) => {
    const [text, second] = texts;
    if (text === undefined || text === '') throw new HoldfastError('invalid-argument', 'is empty; give a value');
    if (second !== undefined) {
      throw new HoldfastError('invalid-argument', `is given twice (${texts.join(', ')}); give it once`);
    }
    return parse(text);
  };
}

function distinct(texts: readonly string[]): readonly string[] {
  const twice = texts.find((text, index) => texts.indexOf(text) !== index);
  if (twice !== undefined) throw new HoldfastError('invalid-argument', `names ${twice} twice; name each disk once`);
  return Object.freeze([...texts]);
}
