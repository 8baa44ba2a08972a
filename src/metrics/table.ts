/**
 * All metrics of Holdfast, one row each: the one place that knows a metric's name, type, labels and meaning. What is
 * counted under a name without a row, or with other labels, is refused (meter-book.ts); docs/metrics.md is made from
 * these rows (document.ts).
 */
export interface MetricRow {
  /** Seconds and bytes; counters end in `_total`. */
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
  readonly from: MetricSource;
  /** Upper bounds, rising, of a histogram's buckets; the one without bound is added. */
  readonly buckets?: readonly number[];
}

/** The process (and part of it) that counts: data threads and main thread of the node plugin, the controller, or both processes. */
export type MetricSource = 'data threads' | 'node plugin' | 'controller' | 'each process';

export interface MetricSection {
  readonly title: string;
  readonly rows: readonly MetricRow[];
}

/** From a page in memory to a request that is near being given up. */
const IO_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;
/** Calls and take-overs, which may wait for a lease to expire. */
const CALL_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80] as const;

type Columns = Omit<MetricRow, 'type' | 'from' | 'buckets'>;

function gauge(from: MetricSource, name: string, labels: readonly string[], help: string): MetricRow {
  return row('gauge', from, { name, labels, help });
}

function counter(from: MetricSource, name: string, labels: readonly string[], help: string): MetricRow {
  return row('counter', from, { name, labels, help });
}

function histogram(
  from: MetricSource,
  name: string,
  labels: readonly string[],
  help: string,
  buckets: readonly number[],
): MetricRow {
  return { ...row('histogram', from, { name, labels, help }), buckets };
}

function row(type: MetricRow['type'], from: MetricSource, columns: Columns): MetricRow {
  return { ...columns, name: `holdfast_${columns.name}`, type, from };
}

const ATTACHMENTS: MetricSection = {
  title: 'Volumes attached to this node',
  rows: [
    gauge('data threads', 'writer_info', ['volume', 'name'], 'Always 1; gives the CSI name of a volume.'),
    gauge(
      'data threads',
      'writer_state',
      ['volume', 'state'],
      '1 for the state of the attachment, 0 for the other states: taking-over, serving, releasing, fenced, failed.',
    ),
    gauge('data threads', 'writer_epoch', ['volume'], 'Epoch of the volume as its writer knows it.'),
    gauge(
      'data threads',
      'writer_replica_in_sync',
      ['volume', 'replica'],
      '1 where the replica on that node holds every acknowledged write, else 0.',
    ),
    gauge(
      'data threads',
      'writer_replica_oldest_request_seconds',
      ['volume', 'replica'],
      'Age of the oldest request that the replica on that node has not answered; 0 where there is none.',
    ),
    gauge(
      'data threads',
      'writer_waits',
      ['volume'],
      'Things that I/O, or the return of a replica, waits for; `holdfast volume show` names them.',
    ),
    gauge(
      'data threads',
      'writer_confirmations_missing',
      ['volume'],
      'Replicas without a confirmation of the last 2 s that they know no newer epoch; reads wait for them.',
    ),
    gauge('data threads', 'writer_open_regions', ['volume'], 'Regions that may differ between replicas now.'),
    gauge('data threads', 'writer_reconcile_regions', ['volume'], 'Regions still to be compared after the take-over.'),
    counter('data threads', 'reconcile_copied_bytes_total', [], 'Bytes copied between replicas to reconcile regions.'),
    gauge('data threads', 'resync_regions', ['volume', 'replica'], 'Regions that the running resync has to copy.'),
    gauge('data threads', 'resync_regions_done', ['volume', 'replica'], 'Regions that the running resync has copied.'),
    counter(
      'data threads',
      'resync_copied_bytes_total',
      ['volume'],
      'Bytes sent to the targets of resyncs; its rate is the rate of the resync.',
    ),
    counter('data threads', 'resyncs_total', ['outcome'], 'Resyncs that ended: done or failed.'),
    counter(
      'data threads',
      'replica_drops_total',
      ['replica', 'reason'],
      'Replicas that a writer here dropped: not-back (connection lost), no-answer, crashed, stopping, or the code of the error that it answered with.',
    ),
    counter('data threads', 'takeovers_total', ['outcome'], 'Take-overs begun here: done, or the code of the failure.'),
    histogram(
      'data threads',
      'takeover_seconds',
      ['part'],
      'Parts of successful take-overs: record (until the record names this node), fencing, tables (of open regions), outwait (of readers of the old writer).',
      CALL_SECONDS,
    ),
  ],
};

