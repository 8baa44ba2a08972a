import {
  AttachVolumeCommand,
  CreateTagsCommand,
  CreateVolumeCommand,
  DeleteVolumeCommand,
  DescribeInstancesCommand,
  DescribeInstanceTypesCommand,
  DescribeVolumesCommand,
  DescribeVolumesModificationsCommand,
  DetachVolumeCommand,
  EC2Client,
  ModifyVolumeCommand,
  type DescribeInstancesCommandInput,
  type DescribeInstanceTypesCommandInput,
  type DescribeVolumesCommandInput,
  type DescribeVolumesModificationsCommandInput,
  type Filter,
  type VolumeType,
  type _InstanceType,
} from '@aws-sdk/client-ec2';
import { HoldfastError } from '../base/errors.js';
import { holdfastVersion } from '../base/version.js';
import { CallBudget, type BudgetOptions } from './call-budget.js';
import { DescribeBatch, IDS_PER_CALL } from './describe-batch.js';
import { fromTags, toInstance, toInstanceType, toModification, toVolume } from './ec2-answers.js';
import { Ec2Calls, type SendOptions } from './ec2-calls.js';
import type {
  EbsVolume,
  Ec2,
  Instance,
  InstanceType,
  NewVolume,
  Tags,
  VolumeChange,
  VolumeModification,
} from './ec2.js';

export interface Ec2Options extends BudgetOptions {
  /** Without it: what AWS_REGION or the shared configuration of AWS tells. */
  readonly region?: string;
  /** URL of another EC2 API than the region's. */
  readonly endpoint?: string;
}

/**
 * EC2 through the AWS SDK, with the SDK's own chain of credentials. This file and those it hands the SDK's values to
 * are the only ones that know the SDK; its repeats are switched off, for they know no budget.
 *
 * Errors: `failed-precondition` where no region is told.
 */
export async function connectEc2(options: Ec2Options): Promise<Ec2> {
  const client = new EC2Client({
    ...(options.region === undefined ? {} : { region: options.region }),
    ...(options.endpoint === undefined ? {} : { endpoint: options.endpoint }),
    maxAttempts: 1,
    customUserAgent: `holdfast/${holdfastVersion()}`,
  });
  await client.config.region().catch((error: unknown) => {
    client.destroy();
    throw new HoldfastError('failed-precondition', 'no AWS region is told; set it by flag or as AWS_REGION', {
      cause: error,
    });
  });
  return new AwsEc2(client, options);
}

class AwsEc2 implements Ec2 {
  readonly #calls: Ec2Calls;
  readonly #volumes: DescribeBatch<EbsVolume>;
  readonly #modifications: DescribeBatch<VolumeModification>;
  readonly #instances: DescribeBatch<Instance>;
  readonly #types: DescribeBatch<InstanceType>;

