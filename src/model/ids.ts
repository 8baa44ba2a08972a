/**
 * Identity of a volume.
 *
 * A volume id is `vol-` + 24 hex digits of SHA-256(CSI name) + 8 random hex digits. The first part, the volume key, is
 * the key of its record, so that one name can only ever have one record; the second tells apart two volumes that bore
 * the same name one after the other, so that a late delete of the first can't touch the second.
 */
export type VolumeId = string;

const VOLUME_ID = /^vol-[0-9a-f]{24}[0-9a-f]{8}$/;

export function isVolumeId(text: string): text is VolumeId {
  return VOLUME_ID.test(text);
}

/** The record key of a volume id. */
export function volumeKey(id: VolumeId): string {
  return id.slice(0, 'vol-'.length + 24);
}

/** Node names are what the orchestrator calls the node (RFC 1123 subdomain). */
export type NodeName = string;

/** The id in a disk's holdfast.json: `disk-` + 16 hex digits. */
export type DiskId = string;

/** The random id of one take-over: 32 hex digits. */
export type SessionId = string;
