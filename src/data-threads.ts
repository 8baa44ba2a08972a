import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { HoldfastError } from './base/errors.js';
import type { Log } from './base/log.js';
import { PortRpc } from './base/port-rpc.js';
import type { DataThreadConfig, MainMethods, ThreadMethods } from './data-thread.js';
import { betterThreadPoolSize, threadPoolSize } from './io/thread-pool.js';
import type { Snapshot } from './metrics/meter-book.js';
import type { DiskId, VolumeId } from './model/ids.js';
import { threadOf } from './model/threads.js';
import type { Replicas } from './replica/replicas.js';
import type { Attachments } from './writer/attachments.js';

export interface DataThreadsOptions extends Omit<DataThreadConfig, 'index' | 'socketPath' | 'notesDirectory'> {
  /** Thread i's unix socket is `<stateDirectory>/data-<i>.sock`. */
  readonly stateDirectory: string;
  /** What data threads ask of the main thread; none of it is on the path of an I/O. */
  readonly main: MainMethods;
  readonly log: Log;
  /** A data thread has died of a defect: the process must end, and be started again. */
  readonly onDeath: (reason: Error) => void;
}

export interface DataThreads {
  readonly attachments: Attachments;
  readonly replicas: Replicas;
  /** Begins to serve, once the disks that work are open. Resolves to the ports for peers, one for each thread. */
  listen(): Promise<readonly number[]>;
  /** What each thread has counted; one that does not answer in time is left out. */
  figures(): Promise<readonly ThreadFigures[]>;
  /** Orderly: writers end with their records unchanged, replicas are flushed. */
  stop(): Promise<void>;
}

/** A data thread at one moment. */
export interface ThreadFigures {
  /** Undefined: it did not answer in time. */
  readonly snapshot: Snapshot | undefined;
  /** Milliseconds that it has been at work since its start. */
  readonly busyMs: number;
}

/** A thread that is too busy to answer must not hold up the figures of the others. */
const FIGURES_MS = 2_000;
/** How long a release waits for the store and the replicas. */
const RELEASE_MS = 15_000;
const REVOKE_MS = 5_000;

interface Thread {
  readonly worker: Worker;
  readonly rpc: PortRpc<ThreadMethods>;
}

/** Starts the data threads of a node. A volume belongs to one of them, by its id. */
export function startDataThreads(options: DataThreadsOptions): DataThreads {
  const threads: Thread[] = [];
  for (let index = 0; index < options.threads; index++) threads.push(startThread(options, index));
  const disks = new Set<DiskId>();
  const terminate = async (): Promise<void> => {
    await Promise.all(threads.map(({ worker }) => worker.terminate()));
  };
  const of = (volume: VolumeId): PortRpc<ThreadMethods> => {
    const thread = threads[threadOf(volume, threads.length)];
    if (!thread) throw new HoldfastError('invalid-argument', `${JSON.stringify(volume)} is no volume id`);
    return thread.rpc;
  };
  return {
    listen: () => {
      warnOfFewThreads(threads.length, disks.size, options.log);
      return Promise.all(threads.map(({ rpc }) => rpc.call('listen')));
    },
    attachments: {
      attach: (volume, { resume, timeoutMs }) => of(volume).call('attach', volume, resume, timeoutMs),
      release: (volume) => of(volume).call('release', volume, RELEASE_MS),
      revoke: (volume) => of(volume).call('revoke', volume, REVOKE_MS),
      grow: (volume) => of(volume).call('grow', volume),
      status: (volume) => of(volume).call('status', volume),
      refresh: (volume) => of(volume).call('refresh', volume),
      dropReplica: (volume, node, why) => of(volume).call('dropReplica', volume, node, why),
      maintain: (volume, drop) => of(volume).call('maintain', volume, drop),
      yieldUp: (volume) => of(volume).call('yieldUp', volume),
    },
    replicas: {
      openDisk: async ({ diskId, directory, incarnation }) => {
        disks.add(diskId);
        const found = await Promise.all(threads.map(({ rpc }) => rpc.call('openDisk', diskId, directory, incarnation)));
        return found.flat();
      },
      create: (volume, disk, capacityBytes) => of(volume).call('createReplica', volume, disk, capacityBytes),
      remove: (volume, reason, disk) => of(volume).call('removeReplica', volume, reason, disk),
      list: async () => (await Promise.all(threads.map(({ rpc }) => rpc.call('listReplicas')))).flat(),
    },
    figures: () => Promise.all(threads.map(figuresOf)),
    stop: async () => {
      await Promise.all(threads.map(({ rpc }) => rpc.call('stop')));
      await terminate();
    },
  };
}

function warnOfFewThreads(threads: number, disks: number, log: Log): void {
  const better = betterThreadPoolSize(threads, disks);
  if (better === undefined) return;
  log.warn(
    { threads, disks },
    `UV_THREADPOOL_SIZE is ${threadPoolSize()}: a disk that hangs may hold up the others; set it to ${better}`,
  );
}

async function figuresOf({ worker, rpc }: Thread): Promise<ThreadFigures> {
  const late = new AbortController();
  const none = sleep(FIGURES_MS, undefined, { signal: late.signal }).catch(() => undefined);
  // One that has died is no answer either; its death ends the process.
  const told = rpc.call('figures').catch(() => undefined);
  const snapshot = await Promise.race([told, none]);
  late.abort();
  return { snapshot, busyMs: worker.performance.eventLoopUtilization().active };
}

function startThread(options: DataThreadsOptions, index: number): Thread {
  const { nodeName, threads, host, port, slabBytes, logLevel } = options;
  const config: DataThreadConfig = {
    ...{ nodeName, index, threads, host, slabBytes, logLevel },
    port: port === 0 ? 0 : port + index,
    socketPath: `${options.stateDirectory}/data-${index}.sock`,
    notesDirectory: `${options.stateDirectory}/failed-flushes`,
  };
  const worker = new Worker(new URL('./data-thread.js', import.meta.url), { workerData: config });
  const rpc = new PortRpc<ThreadMethods>(worker, options.main);
  worker.on('error', (error) => {
    options.log.fatal({ thread: index, err: error }, 'data thread died');
    rpc.close(new HoldfastError('unavailable', `data thread ${index} died`));
    options.onDeath(error);
  });
  return { worker, rpc };
}
