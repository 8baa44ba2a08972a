import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.js';
import { type RunningServer, serveUnix } from '../../../src/base/unix-server.js';
import { identityClient, nodeClient } from '../../../src/cli/service-client.js';
import { addIdentityService } from '../../../src/csi/identity.js';
import { countCalls } from '../../../src/metrics/grpc-calls.js';
import { MeterBook } from '../../../src/metrics/meter-book.js';
import { rowsOf } from '../../../src/metrics/table.js';

describe('the calls of a gRPC server', () => {
  let directory: string;
  let server: RunningServer | undefined;

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'holdfast-calls-'));
  });
  afterEach(async () => {
    await server?.stop();
    await rm(directory, { recursive: true });
  });

  it('are counted by method and status, those of services that are not there not at all', async () => {
    const book = new MeterBook(rowsOf('node'));
    const path = join(directory, 'socket');
    let ready = true;
    const isReady = (): boolean => {
      if (ready) return true;
      throw new Error('a defect');
    };
    server = await serveUnix(
      path,
      (served) => addIdentityService(served, { log: silentLog(), ready: isReady }),
      silentLog(),
      [countCalls(book)],
    );
    const identity = identityClient(path);
    const node = nodeClient(path);
    try {
      expect(await identity.call('Probe', {}, 5_000)).toMatchObject({ ready: { value: true } });
      ready = false;
      await expect(identity.call('Probe', {}, 5_000)).rejects.toThrow();
      await expect(node.call('NodeGetInfo', {}, 5_000)).rejects.toThrow();
    } finally {
      identity.close();
      node.close();
    }
    const { values, histograms } = book.snapshot();
    const counts = values.map(({ labels, value }) => [labels['service'], labels['method'], labels['code'], value]);
    expect(counts).toEqual([
      ['csi.v1.Identity', 'Probe', 'OK', 1],
      ['csi.v1.Identity', 'Probe', 'UNKNOWN', 1],
    ]);
    expect(histograms).toEqual([
      expect.objectContaining({
        name: 'holdfast_grpc_call_seconds',
        labels: { service: 'csi.v1.Identity', method: 'Probe' },
      }),
    ]);
  });
});
