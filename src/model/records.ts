import type { DiskId, NodeName, SessionId, VolumeId } from './ids.js';

/**
 * The records of the cluster store. Each carries the schema version it was written with. What a volume or disk was
 * created with stands in its record; nothing is ever filled in from the defaults of the running version.
 */
export interface RecordTypes {
  cluster: ClusterRecord;
  node: NodeRecord;
  lease: LeaseRecord;
  disk: DiskRecord;
  volume: VolumeRecord;
}

export type RecordKind = keyof RecordTypes;

export const RECORD_KINDS: readonly RecordKind[] = ['cluster', 'node', 'lease', 'disk', 'volume'];

export const SCHEMA_VERSION = 1;

/** One record, key `cluster`. */
export interface ClusterRecord {
  schema: number;
  /** UUID; every disk of the pool carries it. */
  clusterId: string;
}

/** Key: the node's name. Written by the node. */
export interface NodeRecord {
  schema: number;
  name: NodeName;
  /** Random, made once and kept in the node's state directory; another one under the same name is another node. */
  nodeUid: string;
  /** Topology segments, e.g. {"topology.holdfast.dev/node": "a", "topology.kubernetes.io/zone": "eu-1a"}. */
  topology: Record<string, string>;
  host: string;
  agentPort: number;
  /** One for each data thread; a volume belongs to the thread `threadOf(volume, dataPorts.length)`. */
  dataPorts: number[];
  /** No new replicas go there. */
  cordoned: boolean;
}

/** Key: the node's name. Renewed by the node every `intervalMs`; the value of `beat` only has to differ. */
export interface LeaseRecord {
  schema: number;
  nodeUid: string;
  intervalMs: number;
  beat: number;
}

/** Key: the disk's id. Written by the node that holds the disk. */
export interface DiskRecord {
  schema: number;
  diskId: DiskId;
  node: NodeName;
  /** What volumes may fill: the filesystem's size, less what it and the replicas' own files need. */
  capacityBytes: number;
  usedBytes: number;
  /** 'ready', or why no replica can be served from it. */
  state: 'ready' | 'failed';
  reason: string;
}

export type FilesystemType = 'ext4' | 'xfs';

/** What a StorageClass parameter was at creation. */
export interface VolumeParameters {
  replicas: number;
  minInSync: number;
  zones: 'spread' | 'same';
  failover: 'auto' | 'manual';
  diskTemplate: string;
  mkfsOptions: string[];
}

export interface ReplicaRecord {
  node: NodeName;
  disk: DiskId;
  /** Holds every acknowledged write. Changed only by the writer or a take-over. */
  inSync: boolean;
  /**
   * Which of the replicas that were placed after the volume's creation this is: one that took the place of another, on the
   * same node and disk too, is not that other. Absent for those of the creation.
   */
  placement?: number;
}

export interface Writer {
  node: NodeName;
  session: SessionId;
  /** No block device: the writer only brings the replicas into line, and gives way to whoever wants to attach. */
  maintenance?: boolean;
}

/** Why the record was changed, for people. It travels in the same compare-and-swap as the change. */
export interface Decision {
  /** Wall clock of who decided, ISO 8601; compared with nothing. */
  at: string;
  /** The node's name, or `controller`. */
  by: string;
  what: string;
  /** The record's epoch after the change. */
  epoch: number;
  /** How often the same was decided in a row; absent: once. */
  times?: number;
}

/** Key: volumeKey(id). */
export interface VolumeRecord {
  schema: number;
  id: VolumeId;
  /** The CSI name. */
  name: string;
  capacityBytes: number;
  parameters: VolumeParameters;
  /** 'block', or the filesystem. */
  content: { kind: 'block' } | { kind: 'filesystem'; type: FilesystemType };
  /** blank → formatting → formatted, by CAS; mkfs only in the first two. Block volumes stay blank. */
  format: 'blank' | 'formatting' | 'formatted';
  /** creating: replicas are being made; deleting: they are being removed. */
  phase: 'creating' | 'ready' | 'deleting';
  /** Topology the volume may be used from; empty: anywhere. One entry is one allowed set of segments. */
  accessibleTopology: Record<string, string>[];
  /** Grows by one at every change of (writer, in-sync set). Starts at 1. */
  epoch: number;
  writer: Writer | null;
  /**
   * No writer of any epoch may still serve reads (R9): the last one had served and then released. True at creation and
   * after an orderly release; a take-over sets it false.
   */
  quiet: boolean;
  replicas: ReplicaRecord[];
  /** How many replicas were placed after the creation; absent: none, or by an older version. */
  placements?: number;
  /** The last decisions on writer, replicas, in-sync set and parameters, oldest first; see decisions.ts. */
  decisions?: Decision[];
  /** Wall clock, for people only; ISO 8601. */
  createdAt: string;
  lastAttachedAt: string;
}

/** A record as the store holds it. The version is opaque and changes with every write. */
export interface Versioned<T> {
  readonly key: string;
  readonly version: string;
  readonly record: T;
}
