import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import type { NodeName, SessionId, VolumeId } from '../model/ids.js';
import type { Versioned, VolumeRecord, Writer as RecordedWriter } from '../model/records.js';
import { OPEN } from '../replica/region-table.js';
import { Membership } from './membership.js';
import { type Fenced, Fencing } from './fencing.js';
import { judgeTakeOver, mustOutwait } from './rules.js';
import { TakeOverSteps } from './take-over-steps.js';
import { waitForHolder } from './wait-for-holder.js';
import { inTime, metersOf, noteOf, type WriterNode } from './writer-node.js';

/** The outcome: this node is the writer, and every replica of the set is fenced. */
export interface TakenOver {
  readonly record: Versioned<VolumeRecord>;
  readonly session: SessionId;
  readonly fenced: ReadonlyMap<NodeName, Fenced>;
  /** Regions that some replica reported open (R6). */
  readonly openRegions: ReadonlySet<number>;
  /** 1 for each region that some replica ever wrote. */
  readonly written: Uint8Array;
}

const RETRY_MS = 200;
/** R9: the wait for older readers, with 5 % for clocks. */
const CLOCK_MARGIN = 1.05;

/**
 * R5. The steps, each durable before the next: the record names this node (CAS); the in-sync replicas that can be
 * reached are fenced; the others are removed (CAS); older readers have fallen silent. What fails on the way leaves the
 * volume with no writer, or with this node as one that never served: the next take-over fences again.
 */
export async function takeOver(node: WriterNode, volume: VolumeId, options: TakeOverOptions): Promise<TakenOver> {
  const steps = new TakeOverSteps(node, volume);
  try {
    const taken = await takeOverIn(steps, node, volume, options);
    steps.done(taken.record.record.epoch);
    return taken;
  } catch (error) {
    steps.failed(error);
    throw error;
  }
}

async function takeOverIn(
  steps: TakeOverSteps,
  node: WriterNode,
  volume: VolumeId,
  options: TakeOverOptions,
): Promise<TakenOver> {
  const deadline = node.io.clock.now() + options.timeoutMs;
  const claim = await steps.time('record', () => claimRecord(node, volume, options, deadline));
  const fenced = new Map<NodeName, Fenced>();
  try {
    options.claimed?.(claim);
    const absent = claim.formerExpired ? claim.former?.node : undefined;
    const fencing = new Fencing(node, claim.known.record, claim.session, absent, fenced);
    const lossy = await steps.time('fencing', () => fencing.run(deadline));
    if (lossy && options.resume) {
      throw new HoldfastError(
        'fenced',
        `every reachable replica of ${volume} lost unflushed writes: the attachment has ended`,
      );
    }
    const left = { usable: new Set(fenced.keys()), lossy, whyNot: (name: NodeName) => fencing.whyNot(name) };
    const record = await steps.time('record', () => removeUnusable(node, claim, left, deadline));
    if (lossy) await clearMarks(node, volume, fenced);
    const tables = await steps.time('tables', () => readTables(node, record.record, fenced));
    await steps.time('outwait', () => outwaitReaders(node, claim, fenced));
    return { record, session: claim.session, fenced, ...tables };
  } catch (error) {
    for (const { session } of fenced.values()) session.end();
    // An attachment that lived before may try again, as long as the record names its node.
    if (!options.resume) await abandon(node, claim, error);
    throw error;
  }
}

export interface TakeOverOptions {
  /** An attachment that lived before goes on, if the record names its node until the CAS. */
  readonly resume: boolean;
  readonly timeoutMs: number;
  /**
   * For a writer without a device: it waits for nobody. `expired`: the session of a writer whose lease was watched to
   * expire just before.
   */
  readonly maintenance?: { readonly expired: SessionId | undefined };
  /** The record names this node now. What it throws ends the take-over. */
  readonly claimed?: (claim: Claim) => void;
}

/** The record names this node; what it named before. */
export interface Claim {
  readonly known: Versioned<VolumeRecord>;
  readonly session: SessionId;
  readonly former: RecordedWriter | null;
  readonly formerExpired: boolean;
  /** No older writer could serve reads (R9); this one has served none yet. */
  readonly wasQuiet: boolean;
  /** The decisions in the record before this one. */
  readonly before: VolumeRecord;
}

