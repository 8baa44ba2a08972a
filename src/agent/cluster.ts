import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { RepeatedFault } from '../store/repeated-fault.js';
import type { RecordStore } from '../store/store.js';
import { writeDurably } from '../pool/durable-file.js';
import { readKept } from './kept-text.js';

/*
 * Which cluster a node belongs to. It is learned once and kept, so that a plugin which starts while the controller is
 * away serves its replicas all the same.
 */

const POLL_MS = 1_000;

/** The cluster's id as this node remembers it, else as the store tells it; waits for the controller to make it. */
export async function clusterIdOf(
  store: RecordStore,
  stateDirectory: string,
  log: Log,
  signal: AbortSignal,
): Promise<string> {
  const known = await readKept(fileIn(stateDirectory));
  if (known !== '') return known;
  const told = await persevere(
    'reading the record of the cluster',
    log,
    async () => {
      const found = await store.get('cluster', 'cluster');
      if (found === undefined) throw new HoldfastError('unavailable', 'the controller has not made it yet');
      return found.record.clusterId;
    },
    signal,
  );
  await writeDurably(fileIn(stateDirectory), `${told}\n`);
  return told;
}

/** `failed-precondition` where the store is that of another cluster than this node's. */
export async function checkCluster(store: RecordStore, clusterId: string): Promise<void> {
  const told = (await store.get('cluster', 'cluster'))?.record.clusterId;
  if (told === clusterId) return;
  if (told === undefined) throw new HoldfastError('unavailable', 'the store has no record of the cluster yet');
  throw new HoldfastError(
    'failed-precondition',
    `this node belongs to cluster ${clusterId}, but the store is that of cluster ${told}; give the address of its own store, or an empty state directory and disks`,
  );
}

/**
 * Tries until it succeeds, or fails for another reason than that somebody does not answer. `cancelled` when the signal
 * aborts.
 */
export async function persevere<T>(what: string, log: Log, attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const fault = new RepeatedFault(log, what);
  for (;;) {
    try {
      const result = await attempt();
      fault.succeeded();
      return result;
    } catch (error) {
      const passing = error instanceof HoldfastError && PASSING.includes(error.code);
      if (!passing) throw error;
      fault.failed(error);
      await sleep(POLL_MS, undefined, { signal }).catch(() => {
        throw new HoldfastError('cancelled', `${what} was given up`);
      });
    }
  }
}

const PASSING: readonly string[] = ['unavailable', 'deadline-exceeded', 'aborted', 'conflict'];

function fileIn(stateDirectory: string): string {
  return join(stateDirectory, 'cluster-id');
}
