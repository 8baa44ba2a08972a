import type * as Sdk from '@aws-sdk/client-ec2';
import { HoldfastError } from '../base/errors.js';
import type {
  AttachmentState,
  EbsVolume,
  Instance,
  InstanceState,
  InstanceType,
  Tags,
  VolumeModification,
  VolumeState,
} from './ec2.js';

/** EC2's answers in the words of the contract. Errors: `corrupt` where an answer lacks what it must have. */

const VOLUME_STATES: readonly VolumeState[] = ['creating', 'available', 'in-use', 'deleting', 'deleted', 'error'];
const ATTACHMENT_STATES: readonly AttachmentState[] = ['attaching', 'attached', 'detaching', 'detached', 'busy'];
const MODIFICATION_STATES: readonly VolumeModification['state'][] = ['modifying', 'optimizing', 'completed', 'failed'];
const INSTANCE_STATES: readonly InstanceState[] = [
  'pending',
  'running',
  'shutting-down',
  'terminated',
  'stopping',
  'stopped',
];

export function toVolume(volume: Sdk.Volume | Sdk.CreateVolumeCommandOutput): EbsVolume {
  return {
    id: need(volume.VolumeId, 'VolumeId'),
    zone: need(volume.AvailabilityZone, 'AvailabilityZone'),
    type: need(volume.VolumeType, 'VolumeType'),
    sizeGiB: need(volume.Size, 'Size'),
    ...some('iops', volume.Iops),
    ...some('throughputMiBps', volume.Throughput),
    encrypted: volume.Encrypted ?? false,
    ...some('kmsKeyId', volume.KmsKeyId),
    // EC2 tells of no snapshot by an empty text.
    ...some('snapshotId', volume.SnapshotId || undefined),
    state: oneOf(VOLUME_STATES, volume.State),
    attachments: (volume.Attachments ?? []).map((attachment) => ({
      instanceId: attachment.InstanceId ?? '',
      device: attachment.Device ?? '',
      state: oneOf(ATTACHMENT_STATES, attachment.State),
      deleteOnTermination: attachment.DeleteOnTermination ?? false,
    })),
    tags: toTags(volume.Tags),
  };
}

export function toModification(modification: Sdk.VolumeModification | undefined): VolumeModification {
  return {
    volumeId: need(modification?.VolumeId, 'VolumeId'),
    state: oneOf(MODIFICATION_STATES, modification?.ModificationState),
    progressPercent: modification?.Progress ?? 0,
    ...some('targetSizeGiB', modification?.TargetSize),
    ...some('statusMessage', modification?.StatusMessage),
  };
}

export function toInstance(instance: Sdk.Instance): Instance {
  return {
    id: need(instance.InstanceId, 'InstanceId'),
    state: oneOf(INSTANCE_STATES, instance.State?.Name),
    type: need(instance.InstanceType, 'InstanceType'),
    zone: instance.Placement?.AvailabilityZone ?? '',
    devices: (instance.BlockDeviceMappings ?? []).map(({ DeviceName, Ebs }) => ({
      device: DeviceName ?? '',
      volumeId: Ebs?.VolumeId ?? '',
      state: oneOf(ATTACHMENT_STATES, Ebs?.Status),
      deleteOnTermination: Ebs?.DeleteOnTermination ?? false,
    })),
    networkInterfaces: instance.NetworkInterfaces?.length ?? 0,
  };
}

export function toInstanceType(type: Sdk.InstanceTypeInfo): InstanceType {
  const limit = type.EbsInfo?.AttachmentLimitType;
  return {
    name: need(type.InstanceType, 'InstanceType'),
    ...some('maximumAttachments', type.EbsInfo?.MaximumEbsAttachments),
    ...(limit === 'shared' || limit === 'dedicated' ? { attachmentLimit: limit } : {}),
    instanceStoreDisks: (type.InstanceStorageInfo?.Disks ?? []).reduce((sum, { Count }) => sum + (Count ?? 0), 0),
  };
}

export function fromTags(tags: Tags): Sdk.Tag[] {
  return Object.entries(tags).map(([Key, Value]) => ({ Key, Value }));
}

function toTags(tags: readonly Sdk.Tag[] | undefined): Tags {
  return Object.fromEntries((tags ?? []).map(({ Key, Value }) => [Key ?? '', Value ?? '']));
}

function need<T>(value: T | undefined, field: string): T {
  if (value === undefined) throw new HoldfastError('corrupt', `an answer of EC2 lacks ${field}`);
  return value;
}

function some<K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, V>);
}

function oneOf<S extends string>(known: readonly S[], state: string | undefined): S | 'unknown' {
  return known.find((each) => each === state) ?? 'unknown';
}
