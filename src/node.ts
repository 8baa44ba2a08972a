import { closeSync, openSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { DiskAnnouncer, publishNode, readNodeUid, rejoin } from './agent/announce.js';
import { NodeAgents } from './agent/client.js';
import { checkCluster, clusterIdOf, persevere } from './agent/cluster.js';
import { ReplicaCollector } from './agent/collect.js';
import { dataServices } from './agent/data-services.js';
import { startDuty } from './agent/duty.js';
import { Ending } from './agent/ending.js';
import { OpenDisks } from './agent/open-disks.js';
import type { ReplicaTurns } from './agent/remove.js';
import { addAgentService } from './agent/server.js';
import { DeviceSettler } from './agent/settle.js';
import { withdrawFromGone } from './agent/withdraw.js';
import { codeOf, HoldfastError } from './base/errors.js';
import type { Log } from './base/log.js';
import { KeyedMutex } from './base/mutex.js';
import { serveTcp, serveUnix } from './base/unix-server.js';
import { TOPOLOGY_NODE, type NodeConfig } from './config.js';
import { addIdentityService } from './csi/identity.js';
import { judgePool, type StorageCondition } from './csi/node-condition.js';
import { StagingNotes } from './csi/node-notes.js';
import { NodeVolumes } from './csi/node-volumes.js';
import { addNodeService } from './csi/node.js';
import { startDataThreads, type DataThreads } from './data-threads.js';
import { ensureDeviceProcess } from './device/device-client.js';
import type { BlockDevices } from './device/device.js';
import { tryLock } from './device/system-calls.js';
import { createNodeIo } from './io/node-io.js';
import { CountedStore } from './metrics/counted-store.js';
import { tellNode, tellThreads } from './metrics/figures.js';
import { countCalls } from './metrics/grpc-calls.js';
import { ProcessMetrics, type Gathered } from './metrics/process-metrics.js';
import { openPool, type Pool } from './pool/pool.js';
import { LeaseKeeper, LeaseObserver } from './store/lease.js';
import { RemoteStore } from './store/store-client.js';
import type { RecordStore } from './store/store.js';
import { follow } from './store/watch.js';

const ANNOUNCE_EVERY_MS = 10_000;
const SETTLE_EVERY_MS = 3_000;
const COLLECT_EVERY_MS = 60_000;
const EMPTY_EVERY_MS = 10_000;

/** A replica that no record names is kept so long, in case that the record is what got lost. */
const REPLICA_GRACE_MS = 10 * 60_000;

/** Replicas are flushed at the end, so that a planned reboot sets no crash mark. */
const DATA_STOP_MS = 10_000;

/** How long taking one volume away may wait for other calls on it. */
const TEARDOWN_MS = 60_000;

export interface RunningNode {
  /**
   * Ends the plugin in good order. Devices and mounts stay, and their I/O waits for the next one; with `teardown` all
   * that is staged here, and the pool's own mounts, are taken away.
   */
  stop(options?: { teardown: boolean }): Promise<void>;
}

/** What every part of the plugin is given. */
interface Base {
  readonly config: NodeConfig;
  readonly log: Log;
  readonly ending: Ending;
  /** Aborts when the plugin is to end, also while it starts. */
  readonly signal: AbortSignal;
  readonly store: RecordStore;
  readonly lease: LeaseKeeper;
  readonly metrics: ProcessMetrics;
  readonly nodeUid: string;
  readonly clusterId: string;
}

/** Where data lies and how it is reached. */
interface Storage {
  readonly pool: Pool;
  readonly openDisks: OpenDisks;
  readonly dataThreads: DataThreads;
  /** Where peers reach them. */
  readonly dataPorts: readonly number[];
  readonly replicaTurns: ReplicaTurns;
  readonly devices: BlockDevices;
  readonly volumes: NodeVolumes;
}

/**
 * The node plugin: pool, data threads, block devices, and the services that CSI and the controller call. Resolves when
 * the CSI socket answers. It waits for the controller where it has to: to learn its cluster's id the first time, and
 * to hold its lease; its replicas are served before that. `signal` ends the wait (`cancelled`).
 * `already-exists`: another plugin runs with this state directory.
 */
export async function runNode(
  config: NodeConfig,
  log: Log,
  signal: AbortSignal = new AbortController().signal,
): Promise<RunningNode> {
  const ending = new Ending(log);
  try {
    const base = await openBase(config, log, ending, signal);
    const storage = await openStorage(base);
    await tellMetrics(base, storage);
    await joinCluster(base, storage);
    await startDuties(base, storage);
    await serveCsi(base, storage);
    log.info({ node: config.nodeName, nodeUid: base.nodeUid, clusterId: base.clusterId }, 'node plugin serves');
    return { stop: (options) => stopNode(base, storage, options?.teardown ?? false) };
  } catch (error) {
    await ending.run();
    throw error;
  }
}

async function openBase(config: NodeConfig, log: Log, ending: Ending, signal: AbortSignal): Promise<Base> {
  await mkdir(config.stateDirectory, { recursive: true, mode: 0o700 });
  lockState(config.stateDirectory, ending);
  const nodeUid = await readNodeUid(config.stateDirectory);
  const remote = new RemoteStore(config.storeAddress);
  ending.add('store client', () => remote.close());
  const metrics = new ProcessMetrics('node');
  const store = new CountedStore(remote, metrics.book);
  const clusterId = await clusterIdOf(store, config.stateDirectory, log, signal);
  const { nodeName: node, leaseIntervalMs: intervalMs } = config;
  const { clock } = createNodeIo();
  const lease = new LeaseKeeper({ store, node, nodeUid, intervalMs, clock, log });
  return { config, log, ending, signal, store, lease, metrics, nodeUid, clusterId };
}

/** Two plugins must never serve the same replicas. The kernel drops the lock with the process, however that ends. */
function lockState(stateDirectory: string, ending: Ending): void {
  const fd = openSync(join(stateDirectory, 'node.lock'), 'a', 0o600);
  ending.add('lock', () => closeSync(fd));
  if (!tryLock(fd)) {
    throw new HoldfastError(
      'already-exists',
      `a node plugin runs with state directory ${stateDirectory}; stop it first`,
    );
  }
}

async function openStorage({ config, log, ending, store, clusterId }: Base): Promise<Storage> {
  const { nodeName, stateDirectory } = config;
  const { disks, poolDirectory } = config;
  const pool = await openPool({ disks, poolDirectory, stateDirectory, clusterId, log });
  ending.add('pool', () => pool.close({ unmount: false }));

  const { clock, random } = createNodeIo();
  const watching = new AbortController();
  const nodes = follow(store, 'node', watching.signal, { clock, random, log });
  const leases = new LeaseObserver({ store, clock, log });
  ending.add('watches', () => watching.abort());
  const agents = new NodeAgents();
  ending.add('agents of other nodes', () => agents.close());
  const dataThreads = startDataThreads({
    nodeName,
    stateDirectory,
    log,
    threads: config.dataThreads,
    host: config.host,
    port: config.dataPort,
    slabBytes: config.slabBytes,
    logLevel: config.logLevel,
    main: dataServices({ store, nodes, leases, clock, agents }),
    // What it held in memory is lost: only a new process finds its way back from disks and devices.
    onDeath: () => process.exit(1),
  });
  ending.add('data threads', () => dataThreads.stop(), DATA_STOP_MS);
  // One that does not work now is opened by the duty that announces it.
  const openDisks = new OpenDisks({ pool, replicas: dataThreads.replicas, clock, log });
  await openDisks.openAtStart();
  const dataPorts = await dataThreads.listen();

  const devices = await ensureDeviceProcess(stateDirectory, log);
  ending.add('device process client', () => devices.close());
  const notes = new StagingNotes(join(stateDirectory, 'staged'));
  const volumes = new NodeVolumes({ store, attachments: dataThreads.attachments, devices, notes, log });
  return { pool, openDisks, dataThreads, dataPorts, replicaTurns: new KeyedMutex(), devices, volumes };
}

/** From before the cluster is joined: a node that waits for its controller can be looked at. */
async function tellMetrics({ config, log, ending, lease, metrics }: Base, storage: Storage): Promise<void> {
  const { pool, openDisks, dataThreads } = storage;
  const gather = async (): Promise<Gathered> => {
    const [disks, threads] = await Promise.all([openDisks.report(), dataThreads.figures()]);
    return {
      tell: (tell) => {
        tellNode(tell, { disks, refusedDisks: pool.refused.length, leaseAgeMs: lease.ageMs });
        tellThreads(tell, threads);
      },
      snapshots: threads.flatMap(({ snapshot }) => snapshot ?? []),
    };
  };
  const server = await metrics.serve({ host: config.metricsHost, port: config.metricsPort }, gather, log);
  ending.add('metrics', () => server.stop());
}

/** Lease first: it keeps out another node of this name before anybody is told an address. */
async function joinCluster(base: Base, storage: Storage): Promise<void> {
  const { config, log, ending, signal, store, lease, nodeUid } = base;
  const { openDisks, dataThreads, dataPorts, replicaTurns: turns, volumes } = storage;
  const name = config.nodeName;
  const { replicas, attachments } = dataThreads;
  const agent = await serveTcp(
    config.host,
    config.agentPort,
    (server) => addAgentService(server, { nodeName: name, store, replicas, turns, volumes, attachments, log }),
    [countCalls(base.metrics.book)],
  );
  ending.add('agent', () => agent.stop());

  await persevere('comparing the cluster', log, () => checkCluster(store, base.clusterId), signal);
  const keeping = new AbortController();
  const kept = lease.run(keeping.signal);
  ending.add('lease', () => {
    keeping.abort();
    return kept;
  });
  signal.addEventListener('abort', () => keeping.abort(), { once: true });
  await lease.held;

  const place = { host: config.host, agentPort: agent.port, dataPorts: [...dataPorts] };
  const node = { name, nodeUid, topology: topologyOf(config), ...place };
  await persevere('announcing this node', log, () => publishNode(store, node), signal);
  const announcer = new DiskAnnouncer(store, name);
  const announce = async (): Promise<void> => {
    // A disk that works by now is opened, whether or not the store answers.
    const disks = await openDisks.round();
    await checkCluster(store, base.clusterId);
    await rejoin(store, node, announcer);
    await announcer.announce(disks);
  };
  await persevere('announcing the disks', log, announce, signal);
  const duty = startDuty('announcing the disks', ANNOUNCE_EVERY_MS, announce, log);
  ending.add('announcements', () => duty.stop());
}

/** Settles once what lived before, and then again and again with the node's other duties. */
async function startDuties({ config, log, ending, store, signal, clusterId }: Base, storage: Storage): Promise<void> {
  const { pool, dataThreads, replicaTurns: turns, devices, volumes } = storage;
  const settle = (volume: string, waitMs: number): Promise<void> => volumes.settle(volume, waitMs);
  const settler = new DeviceSettler({ devices, settle, log });
  await settler.round();
  const end = (volume: string): Promise<void> => volumes.end(volume, TEARDOWN_MS);
  const gone = { store, devices, nodeName: config.nodeName, end, log };
  await persevere('leaving the records of attachments that are gone', log, () => withdrawFromGone(gone), signal);
  const { replicas } = dataThreads;
  const collector = new ReplicaCollector({ store, replicas, turns, clusterId, graceMs: REPLICA_GRACE_MS, log });
  const duties = [
    startDuty('settling devices', SETTLE_EVERY_MS, () => settleAll(settler, config.stateDirectory, log), log),
    startDuty('collecting replicas', COLLECT_EVERY_MS, () => collector.look(), log),
    startDuty('emptying the trash', EMPTY_EVERY_MS, () => pool.emptyTrash(), log),
  ];
  ending.add('duties', async () => {
    await Promise.all(duties.map((duty) => duty.stop()));
  });
}

/** A device process that is gone is started again; its devices are gone with it, and are staged anew when asked for. */
async function settleAll(settler: DeviceSettler, stateDirectory: string, log: Log): Promise<void> {
  try {
    await settler.round();
  } catch (error) {
    if (codeOf(error) !== 'unavailable') throw error;
    (await ensureDeviceProcess(stateDirectory, log)).close();
    await settler.round();
  }
}

async function serveCsi({ config, log, ending, metrics }: Base, { pool, openDisks, volumes }: Storage): Promise<void> {
  const topology = topologyOf(config);
  const storageConditions = async (): Promise<StorageCondition[]> => judgePool(await openDisks.report(), pool.refused);
  const csi = await serveUnix(
    config.csiSocket,
    (server) => {
      addIdentityService(server, { log, ready: () => true });
      addNodeService(server, { nodeName: config.nodeName, topology, volumes, storageConditions, log });
    },
    log,
    [countCalls(metrics.book)],
  );
  ending.add('CSI socket', () => csi.stop());
}

async function stopNode({ config, log, ending }: Base, storage: Storage, teardown: boolean): Promise<void> {
  if (teardown) {
    const staged = await storage.devices.list();
    await Promise.allSettled(staged.map(({ volume }) => storage.volumes.takeDown(volume, TEARDOWN_MS)));
  }
  await ending.run();
  if (teardown) await storage.pool.close({ unmount: true });
  log.info({ node: config.nodeName }, 'node plugin ends');
}

function topologyOf(config: NodeConfig): Record<string, string> {
  return { ...config.topology, [TOPOLOGY_NODE]: config.nodeName };
}