const FENCING: MetricSection = {
  title: 'Fencing',
  rows: [
    counter(
      'data threads',
      'writers_fenced_total',
      ['by'],
      'Writers here that were fenced by a replica, the record, a newer session on this node (node), or the forced end of their attachment (revoke).',
    ),
    counter(
      'data threads',
      'fenced_requests_total',
      ['side'],
      'Requests refused since a newer epoch is known: of clients of a fenced writer here (writer), or of a fenced writer to a replica here (replica).',
    ),
    counter('data threads', 'replica_sessions_admitted_total', [], 'Sessions of writers admitted to replicas here.'),
    counter(
      'data threads',
      'replica_sessions_refused_total',
      ['reason'],
      'Sessions of writers refused by replicas here: fenced (a newer epoch is known), not-found, unavailable (another one is being admitted), or another code.',
    ),
    counter(
      'data threads',
      'replica_sessions_fenced_total',
      [],
      'Sessions that replicas here ended since one of a newer epoch was admitted.',
    ),
  ],
};

const REPLICAS: MetricSection = {
  title: 'Replicas on this node',
  rows: [
    gauge('data threads', 'replica_epoch', ['volume', 'disk'], 'Highest epoch that the replica has seen.'),
    gauge(
      'data threads',
      'replica_crash_mark',
      ['volume', 'disk'],
      '1 where the replica may have lost acknowledged writes in a crash and waits for a resync.',
    ),
    gauge('data threads', 'replica_open_regions', ['volume', 'disk'], 'Open regions in the region table.'),
    gauge('data threads', 'replica_capacity_bytes', ['volume', 'disk'], 'Capacity of the replica.'),
    gauge(
      'data threads',
      'replica_damaged_blocks',
      ['volume', 'disk'],
      'Blocks of 4 KiB that are known to be bad; the writer mends them from another replica.',
    ),
    counter('data threads', 'damaged_blocks_found_total', [], 'Blocks of replicas here that turned out bad.'),
    counter(
      'data threads',
      'mended_bytes_total',
      [],
      'Bad data of replicas that writers here mended from another one.',
    ),
    counter(
      'data threads',
      'scrubbed_bytes_total',
      [],
      'Bytes at rest that were read and compared with their checksums.',
    ),
  ],
};

const IO: MetricSection = {
  title: 'I/O',
  rows: [
    counter(
      'data threads',
      'volume_requests_total',
      ['volume', 'op'],
      'Requests of the block device and other clients.',
    ),
    counter(
      'data threads',
      'volume_bytes_total',
      ['volume', 'op'],
      'Bytes that these requests read, wrote or trimmed.',
    ),
    counter('data threads', 'volume_errors_total', ['volume', 'code'], 'Those that failed, by code.'),
    histogram(
      'data threads',
      'client_request_seconds',
      ['op'],
      'Requests of clients at their writer, until the writer has the answer.',
      IO_SECONDS,
    ),
    histogram(
      'data threads',
      'peer_request_seconds',
      ['replica', 'op'],
      'Requests of writers here to replicas on other nodes, until the answer; op holdfast is the private command for region tables and the like.',
      IO_SECONDS,
    ),
    histogram(
      'data threads',
      'replica_request_seconds',
      ['op'],
      'Requests of writers on other nodes at replicas here.',
      IO_SECONDS,
    ),
    histogram(
      'data threads',
      'disk_request_seconds',
      ['op'],
      'Reads, writes, flushes and trims of replicas here on their disks.',
      IO_SECONDS,
    ),
    counter('data threads', 'disk_bytes_total', ['op'], 'Bytes that these requests moved.'),
    histogram(
      'data threads',
      'region_open_seconds',
      [],
      'Writes that waited until their region was noted as open.',
      IO_SECONDS,
    ),
    gauge('data threads', 'nbd_connections', ['side'], 'NBD connections of clients and of peers.'),
    gauge('data threads', 'nbd_requests_in_flight', ['side'], 'Requests of these connections that are under way.'),
    counter('data threads', 'nbd_errors_total', ['side', 'code'], 'Requests of these connections that failed.'),
    gauge('data threads', 'slab_bytes', ['slab'], 'I/O memory for clients, for peers, and for copies.'),
    gauge('data threads', 'slab_used_bytes', ['slab'], 'I/O memory that is lent out.'),
    gauge('data threads', 'slab_waiting', ['slab'], 'Requests that wait for I/O memory now.'),
    counter('data threads', 'slab_waits_total', ['slab'], 'Requests that had to wait for I/O memory.'),
  ],
};

