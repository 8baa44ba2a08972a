import type { VolumeView__Output } from '../generated/holdfast/v1/VolumeView.js';
import type { VolumeRecord } from '../model/records.js';

/** What is told of a volume while it is watched. */
export interface VolumeSight {
  readonly health: string;
  /** What is wrong, in words. */
  readonly conditions: readonly string[];
  readonly epoch: number;
  /** Undefined: there is none. */
  readonly writer: string | undefined;
  readonly inSync: readonly string[];
  readonly resync: { readonly node: string; readonly regions: number } | undefined;
}

export function sightOf(view: VolumeView__Output): VolumeSight {
  const { epoch, writer } = JSON.parse(view.record_json) as VolumeRecord;
  const resync = view.attachment?.resync;
  return {
    health: view.health,
    conditions: view.conditions,
    epoch,
    writer: writer?.node,
    inSync: view.replicas.filter((replica) => replica.in_sync).map((replica) => replica.node),
    resync: resync ? { node: resync.node, regions: resync.regions_total } : undefined,
  };
}

/** What has happened between two looks at a volume, each in a line. */
export function changesBetween(before: VolumeSight, now: VolumeSight): string[] {
  const lines: string[] = [];
  const epoch = `epoch ${now.epoch}`;
  if (now.writer !== before.writer) {
    lines.push(
      now.writer === undefined
        ? `the volume has no writer (${epoch})`
        : `take-over: node ${now.writer} is the writer (${epoch})`,
    );
  }
  for (const node of before.inSync) {
    if (!now.inSync.includes(node)) lines.push(`drop: the replica on node ${node} leaves the in-sync set (${epoch})`);
  }
  if (now.resync !== undefined && now.resync.node !== before.resync?.node) {
    lines.push(`resync of the replica on node ${now.resync.node} begins`);
  }
  for (const node of now.inSync) {
    if (!before.inSync.includes(node)) lines.push(`the replica on node ${node} is in sync again (${epoch})`);
  }
  if (now.health !== before.health) {
    const why = now.conditions[0];
    lines.push(`the volume is ${now.health}${why === undefined ? '' : `: ${why}`}`);
  }
  return lines;
}
