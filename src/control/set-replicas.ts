import { inWords } from '../base/duration.js';
import { HoldfastError } from '../base/errors.js';
import { CONTROLLER, decided } from '../model/decisions.js';
import { volumeKey, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import { placementNodes, readCluster } from './cluster-view.js';
import { indexOf } from './node-watch.js';
import { changeVolume, type ControlParts } from './parts.js';
import { orderFor } from './place-missing.js';
import { place } from './placement.js';
import { isLost, type VolumeSight } from './volume-sight.js';

export const MOST_REPLICAS = 3;

/**
 * How many replicas a volume is to have from now on; attached or not, the rebuilder does the rest. Resolves to what will
 * happen, in sentences. `invalid-argument`: not 1 to 3. `failed-precondition`: below minInSync, or the volume can't be
 * used. `resource-exhausted`: no room, saying what is missing where. `not-found`.
 */
export async function setReplicas(parts: ControlParts, id: VolumeId, wanted: number): Promise<string[]> {
  if (!Number.isInteger(wanted) || wanted < 1 || wanted > MOST_REPLICAS) {
    throw new HoldfastError('invalid-argument', `replicas is ${wanted}; it must be 1 to ${MOST_REPLICAS}`);
  }
  return parts.placing.run(async () => {
    const cluster = await readCluster(parts.store);
    const nodes = placementNodes(cluster, parts.liveness);
    let next: string[] = [];
    const changed = await changeVolume(parts, volumeKey(id), (record) => {
      if (record.id !== id) return undefined;
      refuseUnready(record, wanted);
      const before = record.parameters.replicas;
      const sight = parts.healing.sightOf(
        { ...record, parameters: { ...record.parameters, replicas: wanted } },
        indexOf(cluster),
      );
      if (wanted > before)
        refuseWithoutRoom(place(nodes, { ...orderFor(sight, new Map()), replicas: wanted }, parts.limits));
      next = whatComes(sight, before, wanted, parts.healing.graceMs);
      if (wanted === before) return undefined;
      const what = `${wanted} ${wanted === 1 ? 'replica is' : 'replicas are'} wanted instead of ${before}: asked for by a person`;
      const decision = { at: new Date().toISOString(), by: CONTROLLER, what };
      return decided({ ...record, parameters: { ...record.parameters, replicas: wanted } }, decision);
    });
    if (changed?.record.id !== id) throw new HoldfastError('not-found', `there is no volume ${id}`);
    return next;
  });
}

function refuseUnready({ id, phase, parameters }: VolumeRecord, wanted: number): void {
  if (phase !== 'ready') {
    throw new HoldfastError('failed-precondition', `volume ${id} is ${phase}; it must be ready`);
  }
  const { minInSync } = parameters;
  if (wanted < minInSync) {
    throw new HoldfastError(
      'failed-precondition',
      `volume ${id} has minInSync ${minInSync}: with fewer replicas its writes would wait for ever; give at least ${minInSync}`,
    );
  }
}

function refuseWithoutRoom(placement: ReturnType<typeof place>): void {
  if ('missing' in placement) throw new HoldfastError('resource-exhausted', placement.missing);
}

function whatComes({ replicas }: VolumeSight, before: number, wanted: number, graceMs: number): string[] {
  const there = replicas.filter((replica) => !isLost(replica)).length;
  if (wanted === before)
    return [`the volume has ${wanted} ${wanted === 1 ? 'replica' : 'replicas'} already; nothing changes`];
  if (there < wanted) {
    return [
      `${wanted - there} more will be placed within seconds and copied while the volume goes on; it stays usable`,
    ];
  }
  if (there === wanted) return ['as many are there already; nothing is copied'];
  const away = replicas.some(({ standing }) => standing.kind === 'away');
  const patience = away ? `; a node that is away for less than ${inWords(graceMs)} may still come back first` : '';
  return [
    `${there - wanted} will leave as soon as ${wanted} ${wanted === 1 ? 'is' : 'are'} in sync on live nodes, those of least use first${patience}`,
  ];
}