const NODE: MetricSection = {
  title: 'The node',
  rows: [
    gauge('node plugin', 'pool_disk_bytes', ['disk'], "Size of a disk's filesystem."),
    gauge('node plugin', 'pool_disk_used_bytes', ['disk'], 'Used bytes of it.'),
    gauge('node plugin', 'pool_disk_ready', ['disk'], '1 where the disk works, 0 where it has failed.'),
    gauge('node plugin', 'pool_disks_refused', [], 'Disks named in the settings that the pool refused.'),
    gauge(
      'node plugin',
      'lease_age_seconds',
      [],
      "Time since this node's lease was renewed; beyond 10 s others may take its volumes.",
    ),
    gauge('node plugin', 'data_thread_answers', ['thread'], '1 where the data thread answered this question, else 0.'),
    counter(
      'node plugin',
      'data_thread_busy_seconds_total',
      ['thread'],
      'Time that the data thread did not wait; its rate is the share of a core that it uses.',
    ),
  ],
};

const CONTROLLER: MetricSection = {
  title: 'The cluster',
  rows: [
    gauge('controller', 'nodes', ['state'], 'Nodes by the state of their lease: live, expired, unknown.'),
    gauge(
      'controller',
      'node_lease_age_seconds',
      ['node'],
      "Time that the controller has watched a node's lease stand still.",
    ),
    gauge(
      'controller',
      'volumes',
      ['health'],
      'Volumes by what records and leases tell of them: healthy, degraded, unavailable, creating, deleting.',
    ),
    gauge(
      'controller',
      'volumes_unhealed',
      [],
      'Volumes that the last round of healing could not help; `holdfast volume show` says why.',
    ),
    gauge(
      'controller',
      'replicas',
      ['state'],
      'Replicas in the records: in-sync, behind, and missing (wanted, but not placed).',
    ),
    gauge('controller', 'volumes_attached', [], 'Volumes that have a writer.'),
    gauge('controller', 'pool_bytes', [], 'Capacity of all disks.'),
    gauge('controller', 'pool_used_bytes', [], 'Used bytes of all disks.'),
    gauge('controller', 'pool_provisioned_bytes', [], 'Capacities of all replicas together.'),
  ],
};

const EC2: MetricSection = {
  title: 'EC2',
  rows: [
    counter(
      'controller',
      'aws_calls_total',
      ['action', 'outcome'],
      'Calls of EC2, each try counted: ok, throttled, denied, not-found, wrong-state, limit, no-capacity, invalid, token-mismatch, clock-skew, expired-credentials, no-credentials, unreachable, server.',
    ),
    histogram('controller', 'aws_call_seconds', ['action'], 'How long these tries took.', CALL_SECONDS),
    gauge('controller', 'aws_budget_tokens', [], 'Calls that could be made at once now.'),
    gauge(
      'controller',
      'aws_budget_calls_per_second',
      [],
      'Rate that calls are held to; halved where EC2 throttles, and raised by each call that it takes.',
    ),
    gauge('controller', 'aws_budget_waiting', [], 'Calls that wait for their turn, or for their next try.'),
  ],
};

const PROCESS: MetricSection = {
  title: 'Node plugin and controller',
  rows: [
    gauge('each process', 'build_info', ['version'], 'Always 1; tells the version.'),
    counter('each process', 'store_calls_total', ['method', 'code'], 'Calls of the cluster store: ok, or the code.'),
    histogram('each process', 'store_call_seconds', ['method'], 'How long they took.', CALL_SECONDS),
    counter(
      'each process',
      'grpc_calls_total',
      ['service', 'method', 'code'],
      'gRPC calls that were answered here, by gRPC status.',
    ),
    histogram('each process', 'grpc_call_seconds', ['service', 'method'], 'How long they took.', CALL_SECONDS),
  ],
};

export const METRIC_SECTIONS: readonly MetricSection[] = [
  ATTACHMENTS,
  FENCING,
  REPLICAS,
  IO,
  NODE,
  CONTROLLER,
  EC2,
  PROCESS,
];

/** The rows that a process serves. */
export function rowsOf(process: 'node' | 'controller'): readonly MetricRow[] {
  const others: MetricSource[] = process === 'node' ? ['controller'] : ['data threads', 'node plugin'];
  return METRIC_SECTIONS.flatMap(({ rows }) => rows).filter(({ from }) => !others.includes(from));
}
