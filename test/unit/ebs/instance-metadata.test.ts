import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InstanceMetadata } from '../../../src/ebs/instance-metadata.js';
import { MetadataService } from '../../support/metadata-service.js';

const DOCUMENT = {
  instanceId: 'i-0123456789abcdef0',
  instanceType: 'm6i.large',
  region: 'eu-west-1',
  availabilityZone: 'eu-west-1a',
  accountId: '123456789012',
};
const IDENTITY = {
  instanceId: 'i-0123456789abcdef0',
  instanceType: 'm6i.large',
  region: 'eu-west-1',
  zone: 'eu-west-1a',
};

let service: MetadataService;
let metadata: InstanceMetadata;

beforeEach(async () => {
  service = await MetadataService.start();
  service.identity = DOCUMENT;
  metadata = new InstanceMetadata(service.url);
});

afterEach(() => service.stop());

describe('an instance', () => {
  it('learns who it is, with one token for all questions', async () => {
    expect(await metadata.identity()).toEqual(IDENTITY);
    expect(await metadata.identity()).toEqual(IDENTITY);
    expect(service.tokensGiven).toBe(1);
  });

  it('asks for a new token where the old one has run out', async () => {
    await metadata.identity();
    service.forgetToken();
    expect(await metadata.identity()).toEqual(IDENTITY);
    expect(service.tokensGiven).toBe(2);
  });

  it('is told of nothing as a rule', async () => {
    expect(await metadata.notices()).toEqual({});
  });

  it('is told of its interruption, and of the advice to leave', async () => {
    service.rebalance = { noticeTime: '2026-01-02T03:00:00Z' };
    expect(await metadata.notices()).toEqual({ rebalance: { at: '2026-01-02T03:00:00Z' } });
    service.interruption = { action: 'terminate', time: '2026-01-02T03:04:05Z' };
    expect(await metadata.notices()).toEqual({
      interruption: { action: 'terminate', at: '2026-01-02T03:04:05Z' },
      rebalance: { at: '2026-01-02T03:00:00Z' },
    });
  });
});

describe('B11: a metadata service that is not ready', () => {
  it('is unavailable while it is silent, and the message names the hop limit', async () => {
    service.silent = true;
    await expect(metadata.identity()).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('hop limit') as string,
    });
    service.silent = false;
    expect(await metadata.identity()).toEqual(IDENTITY);
  });

  it('is unavailable where nobody listens, and the message says so', async () => {
    await service.stop();
    await expect(metadata.identity()).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('ECONNREFUSED') as string,
    });
  });

  it('is unavailable while it has no document, or fails', async () => {
    service.documents.clear();
    await expect(metadata.identity()).rejects.toMatchObject({ code: 'unavailable' });
    service.tokenStatus = 500;
    service.forgetToken();
    await expect(metadata.identity()).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('is said to be switched off where it refuses tokens', async () => {
    service.tokenStatus = 403;
    await expect(metadata.identity()).rejects.toMatchObject({ code: 'failed-precondition' });
  });

  it.each([
    ['no JSON', '<html>'],
    ['a list', '[]'],
    ['no instance id', JSON.stringify({ ...DOCUMENT, instanceId: undefined })],
    ['an empty zone', JSON.stringify({ ...DOCUMENT, availabilityZone: '' })],
    ['a number for a region', JSON.stringify({ ...DOCUMENT, region: 1 })],
    ['a type of two lines', JSON.stringify({ ...DOCUMENT, instanceType: 'a\nb' })],
  ])('whose document is %s is corrupt', async (_, document) => {
    service.documents.set('/latest/dynamic/instance-identity/document', document);
    await expect(metadata.identity()).rejects.toMatchObject({ code: 'corrupt' });
  });
});
