import { createHash, randomUUID } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { DiskId } from '../model/ids.js';
import { UNFINISHED_SUFFIX, writeDurably } from './durable-file.js';

/**
 * Who a disk is.
 *
 * Its filesystem's UUID is made with it, and the disk id is taken from the UUID; `holdfast.json` repeats the id and
 * names the cluster. So a disk is known before it is mounted, a twin (a copy of a whole disk) is recognised without
 * mounting it, and a copy that was given a new UUID to make it mountable contradicts its own file.
 *
 * The label names the cluster too, as far as 12 characters can: a disk of another cluster is refused without a mount,
 * which would write to its log, and an unfinished disk (made, but without its file yet) is known to be this cluster's.
 */
export const IDENTITY_FILE = 'holdfast.json';

const FORMAT_VERSION = 1;

export interface DiskIdentity {
  readonly formatVersion: number;
  readonly diskId: DiskId;
  readonly clusterId: string;
  /** Where the disk is an EBS volume: which. */
  readonly ebsVolumeId?: string;
}

/** Of a new filesystem; `diskIdOf` tells the disk's id. */
export function newUuid(): string {
  return randomUUID();
}

export function diskIdOf(uuid: string): DiskId {
  return `disk-${uuid.replaceAll('-', '').slice(-16).toLowerCase()}`;
}

/** The label of all filesystems of a cluster: `hf` and 10 hex digits. */
export function labelOf(clusterId: string): string {
  return `hf${createHash('sha256').update(clusterId).digest('hex').slice(0, 10)}`;
}

/** A label that Holdfast gives, this cluster's or another's. */
export function isHoldfastLabel(label: string): boolean {
  return /^hf[0-9a-f]{10}$/.test(label);
}

/**
 * The identity of a mounted disk. undefined: the filesystem is empty, so its making was interrupted.
 * `failed-precondition`: the disk is not this cluster's, or was made by a newer Holdfast, or is a copy of another one.
 * `corrupt`: its file is unreadable. `io-error`.
 */
export async function readIdentity(
  directory: string,
  expected: { diskId: DiskId; clusterId: string; ebsVolumeId: string | undefined },
): Promise<DiskIdentity | undefined> {
  const path = join(directory, IDENTITY_FILE);
  const names = await readdir(directory).catch((error: unknown) => {
    throw new HoldfastError('io-error', `${directory} can't be read: ${messageOf(error)}`, { cause: error });
  });
  if (!names.includes(IDENTITY_FILE)) {
    const others = names.filter((name) => name !== IDENTITY_FILE + UNFINISHED_SUFFIX);
    if (others.length === 0) return undefined;
    throw new HoldfastError('corrupt', `the disk has no ${IDENTITY_FILE}, but holds ${others.slice(0, 5).join(', ')}`);
  }
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new HoldfastError('io-error', `${path} can't be read: ${messageOf(error)}`, { cause: error });
  });
  const identity = parseIdentity(text);
  checkIdentity(identity, expected);
  return identity;
}

export async function writeIdentity(directory: string, identity: Omit<DiskIdentity, 'formatVersion'>): Promise<void> {
  const content: DiskIdentity = { formatVersion: FORMAT_VERSION, ...identity };
  await writeDurably(join(directory, IDENTITY_FILE), `${JSON.stringify(content, null, 2)}\n`);
}

/** Reads the text of holdfast.json: `corrupt`, or `failed-precondition` where it is of a newer format. */
export function parseIdentity(text: string): DiskIdentity {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new HoldfastError('corrupt', `${IDENTITY_FILE} is no JSON: ${messageOf(error)}`, { cause: error });
  }
  const fields: Partial<Record<string, unknown>> = typeof value === 'object' && value !== null ? { ...value } : {};
  const { formatVersion, diskId, clusterId, ebsVolumeId } = fields;
  if (typeof formatVersion !== 'number' || !Number.isSafeInteger(formatVersion) || formatVersion < 1) {
    throw new HoldfastError('corrupt', `${IDENTITY_FILE}: formatVersion must be a whole number from 1 on`);
  }
  if (formatVersion > FORMAT_VERSION) {
    throw new HoldfastError(
      'failed-precondition',
      `the disk has format version ${formatVersion}, this Holdfast reads up to ${FORMAT_VERSION}: upgrade it`,
    );
  }
  if (typeof diskId !== 'string' || !/^disk-[0-9a-f]{16}$/.test(diskId)) {
    throw new HoldfastError('corrupt', `${IDENTITY_FILE}: diskId must be disk- and 16 hex digits`);
  }
  if (typeof clusterId !== 'string' || clusterId === '') {
    throw new HoldfastError('corrupt', `${IDENTITY_FILE}: clusterId is missing`);
  }
  const known = { formatVersion, diskId, clusterId };
  return typeof ebsVolumeId === 'string' ? { ...known, ebsVolumeId } : known;
}

/**
 * A disk whose EBS volume is another than the one it was made on came out of a snapshot. It is refused even when the
 * first one is not here: its replicas are of some earlier time and would pass for in-sync ones.
 */
function checkIdentity(
  identity: DiskIdentity,
  expected: { diskId: DiskId; clusterId: string; ebsVolumeId: string | undefined },
): void {
  if (identity.clusterId !== expected.clusterId) {
    throw new HoldfastError('failed-precondition', `the disk belongs to another cluster, ${identity.clusterId}`);
  }
  if (identity.diskId !== expected.diskId) {
    throw new HoldfastError(
      'failed-precondition',
      `the disk is a copy of ${identity.diskId}: its filesystem was given another UUID, of ${expected.diskId}`,
    );
  }
  const { ebsVolumeId } = identity;
  if (ebsVolumeId !== undefined && expected.ebsVolumeId !== undefined && ebsVolumeId !== expected.ebsVolumeId) {
    throw new HoldfastError(
      'failed-precondition',
      `the disk is a copy of ${identity.diskId} (EBS volume ${ebsVolumeId}) on EBS volume ${expected.ebsVolumeId}`,
    );
  }
}
