import { differingParameter } from '../control/create-volume.js';
import type { VolumeRecord } from '../model/records.js';
import type { ValidateOrder } from './parse.js';

/** Why a volume can't be used as asked; `undefined`: it can. Pure. */
export function refusalFor(record: VolumeRecord, order: ValidateOrder): string | undefined {
  if (order.refusal !== undefined) return order.refusal;
  const { content } = record;
  for (const { access } of order.capabilities) {
    if ((access.kind === 'block') !== (content.kind === 'block')) {
      return `volume ${record.id} is made for ${content.kind === 'block' ? 'block' : 'mount'} access, not ${access.kind}`;
    }
    if (
      content.kind === 'filesystem' &&
      access.kind === 'mount' &&
      (access.filesystem ?? content.type) !== content.type
    ) {
      return `volume ${record.id} has the filesystem ${content.type}, not ${access.filesystem ?? ''}`;
    }
  }
  const differing = order.parameters && differingParameter(record.parameters, order.parameters);
  if (differing)
    return `parameter ${differing} of volume ${record.id} is ${JSON.stringify(record.parameters[differing])}`;
  return undefined;
}
