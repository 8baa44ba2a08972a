import type { GetStatusResponse__Output } from '../generated/holdfast/v1/GetStatusResponse.js';
import type { NodeView__Output } from '../generated/holdfast/v1/NodeView.js';
import type { VolumeView__Output } from '../generated/holdfast/v1/VolumeView.js';
import type { Finding } from '../doctor.js';
import type { DiskRecord, NodeRecord, VolumeRecord } from '../model/records.js';
import { TOPOLOGY_ZONE } from '../config.js';
import { formatAge, formatBytes, formatTable } from './table.js';

/*
 * What the answers of the controller look like to a person, and, as plain values, to a machine (--json).
 */

export function statusText(status: GetStatusResponse__Output): string {
  const rows = [
    ['cluster', status.cluster_id],
    ['nodes', `${status.nodes_ready} of ${status.nodes_total} ready`],
    ['volumes', `${status.volumes_total}, ${status.volumes_attached} attached, ${status.volumes_degraded} degraded`],
    ['disks', `${formatBytes(status.used_bytes)} used of ${formatBytes(status.capacity_bytes)}`],
    ['provisioned', formatBytes(status.provisioned_bytes)],
  ];
  const width = Math.max(...rows.map(([name = '']) => name.length));
  return rows.map(([name = '', value = '']) => `${name.padEnd(width)}  ${value}`).join('\n');
}

export function volumesText(volumes: readonly VolumeView__Output[], now: number): string {
  if (volumes.length === 0) return 'no volumes';
  const rows = volumes.map((view) => {
    const record = volumeRecord(view);
    const replicas = view.replicas.map((replica) => `${replica.node}${replica.in_sync ? '' : '(behind)'}`).join(',');
    return [
      record.id,
      record.name,
      formatBytes(record.capacityBytes),
      view.health,
      writerText(record),
      replicas,
      formatAge(record.createdAt, now),
      formatAge(record.lastAttachedAt, now),
    ];
  });
  return formatTable(['ID', 'NAME', 'SIZE', 'HEALTH', 'WRITER', 'REPLICAS', 'AGE', 'LAST USE'], rows, ['SIZE']);
}

export function volumeText(view: VolumeView__Output, now: number): string {
  const record = volumeRecord(view);
  const content = record.content.kind === 'block' ? 'block' : record.content.type;
  const lines = [
    ['id', record.id],
    ['name', record.name],
    ['size', formatBytes(record.capacityBytes)],
    ['content', `${content}, ${record.format}`],
    ['health', view.health],
    ['epoch', String(record.epoch)],
    ['writer', record.writer === null ? 'none' : `${writerText(record)}, session ${record.writer.session}`],
    ['replicas wanted', `${record.parameters.replicas}, writes need ${record.parameters.minInSync} in sync`],
    ['age', formatAge(record.createdAt, now)],
    ['last use', formatAge(record.lastAttachedAt, now)],
    ...view.conditions.map((condition) => ['condition', condition]),
    ...attachmentLines(view.attachment),
  ];
  const width = Math.max(...lines.map(([name = '']) => name.length));
  const head = lines.map(([name = '', value = '']) => `${name.padEnd(width)}  ${value}`).join('\n');
  const rows = view.replicas.map((replica) => [
    replica.node,
    replica.disk_id,
    replica.in_sync ? 'in sync' : 'behind',
    replica.node_ready ? 'ready' : 'not ready',
    replica.nbd_uri,
  ]);
  return `${head}\n\n${formatTable(['REPLICA ON', 'DISK', 'STATE', 'NODE', 'READ-ONLY NBD ENDPOINT'], rows)}`;
}

/** Its node; in brackets where it has no device. */
function writerText({ writer }: VolumeRecord): string {
  if (writer === null) return '-';
  return writer.maintenance === true ? `(${writer.node})` : writer.node;
}

function attachmentLines(attachment: VolumeView__Output['attachment']): string[][] {
  if (attachment === null) return [];
  const { resync } = attachment;
  return [
    ['attachment', attachment.state],
    ['open regions', `${attachment.regions_open}, to reconcile ${attachment.regions_to_reconcile}`],
    ...(resync === null
      ? []
      : [['resync', `${resync.node}: ${resync.regions_done} of ${resync.regions_total} regions`]]),
    ...attachment.waits_for.map((what) => ['waits for', what]),
    ['writer endpoint', attachment.nbd_uri],
  ];
}

export function nodesText(nodes: readonly NodeView__Output[]): string {
  if (nodes.length === 0) return 'no nodes';
  const rows = nodes.map((view) => {
    const record = nodeRecord(view);
    const disks = view.disk_json.map((text) => JSON.parse(text) as DiskRecord);
    const failed = disks.filter((disk) => disk.state === 'failed').length;
    return [
      record.name,
      `${view.ready ? 'ready' : 'not ready'}${record.cordoned ? ', cordoned' : ''}`,
      record.topology[TOPOLOGY_ZONE] ?? '-',
      record.host,
      `${disks.length}${failed === 0 ? '' : ` (${failed} failed)`}`,
      formatBytes(sum(disks.map((disk) => disk.usedBytes))),
      formatBytes(sum(disks.map((disk) => disk.capacityBytes))),
      formatBytes(view.provisioned_bytes),
      String(view.replicas),
      String(view.attachments),
    ];
  });
  const headings = [
    'NODE',
    'STATE',
    'ZONE',
    'ADDRESS',
    'DISKS',
    'USED',
    'CAPACITY',
    'PROVISIONED',
    'REPLICAS',
    'ATTACHED',
  ];
  return formatTable(headings, rows, headings.slice(4));
}

export function findingsText(findings: readonly Finding[]): string {
  const rows = findings.map((finding) => [
    finding.ok ? 'ok' : finding.required ? 'MISSING' : 'absent',
    finding.name,
    finding.found,
    finding.purpose,
    finding.ok ? '' : finding.remedy,
  ]);
  return formatTable(['', 'WHAT', 'FOUND', 'FOR', 'REMEDY'], rows);
}

/** The view with its records as values instead of text in text. */
export function volumeValue(view: VolumeView__Output): unknown {
  const { health, conditions, attachment, replicas } = view;
  return { record: volumeRecord(view), health, conditions, attachment, replicas };
}

export function nodeValue(view: NodeView__Output): unknown {
  const { ready, replicas, attachments, provisioned_bytes } = view;
  const disks = view.disk_json.map((text) => JSON.parse(text) as DiskRecord);
  return { record: nodeRecord(view), ready, disks, replicas, attachments, provisioned_bytes };
}

function volumeRecord(view: VolumeView__Output): VolumeRecord {
  return JSON.parse(view.record_json) as VolumeRecord;
}

function nodeRecord(view: NodeView__Output): NodeRecord {
  return JSON.parse(view.record_json) as NodeRecord;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
