import { codeOf, HoldfastError } from '../base/errors.js';
import type { DiskId, NodeName } from '../model/ids.js';
import type { RecordKind } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import type { ControlParts } from './parts.js';

export interface RemovedNode {
  readonly disks: readonly DiskId[];
  /** Volumes with a replica there; each is rebuilt elsewhere. */
  readonly volumes: number;
}

/**
 * A node that is gone for good leaves the cluster with its disks, so that nobody waits for it any more. One that lives
 * all the same joins again by itself. `failed-precondition`: its lease has not expired. `not-found`.
 */
export async function removeNode(
  { store, liveness, log }: Pick<ControlParts, 'store' | 'liveness' | 'log'>,
  name: NodeName,
): Promise<RemovedNode> {
  const [node, lease] = await Promise.all([store.get('node', name), store.get('lease', name)]);
  const held = (await store.list('disk')).items.filter(({ record }) => record.node === name);
  const disks = held.map(({ key }) => key);
  if (node === undefined && lease === undefined && disks.length === 0) {
    throw new HoldfastError('not-found', `there is no node ${name}`);
  }
  if (liveness.state(name) !== 'expired') {
    throw new HoldfastError(
      'failed-precondition',
      `the lease of node ${name} has not expired; stop the node plugin there first, and wait a moment`,
    );
  }
  // By its version: a node that renewed it meanwhile is alive.
  if (lease !== undefined)
    await store.delete('lease', name, lease.version).catch((error: unknown) => refuse(name, error));
  // By their versions: one that another node has announced meanwhile is that node's.
  for (const { key, version } of held) await gone(store, 'disk', key, version);
  await gone(store, 'node', name);
  const { items } = await store.list('volume');
  const volumes = items.filter(({ record }) => record.replicas.some((replica) => replica.node === name)).length;
  log.warn({ node: name, disks, volumes }, 'node removed from the cluster by a person');
  return { disks, volumes };
}

function refuse(name: NodeName, error: unknown): void {
  if (codeOf(error) === 'not-found') return;
  if (codeOf(error) !== 'conflict') throw error;
  throw new HoldfastError('failed-precondition', `node ${name} renews its lease again; it is left as it is`);
}

async function gone(store: RecordStore, kind: RecordKind, key: string, version?: string): Promise<void> {
  try {
    await store.delete(kind, key, version);
  } catch (error) {
    if (codeOf(error) !== 'not-found' && codeOf(error) !== 'conflict') throw error;
  }
}
