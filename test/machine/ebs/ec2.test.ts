import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { present } from '../../../src/base/assert.js';
import type { Labels } from '../../../src/base/meters.js';
import { connectEc2, type Ec2Options } from '../../../src/ebs/aws-ec2.js';
import { BUDGET } from '../../../src/ebs/call-budget.js';
import { CLUSTER_TAG } from '../../../src/ebs/calls.js';
import type { EbsVolume, Ec2, NewVolume } from '../../../src/ebs/ec2.js';
import type { Clock } from '../../../src/io/io.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { MeterBook } from '../../../src/metrics/meter-book.js';
import { rowsOf } from '../../../src/metrics/table.js';
import { Ec2Proxy, THROTTLE } from '../../support/ec2-proxy.js';
import { Moto } from '../../support/moto.js';

const REGION = 'us-east-1';
const ZONE = 'us-east-1a';
const DEVICE = '/dev/xvdba';
const MINUTE_MS = 60_000;

/** Nothing of the machine's own configuration, and no question to its metadata service. */
const ENVIRONMENT = {
  AWS_ACCESS_KEY_ID: 'test',
  AWS_SECRET_ACCESS_KEY: 'test',
  AWS_CONFIG_FILE: '/dev/null',
  AWS_SHARED_CREDENTIALS_FILE: '/dev/null',
  AWS_EC2_METADATA_DISABLED: 'true',
};

