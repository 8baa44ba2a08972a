import { describe, expect, it } from 'vitest';
import { tellCluster, tellNode, tellThreads, type WatchedLeases } from '../../../src/metrics/figures.js';
import { MeterBook } from '../../../src/metrics/meter-book.js';
import { rowsOf } from '../../../src/metrics/table.js';
import type { Tell } from '../../../src/base/meters.js';
import type { DiskRecord, NodeRecord, VolumeRecord } from '../../../src/model/records.js';

/** What is told, by name and label values; the table refuses what has no row. */
function told(process: 'node' | 'controller', tellAll: (tell: Tell) => void): Record<string, number> {
  const book = new MeterBook(rowsOf(process));
  book.gauges(tellAll);
  return Object.fromEntries(
    book
      .snapshot()
      .values.map(({ name, labels, value }) => [
        [name.replace('holdfast_', ''), ...Object.values(labels)].join(' '),
        value,
      ]),
  );
}

function volume(id: string, change: Partial<VolumeRecord>): VolumeRecord {
  return {
    schema: 1,
    id,
    name: id,
    capacityBytes: 10,
    parameters: { replicas: 2, minInSync: 1, zones: 'spread', failover: 'auto', diskTemplate: '', mkfsOptions: [] },
    content: { kind: 'block' },
    format: 'blank',
    phase: 'ready',
    accessibleTopology: [],
    epoch: 1,
    writer: null,
    quiet: true,
    replicas: [
      { node: 'a', disk: 'disk-a', inSync: true },
      { node: 'b', disk: 'disk-b', inSync: true },
    ],
    createdAt: '',
    lastAttachedAt: '',
    ...change,
  };
}

function node(name: string): NodeRecord {
  return { schema: 1, name, nodeUid: name, topology: {}, host: name, agentPort: 1, dataPorts: [2], cordoned: false };
}

function disk(name: string, usedBytes: number): DiskRecord {
  const { capacityBytes, state, reason } = { capacityBytes: 100, state: 'ready', reason: '' } as const;
  return { schema: 1, diskId: `disk-${name}`, node: name, capacityBytes, usedBytes, state, reason };
}

describe('the figures of a node', () => {
  it('tell its disks and its lease', () => {
    const disks = [
      { diskId: 'd1', capacityBytes: 100, usedBytes: 40, state: 'ready', reason: '' },
      { diskId: 'd2', capacityBytes: 0, usedBytes: 0, state: 'failed', reason: 'gone' },
    ] as const;
    expect(told('node', (tell) => tellNode(tell, { disks, refusedDisks: 1, leaseAgeMs: 2_500 }))).toMatchObject({
      'pool_disk_bytes d1': 100,
      'pool_disk_used_bytes d1': 40,
      'pool_disk_ready d1': 1,
      'pool_disk_ready d2': 0,
      pool_disks_refused: 1,
      lease_age_seconds: 2.5,
    });
    const without = told('node', (tell) => tellNode(tell, { disks: [], refusedDisks: 0, leaseAgeMs: undefined }));
    expect(without).toEqual({ pool_disks_refused: 0 });
  });

  it('tell which data thread did not answer', () => {
    const threads = [
      { snapshot: {}, busyMs: 1_500 },
      { snapshot: undefined, busyMs: 9_000 },
    ];
    expect(told('node', (tell) => tellThreads(tell, threads))).toEqual({
      'data_thread_answers 0': 1,
      'data_thread_busy_seconds_total 0': 1.5,
      'data_thread_answers 1': 0,
      'data_thread_busy_seconds_total 1': 9,
    });
  });
});

describe('the figures of the cluster', () => {
  const leases: WatchedLeases = {
    state: (name) => (name === 'b' ? 'expired' : 'live'),
    stillMs: (name) => (name === 'b' ? 12_000 : undefined),
  };

  it('tell nodes, volumes, replicas and space', () => {
    const volumes = [
      volume('whole', {
        replicas: [{ node: 'a', disk: 'disk-a', inSync: true }],
        parameters: { ...volume('x', {}).parameters, replicas: 1 },
      }),
      volume('behind', {
        writer: { node: 'a', session: 's' },
        replicas: [
          { node: 'a', disk: 'disk-a', inSync: true },
          { node: 'b', disk: 'disk-b', inSync: false },
        ],
      }),
      volume('short', { replicas: [{ node: 'a', disk: 'disk-a', inSync: true }] }),
      volume('new', { phase: 'creating', replicas: [] }),
    ];
    const cluster = { nodes: [node('a'), node('b')], disks: [disk('a', 30), disk('b', 20)], volumes };
    expect(told('controller', (tell) => tellCluster(tell, cluster, { leases, unhealed: 3 }))).toEqual({
      'nodes live': 1,
      'nodes expired': 1,
      'nodes unknown': 0,
      'node_lease_age_seconds b': 12,
      'volumes healthy': 1,
      'volumes degraded': 2,
      'volumes unavailable': 0,
      'volumes creating': 1,
      'volumes deleting': 0,
      volumes_unhealed: 3,
      volumes_attached: 1,
      'replicas in-sync': 3,
      'replicas behind': 1,
      'replicas missing': 3,
      pool_bytes: 200,
      pool_used_bytes: 50,
      pool_provisioned_bytes: 40,
    });
  });
});
