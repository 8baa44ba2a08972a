import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { NodeAgents } from './agent/client.js';
import { startDuty } from './agent/duty.js';
import { asHoldfastError, HoldfastError } from './base/errors.js';
import type { Log } from './base/log.js';
import { Mutex } from './base/mutex.js';
import { serveTcp, serveUnix } from './base/unix-server.js';
import type { ControllerConfig } from './config.js';
import { addAdminService } from './control/admin.js';
import { readCluster } from './control/cluster-view.js';
import { Rebuilder } from './control/rebuilder.js';
import { Strays } from './control/strays.js';
import { Volumes } from './control/volumes.js';
import { addControllerService } from './csi/controller.js';
import { addIdentityService } from './csi/identity.js';
import { createNodeIo } from './io/node-io.js';
import { CountedStore } from './metrics/counted-store.js';
import { tellCluster } from './metrics/figures.js';
import { countCalls } from './metrics/grpc-calls.js';
import { ProcessMetrics, type Gathered } from './metrics/process-metrics.js';
import { SCHEMA_VERSION } from './model/records.js';
import { LeaseObserver } from './store/lease.js';
import { LevelStore } from './store/level-store.js';
import { addStoreService } from './store/store-server.js';
import type { RecordStore } from './store/store.js';

const SETTLE_INTERVAL_MS = 10_000;
const HEAL_EVERY_MS = 3_000;
/** How often nodes are asked about their replicas. */
const INSPECT_EVERY_MS = 15_000;
/** A disk that fails for a moment only is no reason to copy all that is on it. */
const DISK_GRACE_MS = 15_000;

/**
 * The controller: the cluster store, and on its CSI socket Identity, Controller and Admin. It is never in the data
 * path. What is started is stopped in reverse order, also where a later part can't start.
 */
export async function runController(config: ControllerConfig, log: Log): Promise<{ stop(): Promise<void> }> {
  const stops: (() => Promise<void> | void)[] = [];
  const stop = (): Promise<void> => stopAll(stops, log);
  try {
    await start(config, log, stops);
    return { stop };
  } catch (error) {
    await stop().catch((second: unknown) => log.error({ err: second }, 'what had been started could not be stopped'));
    throw error;
  }
}

async function start(config: ControllerConfig, log: Log, stops: (() => Promise<void> | void)[]): Promise<void> {
  const level = await LevelStore.open(join(config.stateDirectory, 'store'));
  stops.push(() => level.close());
  const metrics = new ProcessMetrics('controller');
  const store = new CountedStore(level, metrics.book);
  const calls = [countCalls(metrics.book)];
  const clusterId = await ensureCluster(store);

  const storeServer = await serveTcp(
    config.storeHost,
    config.storePort,
    (server) => addStoreService(server, store, log),
    calls,
  );
  stops.push(() => storeServer.stop());

  const { clock } = createNodeIo();
  const leases = new LeaseObserver({ store, clock, log });
  const ending = new AbortController();
  const watched = leases.run(ending.signal);
  stops.push(() => {
    ending.abort();
    return watched;
  });

  const agents = new NodeAgents();
  stops.push(() => agents.close());
  const { overcommit, rebuildGraceMs: graceMs, rebuildsPerNode } = config;
  const limits = { overcommit, graceMs, rebuildsPerNode, diskGraceMs: DISK_GRACE_MS, inspectEveryMs: INSPECT_EVERY_MS };
  const shared = { store, liveness: leases, agents, limits, log, placing: new Mutex(), strays: new Strays() };
  const rebuilder = new Rebuilder({ ...shared, clock, wallClock: () => new Date().toISOString() });
  const volumes = new Volumes({ ...shared, healing: rebuilder });
  const healing = startDuty('healing volumes', HEAL_EVERY_MS, () => rebuilder.round(), log);
  stops.push(() => healing.stop());
  const settling = startDuty(
    'settle leftovers',
    SETTLE_INTERVAL_MS,
    () => settle(store, volumes, agents, ending.signal),
    log,
  );
  stops.push(() => {
    ending.abort();
    return settling.stop();
  });

  let ready = true;
  const csi = await serveUnix(
    config.csiSocket,
    (server) => {
      addIdentityService(server, { log, ready: () => ready });
      addControllerService(server, volumes, log);
      addAdminService(server, volumes, log);
    },
    log,
    calls,
  );
  stops.push(() => {
    ready = false;
    return csi.stop();
  });
  const gather = async (): Promise<Gathered> => {
    const cluster = await readCluster(store);
    return { tell: (tell) => tellCluster(tell, cluster, { leases, unhealed: rebuilder.problemCount }) };
  };
  const served = await metrics.serve({ host: config.metricsHost, port: config.metricsPort }, gather, log);
  stops.push(() => served.stop());
  log.info({ clusterId, socket: config.csiSocket, storePort: storeServer.port }, 'controller serves');
}

/** Given what earlier calls left and connections to nodes that have left, then both are cleared. */
async function settle(store: RecordStore, volumes: Volumes, agents: NodeAgents, signal: AbortSignal): Promise<void> {
  const { items } = await store.list('node');
  agents.keepOnly(items.map((item) => item.key));
  await volumes.settle(signal);
}

/** The cluster's identity, made at the first start ever. */
async function ensureCluster(store: RecordStore): Promise<string> {
  const found = await store.get('cluster', 'cluster');
  if (found !== undefined) return found.record.clusterId;
  const record = { schema: SCHEMA_VERSION, clusterId: randomUUID() };
  try {
    return (await store.create('cluster', 'cluster', record)).record.clusterId;
  } catch (error) {
    if (!(error instanceof HoldfastError) || error.code !== 'already-exists') throw error;
    return ensureCluster(store);
  }
}

/** All of them, last started first, even where one fails; then the first failure. */
async function stopAll(stops: (() => Promise<void> | void)[], log: Log): Promise<void> {
  const failures: unknown[] = [];
  for (const stop of stops.splice(0).toReversed()) {
    try {
      await stop();
    } catch (error) {
      log.error({ err: error }, 'a part of the controller could not be stopped');
      failures.push(error);
    }
  }
  if (failures.length > 0) throw asHoldfastError(failures[0]);
}
