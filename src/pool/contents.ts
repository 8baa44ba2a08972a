import { open, type FileHandle } from 'node:fs/promises';
import { HoldfastError, messageOf } from '../base/errors.js';
import { run } from '../base/run.js';

/**
 * What is on a device, before anything is written to it.
 *
 * *Blank* is the one answer after which Holdfast formats, so it needs two independent witnesses: blkid knows no
 * signature (filesystems, RAID, LVM, encryption, swap, partition tables, at all the places it knows), and everything
 * read at the places where signatures lie, and at many places in between, is zero. A read that fails is an error, never
 * a blank device. A disk that is not zero though nothing is recognised holds data of a kind unknown, or lost its
 * beginning: it is somebody's, and who wants to give it away wipes it.
 */
export type Contents =
  | { readonly kind: 'blank' }
  | { readonly kind: 'xfs'; readonly label: string; readonly uuid: string }
  /** mkfs.xfs did not come to its end, so nothing was ever stored in it: no kernel mounts it. */
  | { readonly kind: 'unfinished-xfs'; readonly label: string }
  /** Anything else, in words. */
  | { readonly kind: 'foreign'; readonly found: string };

const BLKID_TIMEOUT_MS = 30_000;
const BLKID_NOTHING = 2;
const BLKID_AMBIVALENT = 8;

const MIB = 1024 * 1024;

/** Backup superblocks: btrfs at 64 MiB and 256 GiB, ext with 4 KiB blocks at 128 MiB. */
const BACKUP_OFFSETS = [64 * MIB, 128 * MIB, 256 * 1024 * MIB];

const SB_FNAME = 108;
const SB_FNAME_BYTES = 12;
const SB_INPROGRESS = 126;

const SAMPLES = 64;
const SAMPLE_BYTES = 4096;

export async function contentsOf(devicePath: string, sizeBytes: number): Promise<Contents> {
  // Reads first: a device that can't be read has no contents to talk of.
  const { head, dirtyAt } = await look(devicePath, sizeBytes);
  const unfinished = unfinishedXfsLabel(head);
  if (unfinished !== undefined) return { kind: 'unfinished-xfs', label: unfinished };
  const probed = await run('blkid', ['--probe', '--output', 'export', devicePath], {
    timeoutMs: BLKID_TIMEOUT_MS,
    okCodes: [0, BLKID_NOTHING, BLKID_AMBIVALENT],
  });
  if (probed.code === BLKID_AMBIVALENT) return { kind: 'foreign', found: 'signatures of several filesystems' };
  const tags = new Map(probed.stdout.split('\n').map((line) => splitTag(line)));
  const type = tags.get('TYPE');
  const partitions = tags.get('PTTYPE');
  if (partitions !== undefined) return { kind: 'foreign', found: `a partition table (${partitions})` };
  if (type === 'xfs') return { kind: 'xfs', label: tags.get('LABEL') ?? '', uuid: tags.get('UUID') ?? '' };
  if (type !== undefined) {
    const label = tags.get('LABEL');
    return { kind: 'foreign', found: label === undefined ? type : `${type} labelled ${label}` };
  }
  if (dirtyAt !== undefined) return { kind: 'foreign', found: `data of an unknown kind at byte ${dirtyAt}` };
  return { kind: 'blank' };
}

/** The first MiB, and the offset of the first piece that is not zero. `io-error` where a read fails or falls short. */
async function look(path: string, sizeBytes: number): Promise<{ head: Uint8Array; dirtyAt: number | undefined }> {
  const device = await open(path, 'r').catch((error: unknown) => {
    throw new HoldfastError('io-error', `${path} can't be opened: ${messageOf(error)}`, { cause: error });
  });
  let dirtyAt: number | undefined;
  let head: Uint8Array = new Uint8Array(0);
  try {
    for (const piece of lookedAt(sizeBytes)) {
      const bytes = await readAll(device, path, piece.offset, piece.length);
      if (piece.offset === 0 && head.length === 0) head = bytes;
      if (bytes.some((byte) => byte !== 0)) dirtyAt ??= piece.offset;
    }
  } finally {
    await device.close();
  }
  return { head, dirtyAt };
}

/**
 * mkfs.xfs writes the superblock with sb_inprogress set and clears that last (fields of xfs_dsb in the kernel's
 * xfs_format.h).
 */
export function unfinishedXfsLabel(head: Uint8Array): string | undefined {
  const magic = Buffer.from(head.subarray(0, 4)).toString('latin1');
  if (magic !== 'XFSB' || head[SB_INPROGRESS] !== 1) return undefined;
  const name = Buffer.from(head.subarray(SB_FNAME, SB_FNAME + SB_FNAME_BYTES)).toString('latin1');
  return name.replace(/\0.*$/s, '');
}

/** The first and last MiB, known places of backups, and an even spread of samples. */
export function lookedAt(sizeBytes: number): { offset: number; length: number }[] {
  const pieces = [
    { offset: 0, length: MIB },
    { offset: Math.max(sizeBytes - MIB, 0), length: MIB },
    ...BACKUP_OFFSETS.map((offset) => ({ offset, length: MIB })),
    ...Array.from({ length: SAMPLES }, (_, i) => ({
      offset: Math.floor(((sizeBytes / SAMPLES) * i) / SAMPLE_BYTES) * SAMPLE_BYTES,
      length: SAMPLE_BYTES,
    })),
  ];
  return pieces.flatMap(({ offset, length }) => {
    const fits = Math.min(length, sizeBytes - offset);
    return fits > 0 ? [{ offset, length: fits }] : [];
  });
}

async function readAll(device: FileHandle, path: string, offset: number, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await device.read(bytes, done, length - done, offset + done).catch((error: unknown) => {
      const where = `${path} can't be read at byte ${offset + done}`;
      throw new HoldfastError('io-error', `${where}: ${messageOf(error)}`, { cause: error });
    });
    if (bytesRead === 0) throw new HoldfastError('io-error', `${path} ends at byte ${offset + done}, before its size`);
    done += bytesRead;
  }
  return bytes;
}

function splitTag(line: string): [string, string] {
  const equals = line.indexOf('=');
  return [line.slice(0, equals), line.slice(equals + 1)];
}