async function claimRecord(
  node: WriterNode,
  volume: VolumeId,
  { resume, maintenance }: TakeOverOptions,
  deadline: number,
): Promise<Claim> {
  const expired = new Set<string>(maintenance?.expired === undefined ? [] : [maintenance.expired]);
  const session = node.io.random.hex(16);
  for (;;) {
    const known = await readRecord(node, volume, resume, deadline);
    const { record } = known;
    // A writer without a device is nobody's attachment: the one before it had ended.
    if (resume && (record.writer?.node !== node.name || record.writer.maintenance === true)) {
      tellEnded(node, record);
      throw new HoldfastError(
        'fenced',
        `${volume} was taken over by ${record.writer?.node ?? 'nobody'}: the attachment has ended`,
      );
    }
    const verdict = judgeTakeOver(record, node.name, expired);
    if (!verdict.allowed) {
      if (maintenance)
        throw new HoldfastError('failed-precondition', `node ${verdict.holder} is the writer of ${volume}`);
      const holderSession = record.writer?.session ?? '';
      if (await waitForHolder(node, record, verdict, deadline)) expired.add(holderSession);
      continue;
    }
    const { writer: former, quiet: wasQuiet } = record;
    if (maintenance && former?.node === node.name && former.maintenance !== true) {
      // A device may still wait for its attachment to go on.
      throw new HoldfastError('failed-precondition', `volume ${volume} is attached to this node`);
    }
    const formerExpired = former !== null && expired.has(former.session);
    const writer = { node: node.name, session, ...(maintenance && { maintenance: true }) };
    const next = { ...record, epoch: record.epoch + 1, writer, quiet: false };
    const what = whatIsClaimed(former, {
      node: node.name,
      formerExpired,
      resume,
      maintenance: maintenance !== undefined,
    });
    const claimed = await tryClaim(node, noteOf(node)(next, what), known.version);
    if (claimed) return { known: claimed, session, former, formerExpired, wasQuiet, before: record };
  }
}

/** The writer of an earlier process on this node was fenced while nothing of it lived here. */
function tellEnded(node: WriterNode, { id: volume, epoch, writer }: VolumeRecord): void {
  const successor = { node: writer?.node ?? null, session: writer?.session ?? null };
  node.log.warn({ volume, epoch, successor, by: 'record' }, 'writer was fenced');
  metersOf(node).counter('holdfast_writers_fenced_total', { by: 'record' }).add();
}

async function readRecord(
  node: WriterNode,
  volume: VolumeId,
  resume: boolean,
  deadline: number,
): Promise<Versioned<VolumeRecord>> {
  for (;;) {
    try {
      const known = await node.records.get(volume);
      if (!known && resume) throw new HoldfastError('fenced', `${volume} is deleted: the attachment has ended`);
      if (!known) throw new HoldfastError('not-found', `no volume ${volume}`);
      if (known.record.phase !== 'ready') {
        throw new HoldfastError('failed-precondition', `volume ${volume} is ${known.record.phase}; it must be ready`);
      }
      return known;
    } catch (error) {
      if (codeOf(error) !== 'unavailable') throw error;
      if (node.io.clock.now() + RETRY_MS > deadline) {
        throw new HoldfastError('unavailable', `the cluster store does not answer: ${messageOf(error)}`, {
          cause: error,
        });
      }
      await node.io.clock.sleep(RETRY_MS);
    }
  }
}

/** The record with this session in it; undefined where the CAS lost, or nothing is known of it but that it may be tried again. */
async function tryClaim(
  node: WriterNode,
  next: VolumeRecord,
  version: string,
): Promise<Versioned<VolumeRecord> | undefined> {
  try {
    return await node.records.update(next, version);
  } catch (error) {
    if (codeOf(error) === 'conflict' || codeOf(error) === 'not-found') return undefined;
    // Neither done nor failed. If it came through, the record shows this session, and the claim goes on from there.
    await node.io.clock.sleep(RETRY_MS);
    const seen = await node.records.get(next.id).catch(() => undefined);
    return seen?.record.writer?.session === next.writer?.session ? seen : undefined;
  }
}

/** What a claim does to the volume, for the record. */
function whatIsClaimed(
  former: RecordedWriter | null,
  how: { node: NodeName; formerExpired: boolean; resume: boolean; maintenance: boolean },
): string {
  const from = ((): string => {
    if (former === null) return 'nobody was the writer';
    if (former.node === how.node) return 'this node was the writer before';
    return `from node ${former.node}, whose lease had expired`;
  })();
  if (how.resume) return `goes on as the writer: ${from}`;
  return how.maintenance ? `began to bring the replicas into line, without a device: ${from}` : `took over: ${from}`;
}

