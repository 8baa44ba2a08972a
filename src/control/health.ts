import type { Attachment__Output } from '../generated/holdfast/v1/Attachment.js';
import type { DiskId, NodeName } from '../model/ids.js';
import type { DiskRecord, ReplicaRecord, VolumeRecord } from '../model/records.js';
import type { NodeLiveness } from './cluster-view.js';
import { whatIsWrong } from './replica-standing.js';
import type { VolumeSight } from './volume-sight.js';

/** What the writer's node says: its attachment, null if it has none, or that it doesn't answer. */
export type AttachmentAnswer = Attachment__Output | null | 'unanswered';

export type HealthWord = 'healthy' | 'degraded' | 'resyncing' | 'unavailable' | 'creating' | 'deleting';

/** One thing that is wrong, or not yet right. */
export interface Condition {
  /** degraded: usable, but with less protection or speed; inaccessible: not usable; data-loss: data may be gone. */
  readonly severity: 'degraded' | 'inaccessible' | 'data-loss';
  /** CamelCase; at most once for a volume. */
  readonly reason: string;
  readonly message: string;
}

export interface Health {
  readonly word: HealthWord;
  readonly conditions: readonly Condition[];
}

interface Seen {
  readonly record: VolumeRecord;
  readonly liveness: NodeLiveness;
  /** Asked only where the record names a writer. */
  readonly attachment: AttachmentAnswer;
  readonly disks: ReadonlyMap<DiskId, DiskRecord>;
  /** What nodes told of their replicas. */
  readonly sight?: Pick<VolumeSight, 'replicas'>;
  /** What stands in the way of its healing, in words. */
  readonly problem?: string | undefined;
}

/** How a volume fares, from its record, the leases and what its writer says. Pure. */
export function healthOf(seen: Seen): Health {
  const conditions = RULES.flatMap((rule) => rule(seen) ?? []);
  return { word: wordFor(seen, conditions), conditions };
}

/** The rules, one for each thing that may be wrong. */
const RULES: readonly ((seen: Seen) => Condition | undefined)[] = [
  ({ record }) =>
    record.replicas.some((replica) => replica.inSync)
      ? undefined
      : { severity: 'data-loss', reason: 'NoReplicaInSync', message: 'no replica holds every acknowledged write' },
  (seen) => {
    const inSync = seen.record.replicas.filter((replica) => replica.inSync);
    const reachable = inSync.some(
      (replica) => seen.liveness.state(replica.node) !== 'expired' && failedDisk(seen, replica) === undefined,
    );
    return inSync.length > 0 && !reachable
      ? {
          severity: 'inaccessible',
          reason: 'NoReplicaReachable',
          message: `no in-sync replica is on a node that is ready and a disk that works: ${inSync.map(({ node }) => node).join(', ')}`,
        }
      : undefined;
  },
  ({ record, liveness }) =>
    about(
      'NodesNotReady',
      record.replicas.map((replica) => replica.node).filter((node) => liveness.state(node) === 'expired'),
      (nodes) => `nodes of replicas do not renew their leases: ${nodes}`,
    ),
  (seen) => {
    const failed = seen.record.replicas.flatMap((replica) => failedDisk(seen, replica) ?? []);
    return failed.length > 0 ? degraded('DiskFailed', failed.join('; ')) : undefined;
  },
  ({ sight }) => {
    const damages = (sight?.replicas ?? []).map(({ node, told }) => ({ node, blocks: told?.damagedBlocks ?? 0 }));
    const told = damages.filter(({ blocks }) => blocks > 0).map(({ node, blocks }) => `${blocks} on ${node}`);
    return told.length > 0
      ? degraded('DamagedBlocks', `blocks of replicas are damaged: ${told.join(', ')}`)
      : undefined;
  },
  ({ record }) =>
    about(
      'ReplicasNotInSync',
      record.replicas.filter((replica) => !replica.inSync).map((replica) => replica.node),
      (nodes) => `replicas are not in sync: ${nodes}`,
    ),
  ({ record }) =>
    record.phase === 'ready' && record.replicas.length < record.parameters.replicas
      ? degraded('ReplicasMissing', `${record.replicas.length} of ${record.parameters.replicas} replicas are there`)
      : undefined,
  ({ record, liveness }) =>
    record.writer !== null && liveness.state(record.writer.node) === 'expired'
      ? degraded('WriterNotReady', `node ${record.writer.node}, the writer, does not renew its lease`)
      : undefined,
  ({ record, liveness, attachment }) =>
    record.writer !== null && attachment === 'unanswered' && liveness.state(record.writer.node) !== 'expired'
      ? degraded('WriterUnanswered', `node ${record.writer.node}, the writer, does not tell about the attachment`)
      : undefined,
  ({ record }) =>
    record.writer?.maintenance === true
      ? degraded('Maintenance', `node ${record.writer.node} brings the replicas into line; nobody uses the volume`)
      : undefined,
  ({ problem }) => (problem === undefined ? undefined : degraded('CanNotHeal', problem)),
  ({ attachment }) =>
    isTold(attachment) && (attachment.state === 'fenced' || attachment.state === 'failed')
      ? { severity: 'inaccessible', reason: 'AttachmentEnded', message: `the attachment is ${attachment.state}` }
      : undefined,
  ({ attachment }) =>
    isTold(attachment) && attachment.waits_for.length > 0
      ? degraded('WaitsFor', attachment.waits_for.join('; '))
      : undefined,
  ({ attachment }) =>
    isTold(attachment) && attachment.resync !== null
      ? degraded(
          'Resyncing',
          `node ${attachment.resync.node} is brought back: ${attachment.resync.regions_done} of ${attachment.resync.regions_total} regions`,
        )
      : undefined,
];

function wordFor({ record, attachment }: Seen, conditions: readonly Condition[]): HealthWord {
  if (record.phase !== 'ready') return record.phase;
  if (conditions.some((condition) => condition.severity !== 'degraded')) return 'unavailable';
  if (isTold(attachment) && attachment.resync !== null) return 'resyncing';
  return conditions.length > 0 ? 'degraded' : 'healthy';
}

/** Of a live node: that of a dead one tells nothing new. */
function failedDisk({ liveness, disks }: Seen, { node, disk }: ReplicaRecord): string | undefined {
  if (liveness.state(node) !== 'live') return undefined;
  const wrong = whatIsWrong(disks.get(disk), node);
  return wrong && `disk ${disk} of node ${node} ${wrong}`;
}

function isTold(attachment: AttachmentAnswer): attachment is Attachment__Output {
  return attachment !== null && attachment !== 'unanswered';
}

function degraded(reason: string, message: string): Condition {
  return { severity: 'degraded', reason, message };
}

function about(reason: string, nodes: readonly NodeName[], say: (nodes: string) => string): Condition | undefined {
  return nodes.length > 0 ? degraded(reason, say(nodes.join(', '))) : undefined;
}