  constructor(
    private readonly client: EC2Client,
    options: BudgetOptions,
  ) {
    this.#calls = new Ec2Calls(new CallBudget(options), options, () => client.config.credentials());
    this.#volumes = new DescribeBatch(options.clock, {
      byIds: (ids) => this.#describeVolumes(several('volume', ids), { VolumeIds: [...ids] }),
      byFilter: (ids) => this.#describeVolumes(several('volume', ids), byId('volume-id', ids)),
      idOf: ({ id }) => id,
    });
    this.#modifications = new DescribeBatch(options.clock, {
      byIds: (ids) => this.#describeModifications(several('volume', ids), { VolumeIds: [...ids] }),
      byFilter: (ids) => this.#describeModifications(several('volume', ids), byId('volume-id', ids)),
      idOf: ({ volumeId }) => volumeId,
    });
    this.#instances = new DescribeBatch(options.clock, {
      byIds: (ids) => this.#describeInstances(several('instance', ids), { InstanceIds: [...ids] }),
      byFilter: (ids) => this.#describeInstances(several('instance', ids), byId('instance-id', ids)),
      idOf: ({ id }) => id,
    });
    this.#types = new DescribeBatch(options.clock, {
      byIds: (ids) => this.#describeTypes(several('type', ids), { InstanceTypes: ids as _InstanceType[] }),
      byFilter: (ids) => this.#describeTypes(several('type', ids), byId('instance-type', ids)),
      idOf: ({ name }) => name,
    });
  }

  async createVolume(volume: NewVolume, token: string): Promise<EbsVolume> {
    const { zone, type, sizeGiB, iops, throughputMiBps, encrypted, kmsKeyId, tags } = volume;
    const command = new CreateVolumeCommand({
      ClientToken: token,
      AvailabilityZone: zone,
      VolumeType: type as VolumeType,
      Size: sizeGiB,
      Iops: iops,
      Throughput: throughputMiBps,
      Encrypted: encrypted,
      KmsKeyId: kmsKeyId,
      TagSpecifications: [{ ResourceType: 'volume', Tags: fromTags(tags) }],
    });
    const what = `a ${type} volume of ${sizeGiB} GiB in ${zone}`;
    return this.#calls.call('CreateVolume', what, async (how) => toVolume(await this.client.send(command, how)));
  }

  describeVolumes(ids: readonly string[]): Promise<ReadonlyMap<string, EbsVolume>> {
    return this.#volumes.describe(ids);
  }

  async findVolumes(tags: Tags): Promise<EbsVolume[]> {
    const filters = Object.entries(tags).map(([key, value]) => ({ Name: `tag:${key}`, Values: [literal(value)] }));
    if (filters.length === 0) throw new HoldfastError('invalid-argument', 'volumes are found by at least one tag');
    return this.#describeVolumes('volumes by tag', { Filters: filters, MaxResults: IDS_PER_CALL });
  }

  async attachVolume(volumeId: string, instanceId: string, device: string): Promise<void> {
    const command = new AttachVolumeCommand({ VolumeId: volumeId, InstanceId: instanceId, Device: device });
    const what = `volume ${volumeId} to instance ${instanceId} as ${device}`;
    await this.#calls.call('AttachVolume', what, (how) => this.client.send(command, how));
  }

  async detachVolume(volumeId: string, instanceId: string): Promise<void> {
    const command = new DetachVolumeCommand({ VolumeId: volumeId, InstanceId: instanceId });
    const what = `volume ${volumeId} from instance ${instanceId}`;
    await this.#calls.call('DetachVolume', what, (how) => this.client.send(command, how));
  }

  async deleteVolume(volumeId: string): Promise<void> {
    const command = new DeleteVolumeCommand({ VolumeId: volumeId });
    await this.#calls.call('DeleteVolume', `volume ${volumeId}`, (how) => this.client.send(command, how));
  }

  modifyVolume(volumeId: string, change: VolumeChange): Promise<VolumeModification> {
    const command = new ModifyVolumeCommand({
      VolumeId: volumeId,
      Size: change.sizeGiB,
      VolumeType: change.type as VolumeType | undefined,
      Iops: change.iops,
      Throughput: change.throughputMiBps,
    });
    return this.#calls.call('ModifyVolume', `volume ${volumeId}`, async (how) =>
      toModification((await this.client.send(command, how)).VolumeModification),
    );
  }

  describeModifications(volumeIds: readonly string[]): Promise<ReadonlyMap<string, VolumeModification>> {
    return this.#modifications.describe(volumeIds);
  }

  describeInstances(ids: readonly string[]): Promise<ReadonlyMap<string, Instance>> {
    return this.#instances.describe(ids);
  }

  describeInstanceTypes(types: readonly string[]): Promise<ReadonlyMap<string, InstanceType>> {
    return this.#types.describe(types);
  }

  async createTags(volumeIds: readonly string[], tags: Tags): Promise<void> {
    const command = new CreateTagsCommand({ Resources: [...volumeIds], Tags: fromTags(tags) });
    await this.#calls.call('CreateTags', several('volume', volumeIds), (how) => this.client.send(command, how));
  }

  close(): void {
    this.#calls.close();
    this.client.destroy();
  }

  #describeVolumes(what: string, asked: DescribeVolumesCommandInput): Promise<EbsVolume[]> {
    return this.#pages('DescribeVolumes', what, async (page, how) => {
      const { Volumes = [], NextToken } = await this.client.send(
        new DescribeVolumesCommand({ ...asked, ...page }),
        how,
      );
      return { items: Volumes.map(toVolume), next: NextToken };
    });
  }

  #describeModifications(what: string, asked: DescribeVolumesModificationsCommandInput): Promise<VolumeModification[]> {
    return this.#pages('DescribeVolumesModifications', what, async (page, how) => {
      const command = new DescribeVolumesModificationsCommand({ ...asked, ...page });
      const { VolumesModifications = [], NextToken } = await this.client.send(command, how);
      return { items: VolumesModifications.map(toModification), next: NextToken };
    });
  }

  #describeInstances(what: string, asked: DescribeInstancesCommandInput): Promise<Instance[]> {
    return this.#pages('DescribeInstances', what, async (page, how) => {
      const command = new DescribeInstancesCommand({ ...asked, ...page });
      const { Reservations = [], NextToken } = await this.client.send(command, how);
      return { items: Reservations.flatMap(({ Instances = [] }) => Instances.map(toInstance)), next: NextToken };
    });
  }

  #describeTypes(what: string, asked: DescribeInstanceTypesCommandInput): Promise<InstanceType[]> {
    return this.#pages('DescribeInstanceTypes', what, async (page, how) => {
      const command = new DescribeInstanceTypesCommand({ ...asked, ...page });
      const { InstanceTypes = [], NextToken } = await this.client.send(command, how);
      return { items: InstanceTypes.map(toInstanceType), next: NextToken };
    });
  }

  /** All pages of an answer; each is a call of its own. */
  async #pages<T>(
    action: Parameters<Ec2Calls['call']>[0],
    what: string,
    ask: (page: Page, how: SendOptions) => Promise<{ items: T[]; next: string | undefined }>,
  ): Promise<T[]> {
    const all: T[] = [];
    let page: Page = {};
    for (;;) {
      const asked = page;
      const { items, next } = await this.#calls.call(action, what, (how) => ask(asked, how));
      all.push(...items);
      if (next === undefined || next === '') return all;
      page = { NextToken: next };
    }
  }
}

type Page = { readonly NextToken?: string };

function byId(filter: string, ids: readonly string[]): { Filters: Filter[] } {
  return { Filters: [{ Name: filter, Values: [...ids] }] };
}

/** A value that a filter takes as it is: there `*` and `?` stand for other characters. */
function literal(value: string): string {
  return value.replace(/[*?\\]/g, '\\$&');
}

/** e.g. `volume vol-1`, `volume vol-1 and 29 more`. */
function several(noun: string, ids: readonly string[]): string {
  const [first = 'none'] = ids;
  return `${noun} ${first}${ids.length > 1 ? ` and ${ids.length - 1} more` : ''}`;
}
