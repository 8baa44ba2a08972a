import { codeOf } from '../base/errors.js';
import type { Counter } from '../base/meters.js';
import { HeldSlab } from '../io/held-slab.js';
import { type Lease, PAGE_BYTES, type Slab } from '../io/io.js';
import type { PieceDigest } from '../replica/replica.js';
import type { Member } from './member.js';
import { judgePiece } from './rules.js';

/** What it takes to make replicas equal. */
export interface Equalising {
  readonly members: readonly Member[];
  readonly slab: Slab;
  /** Bytes copied. */
  readonly copied: Counter;
  /** Whoever is being asked now is to blame for a failure. */
  asking(member: Member): void;
}

/**
 * R6: compares the range on all members by digest, piece by piece, and copies what differs from one to the others; what
 * is bad on one is taken from another. A piece that is good nowhere as a whole is compared block by block. A block that is
 * bad everywhere stays so: who reads it gets an error, never what is there.
 */
export async function equalise(job: Equalising, offset: number, length: number, pieceBytes: number): Promise<void> {
  const digests: PieceDigest[][] = [];
  for (const member of job.members) {
    job.asking(member);
    digests.push(await member.ask((session) => session.digests(offset, length, pieceBytes)));
  }
  for (let at = 0, index = 0; at < length; at += pieceBytes, index++) {
    const size = Math.min(pieceBytes, length - at);
    await equalisePiece(
      job,
      offset + at,
      size,
      digests.map((list) => list[index] ?? NOTHING_TOLD),
    );
  }
}

const NOTHING_TOLD: PieceDigest = { digest: '', state: 'corrupt' };

async function equalisePiece(
  job: Equalising,
  offset: number,
  size: number,
  digests: readonly PieceDigest[],
): Promise<void> {
  const verdict = judgePiece(digests);
  const source = verdict && job.members[verdict.source];
  if (!source) {
    if (size > PAGE_BYTES) await equalise(job, offset, size, PAGE_BYTES);
    return;
  }
  for (const target of verdict.targets) {
    const member = job.members[target];
    if (!member) continue;
    job.asking(source);
    const data = await readGood(source, offset, size, job.slab);
    // It has turned bad since it was compared: its replica knows that now.
    if (!data) return equalise(job, offset, size, size);
    job.asking(member);
    await member.ask((session) => session.write(offset, data, false)).finally(() => data.release());
    job.copied.add(size);
  }
}

/** Reads a piece to be copied; undefined where it is bad there. */
export async function readGood(source: Member, offset: number, length: number, slab: Slab): Promise<Lease | undefined> {
  try {
    return await readCopy(source, offset, length, slab);
  } catch (error) {
    if (codeOf(error) === 'corrupt') return undefined;
    throw error;
  }
}

/** Reads a piece to be copied. The wait for memory is over before the replica is asked. */
export async function readCopy(source: Member, offset: number, length: number, slab: Slab): Promise<Lease> {
  const held = await HeldSlab.take(slab, length);
  const asked = source.ask(
    (session) => session.read(offset, length, held),
    (late) => late.release(),
  );
  return asked.finally(() => held.release());
}