describe('the client of EC2', () => {
  const { clock, random } = createNodeIo();
  const before = { ...process.env };
  const clients: Ec2[] = [];
  let moto: Moto;
  let proxy: Ec2Proxy;
  let ec2: Ec2;
  let book: MeterBook;
  let tokens = 0;

  async function connect(options: Partial<Ec2Options> = {}): Promise<Ec2> {
    book = new MeterBook(rowsOf('controller'));
    const settings = { ...BUDGET, firstPerSecond: 50, burst: 50, firstPauseMs: 50 };
    const client = await connectEc2({
      region: REGION,
      endpoint: proxy.url,
      clock,
      random,
      meters: book,
      settings,
      ...options,
    });
    clients.push(client);
    return client;
  }

  /** Volumes that share nothing with those of other tests but their EC2. */
  function newVolume(name: string): NewVolume {
    const tags = { [CLUSTER_TAG]: 'test', name };
    return { zone: ZONE, type: 'gp3', sizeGiB: 8, iops: 3_000, throughputMiBps: 125, encrypted: false, tags };
  }

  function create(name: string): Promise<EbsVolume> {
    return ec2.createVolume(newVolume(name), `token-${++tokens}`);
  }

  async function look(id: string): Promise<EbsVolume | undefined> {
    return (await ec2.describeVolumes([id])).get(id);
  }

  beforeAll(async () => {
    for (const name of Object.keys(before)) if (name.startsWith('AWS_')) Reflect.deleteProperty(process.env, name);
    Object.assign(process.env, ENVIRONMENT);
    moto = await Moto.start();
    proxy = await Ec2Proxy.start(moto.url);
    ec2 = await connect();
  });
  afterEach(async () => {
    proxy.clear();
    ec2.close();
    ec2 = await connect();
  });
  afterAll(async () => {
    for (const client of clients) client.close();
    await proxy.end();
    await moto.end();
    for (const name of Object.keys(ENVIRONMENT)) Reflect.deleteProperty(process.env, name);
    Object.assign(process.env, before);
  });

  describe('in good times', () => {
    it('makes a volume as specified, and finds it by its tags', async () => {
      const made = await create('made');
      const { iops, throughputMiBps, sizeGiB, encrypted, tags } = newVolume('made');
      expect(made).toMatchObject({ zone: ZONE, type: 'gp3', sizeGiB, iops, throughputMiBps, encrypted, tags });
      expect(await ec2.findVolumes({ name: 'made', [CLUSTER_TAG]: 'test' })).toEqual([await look(made.id)]);
      expect(await ec2.findVolumes({ name: 'made', [CLUSTER_TAG]: 'other' })).toEqual([]);
      expect(await ec2.findVolumes({ name: 'ma*' })).toEqual([]);
      await expect(ec2.findVolumes({})).rejects.toMatchObject({ code: 'invalid-argument' });
    });

    it('attaches a volume, shows it on both sides, detaches and deletes it', async () => {
      const instanceId = await moto.runInstance({ type: 'm5.large', zone: ZONE });
      const { id } = await create('moved');
      await ec2.attachVolume(id, instanceId, DEVICE);
      const attachment = { instanceId, device: DEVICE, state: 'attached', deleteOnTermination: false };
      expect(await look(id)).toMatchObject({ state: 'in-use', attachments: [attachment] });
      const instance = (await ec2.describeInstances([instanceId])).get(instanceId);
      expect(instance).toMatchObject({ state: 'running', type: 'm5.large', zone: ZONE, networkInterfaces: 1 });
      expect(instance?.devices.find(({ volumeId }) => volumeId === id)?.device).toBe(DEVICE);
      await expect(ec2.attachVolume(id, instanceId, '/dev/xvdbb')).rejects.toMatchObject({ kind: 'wrong-state' });
      await expect(ec2.deleteVolume(id)).rejects.toMatchObject({ kind: 'wrong-state', outcome: 'failed' });
      await ec2.detachVolume(id, instanceId);
      await ec2.deleteVolume(id);
      expect(await look(id)).toBeUndefined();
      await expect(ec2.deleteVolume(id)).rejects.toMatchObject({ kind: 'not-found', code: 'not-found' });
    });

    it('grows a volume, and tells how far it has come', async () => {
      const { id } = await create('grown');
      expect(await ec2.describeModifications([id])).toEqual(new Map());
      expect(await ec2.modifyVolume(id, { sizeGiB: 16 })).toMatchObject({ volumeId: id, targetSizeGiB: 16 });
      expect((await ec2.describeModifications([id])).get(id)).toMatchObject({ state: 'completed', targetSizeGiB: 16 });
      expect(await look(id)).toMatchObject({ sizeGiB: 16 });
    });

    it('sets tags, and leaves the others', async () => {
      const { id } = await create('tagged');
      await ec2.createTags([id], { disk: 'disk-1' });
      expect((await look(id))?.tags).toEqual({ ...newVolume('tagged').tags, disk: 'disk-1' });
    });

    it('describes the instance types that there are', async () => {
      const types = await ec2.describeInstanceTypes(['m5.large', 'm5d.large', 'x9.none']);
      expect([...types.keys()].sort()).toEqual(['m5.large', 'm5d.large']);
      expect(types.get('m5d.large')).toMatchObject({ instanceStoreDisks: 1 });
    });

    it('makes one call of 30 describes in one turn, an unknown id among them', async () => {
      const made = await Promise.all(Array.from({ length: 30 }, () => create('many')));
      proxy.clear();
      const found = await Promise.all(made.map(({ id }) => look(id)));
      expect(found.map((volume) => volume?.id)).toEqual(made.map(({ id }) => id));
      expect(proxy.asked).toEqual(['DescribeVolumes']);
      const unknown = 'vol-00000000000000000';
      const [missing, there] = await Promise.all([look(unknown), look(present(made[0], 'one was made').id)]);
      expect([missing, there?.id]).toEqual([undefined, made[0]?.id]);
      expect(proxy.count('DescribeVolumes')).toBe(3);
    });
  });

  describe('under faults', () => {
    it.each(['lose-answer', 'break-answer'] as const)('makes one volume for a token (%s)', async (kind) => {
      proxy.order({ kind }, { action: 'CreateVolume' });
      const { id } = await ec2.createVolume(newVolume(kind), `token-${kind}`);
      expect(proxy.count('CreateVolume')).toBe(2);
      expect((await ec2.createVolume(newVolume(kind), `token-${kind}`)).id).toBe(id);
      expect((await ec2.findVolumes({ name: kind })).map((volume) => volume.id)).toEqual([id]);
      const other = ec2.createVolume({ ...newVolume(kind), sizeGiB: 9 }, `token-${kind}`);
      await expect(other).rejects.toMatchObject({ kind: 'token-mismatch', code: 'already-exists' });
    });

    it('leaves it to the caller to look where the answer to an attach is lost', async () => {
      const instanceId = await moto.runInstance({ type: 'm5.large', zone: ZONE });
      const { id } = await create('looked-for');
      proxy.order({ kind: 'lose-answer' }, { action: 'AttachVolume' });
      const attached = ec2.attachVolume(id, instanceId, DEVICE);
      await expect(attached).rejects.toMatchObject({ kind: 'unreachable', outcome: 'unknown' });
      expect(proxy.count('AttachVolume')).toBe(1);
      expect((await look(id))?.attachments[0]?.instanceId).toBe(instanceId);
    });

    it('backs off where it is throttled, and recovers', async () => {
      const { id } = await create('throttled');
      proxy.order(THROTTLE, { action: 'DeleteVolume', times: 3 });
      await ec2.deleteVolume(id);
      expect(proxy.count('DeleteVolume')).toBe(4);
      expect(figures()).toMatchObject({ 'calls_total DeleteVolume throttled': 3, 'calls_total DeleteVolume ok': 1 });
      expect(figures()['budget_calls_per_second']).toBeLessThan(10);
    });

    it('finds the rate of an account that takes 10 calls a second', async () => {
      proxy.callsPerSecond = 10;
      ec2 = await connect({ settings: { ...BUDGET, tries: 12, firstPauseMs: 200 } });
      await Promise.all(Array.from({ length: 40 }, () => create('slow')));
      expect(await ec2.findVolumes({ name: 'slow' })).toHaveLength(40);
      expect(proxy.count('CreateVolume')).toBeLessThan(80);
    });

    it('says after a bounded number of tries that it is throttled', async () => {
      proxy.callsPerSecond = 0;
      ec2 = await connect({ settings: { ...BUDGET, tries: 3, firstPauseMs: 50 } });
      await expect(create('never')).rejects.toMatchObject({
        kind: 'throttled',
        outcome: 'failed',
        code: 'unavailable',
      });
      expect(proxy.count('CreateVolume')).toBe(3);
    });

    it('shows old answers as EC2 does', async () => {
      const { id } = await create('stale');
      const instanceId = await moto.runInstance({ type: 'm5.large', zone: ZONE });
      expect((await look(id))?.state).toBe('available');
      await ec2.attachVolume(id, instanceId, DEVICE);
      proxy.order({ kind: 'stale' }, { action: 'DescribeVolumes' });
      expect((await look(id))?.state).toBe('available');
      expect((await look(id))?.state).toBe('in-use');
    });

    it('gives up a call that has no answer in its time', async () => {
      const { id } = await create('delayed');
      ec2 = await connect({ clock: times(clock, 100), settings: { ...BUDGET, tries: 2 } });
      proxy.order({ kind: 'delay', delayMs: 2_000 }, { times: 4 });
      await expect(look(id)).rejects.toMatchObject({
        kind: 'unreachable',
        message: `EC2 DescribeVolumes of volume ${id}: no answer within 15 s`,
      });
      await expect(ec2.deleteVolume(id)).rejects.toMatchObject({ kind: 'unreachable', outcome: 'unknown' });
      expect(proxy.asked.slice(-3)).toEqual(['DescribeVolumes', 'DescribeVolumes', 'DeleteVolume']);
    });

    it('ends what is under way when it is closed', async () => {
      proxy.order({ kind: 'delay', delayMs: 60_000 });
      const made = create('closed');
      const asked = expect(made).rejects.toMatchObject({ code: 'cancelled' });
      await expect.poll(() => proxy.asked).toEqual(['CreateVolume']);
      ec2.close();
      await asked;
    });
  });

  describe('when it is refused', () => {
    it('names the IAM action that is missing', async () => {
      proxy.order({ kind: 'refuse', status: 403, code: 'UnauthorizedOperation' });
      await expect(ec2.deleteVolume('vol-1')).rejects.toMatchObject({
        kind: 'denied',
        message: expect.stringMatching(/DeleteVolume of volume vol-1: .* needs ec2:DeleteVolume/) as string,
      });
      expect(proxy.count('DeleteVolume')).toBe(1);
    });

    it.each([
      [-10 * MINUTE_MS, 'ahead of'],
      [10 * MINUTE_MS, 'behind'],
    ])('names a clock that is off (EC2 is ahead by %i ms)', async (clockAheadMs, words) => {
      proxy.order({ kind: 'refuse', status: 400, code: 'RequestExpired', clockAheadMs }, { times: 2 });
      await expect(create('skewed')).rejects.toMatchObject({
        kind: 'clock-skew',
        message: expect.stringMatching(
          new RegExp(`clock is (10 min|9 min 59 s) ${words} EC2's; set the clock`),
        ) as string,
      });
    });

    it('goes on with the time that EC2 told', async () => {
      const clockAheadMs = 10 * MINUTE_MS;
      proxy.order({ kind: 'refuse', status: 400, code: 'RequestExpired', clockAheadMs });
      await create('corrected');
      expect(proxy.asked).toEqual(['CreateVolume', 'CreateVolume']);
    });

    it('names expired credentials where the clocks agree', async () => {
      proxy.order({ kind: 'refuse', status: 400, code: 'RequestExpired' }, { times: 2 });
      await expect(create('expired')).rejects.toMatchObject({ kind: 'expired-credentials', outcome: 'failed' });
    });

    it('tells an EC2 that is not there from one that does not answer', async () => {
      ec2 = await connect({ endpoint: 'http://127.0.0.1:9', settings: { ...BUDGET, tries: 1 } });
      await expect(ec2.deleteVolume('vol-1')).rejects.toMatchObject({ kind: 'unreachable', outcome: 'failed' });
    });

    it('says that there are no credentials, or no region', async () => {
      Reflect.deleteProperty(process.env, 'AWS_ACCESS_KEY_ID');
      try {
        ec2 = await connect();
        await expect(create('none')).rejects.toMatchObject({ kind: 'no-credentials', outcome: 'failed' });
        const { endpoint, ...noRegion } = { endpoint: proxy.url, clock, random, meters: book };
        await expect(connectEc2({ endpoint, ...noRegion })).rejects.toMatchObject({ code: 'failed-precondition' });
      } finally {
        Object.assign(process.env, ENVIRONMENT);
      }
      expect(proxy.asked).toEqual([]);
    });
  });

  /** What was counted, by name and label values. */
  function figures(): Record<string, number> {
    const { values } = book.snapshot();
    const keyOf = (name: string, labels: Labels) =>
      [name.replace('holdfast_aws_', ''), ...Object.values(labels)].join(' ');
    return Object.fromEntries(values.map(({ name, labels, value }) => [keyOf(name, labels), value]));
  }
});

/** The same clock, so many times faster. */
function times({ now, timer, sleep }: Clock, factor: number): Clock {
  return {
    now: () => now() * factor,
    timer: (delayMs, fire) => timer(delayMs / factor, fire),
    sleep: (delayMs) => sleep(delayMs / factor),
  };
}
