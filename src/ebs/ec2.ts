/**
 * What Holdfast asks of EC2, in its own words. aws-ec2.ts carries it out.
 *
 * - Every failure is an Ec2Error (ec2-errors.ts). Its `outcome` tells whether the call failed for certain, or whether
 *   nobody knows: then the caller looks (describe) before it does anything that would be wrong in one of the two cases.
 * - What is described may be out of date, and a later answer older than an earlier one: EC2 is eventually consistent.
 *   A volume just made may be missing, one just detached may still be shown as attached.
 * - Throttled calls and lost connections are repeated within, on a budget shared by all calls (call-budget.ts); a call
 *   may thus take minutes where EC2 is throttling.
 */
export interface Ec2 {
  /**
   * Asks for a volume. The same token with the same specification gives the same volume, however often it is asked;
   * with another one it is refused (`token-mismatch`). Tokens have up to 64 ASCII characters.
   *
   * The answer comes before EC2 has made the volume or has used the key: the volume may still vanish.
   */
  createVolume(volume: NewVolume, token: string): Promise<EbsVolume>;
  /** The volumes of these ids, by id; those that EC2 doesn't know are left out. */
  describeVolumes(ids: readonly string[]): Promise<ReadonlyMap<string, EbsVolume>>;
  /** All volumes that carry all these tags, at least one. */
  findVolumes(tags: Tags): Promise<EbsVolume[]>;
  /** Asks for an attachment; that EC2 shows it as attached does not yet mean that the instance sees the device. */
  attachVolume(volumeId: string, instanceId: string, device: string): Promise<void>;
  /** Asks the instance to let go of the volume; done once `describeVolumes` shows it as available. */
  detachVolume(volumeId: string, instanceId: string): Promise<void>;
  deleteVolume(volumeId: string): Promise<void>;
  /** Asks for another size, type or speed; `describeModifications` tells how far it has come. */
  modifyVolume(volumeId: string, change: VolumeChange): Promise<VolumeModification>;
  /** The latest modification of each volume, by volume id; volumes that were not modified of late are left out. */
  describeModifications(volumeIds: readonly string[]): Promise<ReadonlyMap<string, VolumeModification>>;
  /** The instances of these ids, by id; those that EC2 doesn't know are left out. */
  describeInstances(ids: readonly string[]): Promise<ReadonlyMap<string, Instance>>;
  /** The instance types of these names, by name; those that the region doesn't have are left out. */
  describeInstanceTypes(types: readonly string[]): Promise<ReadonlyMap<string, InstanceType>>;
  /** Sets tags of volumes; other tags of theirs stay. */
  createTags(volumeIds: readonly string[], tags: Tags): Promise<void>;
  /** Ends what is under way, whose outcome is then unknown, and what waits: it fails with `cancelled`. */
  close(): void;
}

export type Tags = Readonly<Record<string, string>>;

export interface NewVolume {
  readonly zone: string;
  /** As EC2 names it, e.g. `gp3`. */
  readonly type: string;
  readonly sizeGiB: number;
  readonly iops?: number;
  readonly throughputMiBps?: number;
  readonly encrypted: boolean;
  /** Without it an encrypted volume gets the account's default key. */
  readonly kmsKeyId?: string;
  /** Set together with the creation: no volume is ever there without them. */
  readonly tags: Tags;
}

/** A volume as EC2 shows it: as it was made, or as it has been modified since. */
export interface EbsVolume extends NewVolume {
  readonly id: string;
  /** The snapshot that it was made from; absent: it began empty. */
  readonly snapshotId?: string;
  readonly state: VolumeState;
  readonly attachments: readonly VolumeAttachment[];
}

/** `unknown`: a state that this version has no word for. */
export type VolumeState = 'creating' | 'available' | 'in-use' | 'deleting' | 'deleted' | 'error' | 'unknown';

export interface VolumeAttachment {
  readonly instanceId: string;
  /** The name that was asked for, e.g. `/dev/xvdba`; the instance shows another one. */
  readonly device: string;
  readonly state: AttachmentState;
  /** Whether EC2 deletes the volume together with the instance. */
  readonly deleteOnTermination: boolean;
}

/** `busy`: the instance doesn't let go of it. */
export type AttachmentState = 'attaching' | 'attached' | 'detaching' | 'detached' | 'busy' | 'unknown';

/** At least one of them. */
export interface VolumeChange {
  readonly sizeGiB?: number;
  readonly type?: string;
  readonly iops?: number;
  readonly throughputMiBps?: number;
}

export interface VolumeModification {
  readonly volumeId: string;
  /** From `optimizing` on the new size is there. */
  readonly state: 'modifying' | 'optimizing' | 'completed' | 'failed' | 'unknown';
  readonly progressPercent: number;
  readonly targetSizeGiB?: number;
  /** Why it failed, in EC2's words. */
  readonly statusMessage?: string;
}

export interface Instance {
  readonly id: string;
  readonly state: InstanceState;
  readonly type: string;
  readonly zone: string;
  /** EBS volumes attached to it, the root volume and others' volumes among them. */
  readonly devices: readonly InstanceDevice[];
  readonly networkInterfaces: number;
}

export type InstanceState = 'pending' | 'running' | 'shutting-down' | 'terminated' | 'stopping' | 'stopped' | 'unknown';

export interface InstanceDevice {
  readonly device: string;
  readonly volumeId: string;
  readonly state: AttachmentState;
  readonly deleteOnTermination: boolean;
}

export interface InstanceType {
  readonly name: string;
  /** Absent where EC2 doesn't tell. */
  readonly maximumAttachments?: number;
  /** `shared`: network interfaces and instance-store disks take from the same number. Absent where EC2 doesn't tell. */
  readonly attachmentLimit?: 'shared' | 'dedicated';
  /** Disks of the instance itself. */
  readonly instanceStoreDisks: number;
}