/** R5: those not reached, or not usable, leave the set by CAS before anything is served. */
async function removeUnusable(
  node: WriterNode,
  claim: Claim,
  { usable, lossy, whyNot }: { usable: ReadonlySet<NodeName>; lossy: boolean; whyNot: (name: NodeName) => string },
  deadline: number,
): Promise<Versioned<VolumeRecord>> {
  const { clock } = node.io;
  const { session, known } = claim;
  const membership = new Membership(node.records, clock, node.log, session, known, noteOf(node), () => undefined);
  const stop = clock.timer(Math.max(0, deadline - clock.now()), () => membership.end());
  try {
    await membership.changeSet(
      (inSync) => {
        const left = new Set([...inSync].filter((name) => usable.has(name)));
        return left.size === inSync.size ? undefined : left;
      },
      () => {
        const out = [...membership.inSync].filter((name) => !usable.has(name));
        return out.map((name) => `the replica on ${name} was left out: ${whyNot(name)}`).join('; ');
      },
    );
    if (lossy) await membership.raiseEpoch(whatIsLost(usable));
    return membership.versioned;
  } finally {
    stop();
  }
}

function whatIsLost(usable: ReadonlySet<NodeName>): string {
  const crashed = [...usable].join(', ');
  return `every in-sync replica that was reached (${crashed}) had crashed: acknowledged writes that were not flushed may be lost`;
}

async function clearMarks(node: WriterNode, volume: VolumeId, fenced: ReadonlyMap<NodeName, Fenced>): Promise<void> {
  node.log.error(
    { volume, replicas: [...fenced.keys()] },
    'every in-sync replica that was reached had crashed: writes that were not flushed may be lost; going on',
  );
  for (const [name, { session }] of fenced) await inTime(node, name, session, () => session.clearMark());
}

async function readTables(
  node: WriterNode,
  record: VolumeRecord,
  fenced: ReadonlyMap<NodeName, Fenced>,
): Promise<{ openRegions: Set<number>; written: Uint8Array }> {
  const openRegions = new Set<number>();
  const written = new Uint8Array(node.layout.regionCount(record.capacityBytes));
  for (const [name, { session }] of fenced) {
    await inTime(node, name, session, () => session.grow(record.capacityBytes));
    let region = 0;
    for (const run of await inTime(node, name, session, () => session.table())) {
      if (run.entry !== 0) written.fill(1, region, region + run.count);
      if (run.entry === OPEN) for (let at = region; at < region + run.count; at++) openRegions.add(at);
      region += run.count;
    }
  }
  return { openRegions, written };
}

/** R9: waits until every older writer has lost its permission to read. */
async function outwaitReaders(node: WriterNode, claim: Claim, fenced: ReadonlyMap<NodeName, Fenced>): Promise<void> {
  const { former } = claim;
  const states = [...fenced].map(([name, { session }]) => ({ name, state: session.state }));
  const wait = mustOutwait({
    quiet: claim.wasQuiet,
    formerHadServed: states.some(({ state }) => state.sessionBefore === former?.session && state.servedBefore),
    // This process has no older writer of the volume, and a fence ends one on the replica's node.
    formerHasStopped: former !== null && (former.node === node.name || fenced.has(former.node)),
  });
  if (wait) await node.io.clock.sleep(node.timing.confirmedMs * CLOCK_MARGIN);
}

/**
 * Best effort: no writer is better than one that does not serve. This one has served no read, so that it is as `quiet`
 * as it was. One decision is left of the attempt, however often it is made.
 */
async function abandon(node: WriterNode, claim: Claim, error: unknown): Promise<void> {
  try {
    const seen = await node.records.get(claim.known.record.id);
    if (seen?.record.writer?.session !== claim.session) return;
    const { record } = seen;
    const { decisions = [] } = claim.before;
    const next = { ...record, decisions, epoch: record.epoch + 1, writer: null, quiet: claim.wasQuiet };
    await node.records.update(noteOf(node)(next, `gave a take-over up: ${messageOf(error)}`), seen.version);
  } catch (error) {
    node.log.warn({ volume: claim.known.record.id, err: error }, 'take-over failed and could not be withdrawn');
  }
}
