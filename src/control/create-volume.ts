import { createHash, randomBytes } from 'node:crypto';
import { HoldfastError, messageOf } from '../base/errors.js';
import { volumeKey, type NodeName, type VolumeId } from '../model/ids.js';
import {
  SCHEMA_VERSION,
  type ReplicaRecord,
  type Versioned,
  type VolumeParameters,
  type VolumeRecord,
} from '../model/records.js';
import { placementNodes, readCluster } from './cluster-view.js';
import { finishDelete, markDeleting } from './delete-volume.js';
import { changeVolume, type ControlParts } from './parts.js';
import { place, type PlacementOrder, type Segments, type Site } from './placement.js';
import { newCapacity, type CapacityRange } from './sizes.js';

/**
 * How a volume comes into being: intend, act, commit.
 *
 *     (none) ── place, write down ──▶ creating ── a replica on each node ──▶ ready
 *                                        │ ▲
 *                     a node fails: another one takes its place in the record
 *
 * Every wait is bounded. Whatever stops the operation (the caller goes away, the controller dies, no other node has
 * room) leaves the record in `creating`: listed, found again by its name, and carried on by the next call. Nobody was
 * told its id, no writer takes over a volume that isn't `ready`, so its replicas are empty and may be exchanged.
 */
export interface VolumeOrder {
  readonly name: string;
  readonly range: CapacityRange;
  readonly content: VolumeRecord['content'];
  readonly parameters: VolumeParameters;
  readonly preferred: readonly Segments[];
  readonly requisite: readonly Segments[];
}

/** How often nodes that fail are exchanged before the caller is told. */
const MAX_ROUNDS = 4;

/** The record key of a CSI name: names are compared byte by byte, whatever letters they are made of. */
export function keyOfName(name: string): string {
  return volumeKey(makeVolumeId(name, '00000000'));
}

/** The volume of that name, made if it isn't there. `already-exists`: it is there and was ordered differently. */
export async function createVolume(
  parts: ControlParts,
  order: VolumeOrder,
  signal: AbortSignal,
): Promise<VolumeRecord> {
  const found = await parts.store.get('volume', keyOfName(order.name));
  if (found === undefined) return makeReplicas(parts, await intend(parts, order, signal), order);
  const difference = differenceOf(found.record, order);
  switch (found.record.phase) {
    case 'ready':
      if (difference !== undefined) throw taken(order.name, difference);
      return found.record;
    case 'creating':
      if (difference === undefined) return makeReplicas(parts, found, order);
      // An order that was given up and is placed anew: nobody knows the half-made volume, so it makes way.
      return replaceLeftover(parts, found.record, order, signal);
    case 'deleting':
      return replaceLeftover(parts, found.record, order, signal);
  }
}

async function replaceLeftover(
  parts: ControlParts,
  leftover: VolumeRecord,
  order: VolumeOrder,
  signal: AbortSignal,
): Promise<VolumeRecord> {
  const marked = await markDeleting(parts, leftover.id);
  if (marked !== undefined) await finishDelete(parts, marked);
  return makeReplicas(parts, await intend(parts, order, signal), order);
}

/** Places the replicas and writes down what is going to be made. Before that, a caller that went away leaves nothing. */
function intend(parts: ControlParts, order: VolumeOrder, signal: AbortSignal): Promise<Versioned<VolumeRecord>> {
  return parts.placing.run(async () => {
    const capacityBytes = newCapacity(order.range, order.content);
    const sites = await placed(parts, { ...placementOrder(order, capacityBytes), kept: [], avoided: new Map() });
    if (signal.aborted) throw new HoldfastError('cancelled', 'the caller went away before anything was made');
    const now = new Date().toISOString();
    const record: VolumeRecord = {
      schema: SCHEMA_VERSION,
      id: makeVolumeId(order.name, randomBytes(4).toString('hex')),
      name: order.name,
      capacityBytes,
      parameters: order.parameters,
      content: order.content,
      format: 'blank',
      phase: 'creating',
      accessibleTopology: [],
      epoch: 1,
      writer: null,
      quiet: true,
      replicas: sites.map(replicaAt),
      createdAt: now,
      lastAttachedAt: '',
    };
    return parts.store.create('volume', volumeKey(record.id), record);
  });
}

/** Makes a replica on each node of the record, exchanging nodes that fail, and commits. */
async function makeReplicas(
  parts: ControlParts,
  intended: Versioned<VolumeRecord>,
  order: VolumeOrder,
): Promise<VolumeRecord> {
  const failed = new Map<NodeName, string>();
  const made = new Set<NodeName>();
  let volume = intended;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const wanted = volume.record.replicas.filter((replica) => !made.has(replica.node));
    const reasons = await Promise.all(wanted.map((replica) => makeReplica(parts, volume.record, replica)));
    wanted.forEach(({ node }, index) => {
      const reason = reasons[index];
      if (reason === undefined) made.add(node);
      else failed.set(node, reason);
    });
    if (made.size === volume.record.replicas.length) return commit(parts, volume.record);
    volume = await exchange(parts, volume, order, failed);
  }
  throw new HoldfastError('unavailable', `volume ${volume.record.id} is not made yet: ${told(failed)}; try again`);
}

