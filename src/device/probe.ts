import { readFile, stat } from 'node:fs/promises';
import { HoldfastError, asHoldfastError } from '../base/errors.js';
import { run } from '../base/run.js';

const READ_TIMEOUT_MS = 30_000;
const MEBIBYTE = 1024 * 1024;
const SECTOR_BYTES = 512;
/** Where ext4 with blocks of 4 KiB keeps its first spare superblock. */
const EXT4_SPARE_OFFSET = 128 * MEBIBYTE;

/** What lies on a device. */
export type Content =
  /** blkid knows nothing there, and what was read is zero. */
  | { readonly kind: 'blank' }
  | { readonly kind: 'filesystem'; readonly type: string; readonly uuid: string; readonly label: string }
  /** Something that is no filesystem and not blank. */
  | { readonly kind: 'other'; readonly what: string };

/**
 * Looks at what a device holds. Never mistakes unreadable for blank: `io-error` where a read fails or the device has
 * no size, `deadline-exceeded` where it does not answer, `not-found` where there is no device, `invalid-argument`
 * where the path is something else.
 */
export async function probe(device: string, timeoutMs = READ_TIMEOUT_MS): Promise<Content> {
  const sizeBytes = await deviceSize(device);
  const zero = await readsZero(device, sizeBytes, timeoutMs);
  const { code, stdout } = await run('blkid', ['--probe', '--output', 'export', device], {
    timeoutMs,
    okCodes: [BLKID.found, BLKID.nothing, BLKID.ambivalent],
  });
  if (code === BLKID.ambivalent) return { kind: 'other', what: 'signatures of more than one kind' };
  if (code === BLKID.found) return contentOf(parseBlkid(stdout));
  return zero ? { kind: 'blank' } : { kind: 'other', what: 'data that blkid does not know' };
}

/** Exit codes of blkid -p (blkid(8)). */
const BLKID = { found: 0, nothing: 2, ambivalent: 8 } as const;

/** The size of a block device in bytes, as the kernel has it; the device itself is not touched. Errors as `probe`. */
export async function deviceSize(device: string): Promise<number> {
  const found = await stat(device).catch((error: unknown) => {
    throw new HoldfastError('not-found', `there is no device ${device}`, { cause: error });
  });
  if (!found.isBlockDevice()) throw new HoldfastError('invalid-argument', `${device} is no block device`);
  const number = `${(found.rdev >> 8) & 0xfff}:${(found.rdev & 0xff) | ((found.rdev >> 12) & 0xfff00)}`;
  const sectors = await readFile(`/sys/dev/block/${number}/size`, 'utf8').catch((error: unknown) => {
    throw asHoldfastError(error, 'not-found');
  });
  const sizeBytes = Number(sectors) * SECTOR_BYTES;
  if (sizeBytes === 0) throw new HoldfastError('io-error', `${device} has no size: nothing is behind it`);
  return sizeBytes;
}

/** Reads the first and the last MiB, and where ext4 has a spare superblock: all of them, so that any error is seen. */
async function readsZero(device: string, sizeBytes: number, timeoutMs: number): Promise<boolean> {
  const starts = new Set([0, Math.max(0, sizeBytes - MEBIBYTE), Math.min(EXT4_SPARE_OFFSET, sizeBytes - 1)]);
  let zero = true;
  for (const start of starts) {
    const length = Math.min(MEBIBYTE, sizeBytes - start);
    zero = (await pieceIsZero(device, start, length, timeoutMs)) && zero;
  }
  return zero;
}

/** Exit codes of cmp(1); 2, a failed read, is an error. */
const CMP = { same: 0, differs: 1 } as const;

async function pieceIsZero(device: string, start: number, length: number, timeoutMs: number): Promise<boolean> {
  const args = ['--silent', `--bytes=${length}`, `--ignore-initial=${start}:0`, device, '/dev/zero'];
  const { code } = await run('cmp', args, { timeoutMs, okCodes: [CMP.same, CMP.differs] });
  return code === CMP.same;
}

function parseBlkid(text: string): ReadonlyMap<string, string> {
  return new Map(
    text.split('\n').flatMap((line) => {
      const at = line.indexOf('=');
      return at < 0 ? [] : [[line.slice(0, at), line.slice(at + 1)] as const];
    }),
  );
}

function contentOf(found: ReadonlyMap<string, string>): Content {
  const type = found.get('TYPE');
  if (type !== undefined && found.get('USAGE') === 'filesystem') {
    return { kind: 'filesystem', type, uuid: found.get('UUID') ?? '', label: found.get('LABEL') ?? '' };
  }
  const table = found.get('PTTYPE');
  return {
    kind: 'other',
    what: type ?? (table === undefined ? 'something blkid knows' : `a ${table} partition table`),
  };
}
