import { asHoldfastError, codeOf } from '../base/errors.js';
import { GroupCommit } from '../base/group-commit.js';
import { type Lease, PAGE_BYTES, type Slab } from '../io/io.js';
import type { Range } from '../model/layout.js';
import { readGood } from './equalise.js';
import type { Member } from './member.js';
import type { RangeLocks } from './range-locks.js';
import type { ReplicaSet, SetOwner } from './replica-set.js';
import { metersOf, type WriterNode } from './writer-node.js';

/** What the mender needs of its writer. */
export interface MendedWriter {
  readonly owner: SetOwner;
  /** It serves, and is not about to be released. */
  mayMend(): boolean;
  /** Undefined where the range may be used at once (R6). */
  usable(offset: number, length: number): Promise<void> | undefined;
  /** The range is about to be written on some replica. */
  touch(offset: number, length: number): void;
}

/**
 * Given blocks that an in-sync replica knows to be bad, then each is overwritten there with what another in-sync replica
 * holds. What is good on none of them is left as it is, and told.
 */
export class Mender {
  readonly #rounds = new GroupCommit(() => this.#round());
  /** Where no in-sync replica that can be asked has a good copy. */
  #beyond: number[] = [];
  #wake: () => void = () => undefined;

  constructor(
    private readonly node: WriterNode,
    private readonly set: ReplicaSet,
    private readonly locks: RangeLocks,
    private readonly slab: Slab,
    private readonly writer: MendedWriter,
  ) {}

  /** Asks the replicas for what is bad now and then, and whenever `look` is called, until the writer ends. */
  async run(): Promise<void> {
    while (!this.writer.owner.ended) {
      await this.mend().catch((error: unknown) => this.#failed(error));
      await new Promise<void>((resolve) => {
        const cancel = this.node.io.clock.timer(this.node.timing.mendEveryMs, resolve);
        this.#wake = () => {
          cancel();
          resolve();
        };
      });
    }
  }

  /** Has the next round begin now: a read has met bad data, or the writer has ended. */
  look(): void {
    this.#wake();
  }

  /** Mends, in a round that begins now, what in-sync replicas know to be bad. */
  mend(): Promise<void> {
    return this.#rounds.run();
  }

  /** What reads fail for, in words. */
  get waitsFor(): string[] {
    const [first] = this.#beyond;
    if (first === undefined) return [];
    const blocks = `${this.#beyond.length} blocks, the first at offset ${first}`;
    return [`a good copy of ${blocks}: bad on every in-sync replica, reads of them fail until they are written`];
  }

  async #round(): Promise<void> {
    const beyond: number[] = [];
    for (const member of this.set.inSync) {
      for (const range of await this.#damageOf(member)) await this.#mendRange(member, range, beyond);
    }
    this.#beyond = [...new Set(beyond)];
  }

  async #damageOf(member: Member): Promise<Range[]> {
    if (!this.writer.mayMend() || !member.connected) return [];
    return (await this.#ask(member, () => member.ask((session) => session.damage()))) ?? [];
  }

  async #mendRange(damaged: Member, { offset, length }: Range, beyond: number[]): Promise<void> {
    const { compareBytes } = this.node.layout;
    const end = Math.min(offset + length, this.writer.owner.sizeBytes);
    for (let at = offset; at < end; at += compareBytes) {
      const size = Math.min(compareBytes, end - at);
      if (await this.#mendPiece(damaged, at, size)) continue;
      // It may be good elsewhere in parts.
      for (let block = at; block < at + size; block += PAGE_BYTES) {
        if (!(await this.#mendPiece(damaged, block, PAGE_BYTES))) beyond.push(block);
      }
    }
  }

  /** False where no other in-sync replica has a good copy of all of it. */
  async #mendPiece(damaged: Member, offset: number, length: number): Promise<boolean> {
    if (!this.writer.mayMend()) return true;
    await this.writer.usable(offset, length);
    const release = await this.locks.acquire(offset, length, 'exclusive');
    try {
      for (const source of this.set.inSync) {
        if (source === damaged || !source.connected) continue;
        const data = await this.#ask(source, () => readGood(source, offset, length, this.slab));
        if (!data) continue;
        // It opens the region on the damaged replica: R2 has to close it again.
        this.writer.touch(offset, length);
        const write = (): Promise<boolean> =>
          damaged.ask((session) => session.write(offset, data, false)).then(() => true);
        const written = await this.#ask(damaged, write).finally(() => data.release());
        if (written) this.#tell(damaged, source, offset, length);
        return true;
      }
      return false;
    } finally {
      release();
    }
  }

  /** A replica that fails is R4's business; here there is just no answer. */
  async #ask<T>(member: Member, ask: () => Promise<T>): Promise<T | undefined> {
    try {
      return await ask();
    } catch (error) {
      if (codeOf(error) !== 'unavailable') this.set.fail(member.node, asHoldfastError(error));
      return undefined;
    }
  }

  #failed(error: unknown): void {
    if (this.writer.owner.ended) return;
    this.node.log.error({ volume: this.set.record.id, err: error }, 'bad data can not be mended; trying again');
  }

  #tell(damaged: Member, source: Member, offset: number, length: number): void {
    const volume = this.set.record.id;
    this.node.log.warn({ volume, replica: damaged.node, from: source.node, offset, length }, 'bad data mended');
    metersOf(this.node).counter('holdfast_mended_bytes_total').add(length);
  }
}

/** A range that no replica holds whole, block by block from whoever has each. */
export async function readBlocks(
  offset: number,
  length: number,
  slab: Slab,
  readBlock: (offset: number) => Promise<Lease>,
): Promise<Lease> {
  const whole = await slab.take(length);
  try {
    for (let at = 0; at < length; at += PAGE_BYTES) {
      const block = await readBlock(offset + at);
      whole.bytes.set(block.bytes, at);
      block.release();
    }
    return whole;
  } catch (error) {
    whole.release();
    throw error;
  }
}