/** Why there is no replica; `undefined`: there is one. */
async function makeReplica(
  { store, agents, liveness, log }: ControlParts,
  volume: VolumeRecord,
  { node: name, disk }: ReplicaRecord,
): Promise<string | undefined> {
  if (liveness.state(name) === 'expired') return 'does not renew its lease';
  try {
    const node = await store.get('node', name);
    if (node === undefined) return 'is not registered';
    const agent = agents.of(node.record);
    try {
      await agent.createReplica(volume.id, disk, volume.capacityBytes);
    } catch (error) {
      if (!(error instanceof HoldfastError) || error.code !== 'already-exists') throw error;
      // Left on another disk, or in another size, by an earlier try: empty, as the volume was never ready.
      await agent.removeReplica(volume.id);
      await agent.createReplica(volume.id, disk, volume.capacityBytes);
    }
    return undefined;
  } catch (error) {
    log.warn({ volume: volume.id, node: name, reason: messageOf(error) }, 'replica not made');
    return `failed: ${messageOf(error)}`;
  }
}

/** Other nodes take the places of those that failed; without any, the caller is told and may try again. */
function exchange(
  parts: ControlParts,
  volume: Versioned<VolumeRecord>,
  order: VolumeOrder,
  failed: ReadonlyMap<NodeName, string>,
): Promise<Versioned<VolumeRecord>> {
  return parts.placing.run(async () => {
    const { record, version, key } = volume;
    const kept = record.replicas.filter((replica) => !failed.has(replica.node));
    const wanted = { ...placementOrder(order, record.capacityBytes), kept, avoided: failed };
    const nodes = placementNodes(await readCluster(parts.store), parts.liveness);
    const placement = place(nodes, wanted, parts.limits);
    if ('missing' in placement) {
      throw new HoldfastError(
        'unavailable',
        `volume ${record.id} is not made yet: ${told(failed)}; ${placement.missing}`,
      );
    }
    const replicas = [...kept, ...placement.sites.map(replicaAt)];
    const changed = await parts.store.update('volume', key, { ...record, replicas }, version);
    for (const replica of record.replicas) if (failed.has(replica.node)) parts.strays.add(replica.node, record.id);
    return changed;
  });
}

async function commit(parts: ControlParts, { id }: VolumeRecord): Promise<VolumeRecord> {
  const done = await changeVolume(parts, volumeKey(id), (record) =>
    record.id === id && record.phase === 'creating' ? { ...record, phase: 'ready' } : undefined,
  );
  if (done?.record.id !== id || done.record.phase !== 'ready') {
    throw new HoldfastError('aborted', `volume ${id} was deleted while it was made; try again`);
  }
  return done.record;
}

async function placed(parts: ControlParts, order: PlacementOrder): Promise<readonly Site[]> {
  const placement = place(placementNodes(await readCluster(parts.store), parts.liveness), order, parts.limits);
  if ('missing' in placement) throw new HoldfastError('resource-exhausted', placement.missing);
  return placement.sites;
}

function placementOrder(order: VolumeOrder, capacityBytes: number): Omit<PlacementOrder, 'kept' | 'avoided'> {
  const { preferred, requisite, parameters } = order;
  return { capacityBytes, replicas: parameters.replicas, zones: parameters.zones, preferred, requisite };
}

/** In what an existing volume differs from an order; `undefined`: the order may have it. */
function differenceOf(record: VolumeRecord, order: VolumeOrder): string | undefined {
  if (record.name !== order.name) return `its name is ${JSON.stringify(record.name)}`;
  const { requiredBytes, limitBytes } = order.range;
  if (record.capacityBytes < requiredBytes || record.capacityBytes > limitBytes) {
    return `its capacity is ${record.capacityBytes} bytes`;
  }
  if (JSON.stringify(record.content) !== JSON.stringify(order.content)) {
    return `its content is ${record.content.kind === 'block' ? 'block' : record.content.type}`;
  }
  const name = differingParameter(record.parameters, order.parameters);
  return name && `its parameter ${name} is ${JSON.stringify(record.parameters[name])}`;
}

/** The first parameter in which two orders differ. */
export function differingParameter(a: VolumeParameters, b: VolumeParameters): keyof VolumeParameters | undefined {
  const names = Object.keys(b) as (keyof VolumeParameters)[];
  return names.find((name) => JSON.stringify(a[name]) !== JSON.stringify(b[name]));
}

function taken(name: string, difference: string): HoldfastError {
  return new HoldfastError('already-exists', `volume ${JSON.stringify(name)} is there already, but ${difference}`);
}

function told(failed: ReadonlyMap<NodeName, string>): string {
  return [...failed].map(([node, reason]) => `node ${node} ${reason}`).join('; ');
}

function replicaAt({ node, disk }: Site): ReplicaRecord {
  return { node, disk, inSync: true };
}

function makeVolumeId(name: string, suffix: string): VolumeId {
  return `vol-${createHash('sha256').update(name, 'utf8').digest('hex').slice(0, 24)}${suffix}`;
}
