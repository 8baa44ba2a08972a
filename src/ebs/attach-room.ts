import type { Instance, InstanceType } from './ec2.js';

/** How many more EBS volumes an instance can take. */
export interface AttachRoom {
  /** Not below 0. */
  readonly free: number;
  readonly limit: number;
  readonly taken: number;
  /** One sentence with all the numbers. */
  readonly explanation: string;
}

/**
 * Where EC2 doesn't tell a type's limit: that of most Nitro instances, shared with network interfaces and instance-store
 * disks (EC2 user guide, "Amazon EBS volume limits"). Xen instances take more.
 */
export const ASSUMED_LIMIT = 28;

/**
 * The room for EBS volumes on `instance`. `ours`: the volume ids of the cluster's disks, told apart only to explain.
 * `pending`: attachments that were asked for and that EC2 doesn't show yet.
 *
 * A volume takes its place in any state until EC2 shows it as detached. Where the limit is shared, or not told to be
 * dedicated, network interfaces and instance-store disks take places too.
 */
export function judgeAttachRoom(
  instance: Instance,
  type: InstanceType,
  ours: ReadonlySet<string>,
  pending: number,
): AttachRoom {
  const limit = type.maximumAttachments ?? ASSUMED_LIMIT;
  const shares = type.maximumAttachments === undefined || type.attachmentLimit !== 'dedicated';
  const attached = instance.devices.filter(({ state }) => state !== 'detached');
  const own = attached.filter(({ volumeId }) => ours.has(volumeId)).length;
  const takers = [
    { count: shares ? instance.networkInterfaces : 0, one: 'network interface' },
    { count: shares ? type.instanceStoreDisks : 0, one: 'instance-store disk' },
    { count: own, one: 'disk of this cluster', many: 'disks of this cluster' },
    { count: attached.length - own, one: 'other EBS volume' },
    { count: pending, one: 'attachment under way', many: 'attachments under way' },
  ];
  const taken = takers.reduce((sum, { count }) => sum + count, 0);
  const free = Math.max(0, limit - taken);
  const slots = type.maximumAttachments === undefined ? 'slots (assumed, for EC2 tells no limit)' : 'slots';
  const sentence = `instance ${instance.id} (${type.name}) has ${limit} ${slots}, ${taken} taken by ${list(takers)}; ${free} left`;
  return { free, limit, taken, explanation: sentence };
}

function list(takers: readonly { readonly count: number; readonly one: string; readonly many?: string }[]): string {
  const told = takers
    .filter(({ count }) => count > 0)
    .map(({ count, one, many }) => `${count} ${count === 1 ? one : (many ?? `${one}s`)}`);
  if (told.length === 0) return 'nothing';
  return told.length === 1 ? told.join('') : `${told.slice(0, -1).join(', ')} and ${told.slice(-1).join('')}`;
}
