import { SECTORS, type History, type Operation } from '../../history/history.js';

/** Something under way, with the sectors that it has reached. */
interface Underway {
  readonly operation: Operation;
  /** Sectors, counted from the first of the first block, that are still to be done; in any order. */
  left: number[];
}

export interface SimulatedOptions {
  readonly blocks: number;
  readonly operations: number;
  /** A number in [0, 1). */
  readonly random: () => number;
}

/**
 * A correct volume, as disks are: what is written lies in a cache that a flush empties, and of which a crash keeps any
 * part. Clients do all they may to it. Its histories are legal, whatever their size.
 */
export class SimulatedVolume {
  readonly history: History = { attachments: [{ servesFrom: 0, lossAllowed: false }], operations: [] };
  readonly #current: number[];
  /** For each sector what may be left of it after a crash. */
  readonly #possible: Set<number>[];
  #underway: Underway[] = [];
  #clock = 0;

  constructor(private readonly options: SimulatedOptions) {
    this.#current = new Array<number>(options.blocks * SECTORS).fill(0);
    this.#possible = this.#current.map(() => new Set([0]));
  }

  run(): History {
    const { operations } = this.history;
    while (operations.length < this.options.operations) {
      this.#clock += this.#below(3);
      const event = this.#below(100);
      if (event < 35 && this.#underway.length < 6) this.#begin();
      else if (event < 98) this.#proceed();
      else if (event === 98) this.#newAttachment();
      else this.#fail();
    }
    return this.history;
  }

  #begin(): void {
    const { operations, attachments } = this.history;
    const kinds = ['write', 'write', 'write', 'read', 'read', 'read', 'trim', 'flush'] as const;
    const kind = kinds[this.#below(kinds.length)] ?? 'read';
    const firstBlock = kind === 'flush' ? 0 : this.#below(this.options.blocks);
    const blockCount = kind === 'flush' ? 0 : 1 + this.#below(Math.min(3, this.options.blocks - firstBlock));
    const operation: Operation = {
      kind,
      attachment: attachments.length - 1,
      firstBlock,
      blockCount,
      value: kind === 'write' ? operations.length + 1 : 0,
      fua: kind === 'write' && this.#below(8) === 0,
      startedAt: this.#clock,
      endedAt: Infinity,
      outcome: 'pending',
      values: [],
    };
    operations.push(operation);
    const left = Array.from({ length: blockCount * SECTORS }, (_, sector) => sector);
    if (this.#below(8) === 0) left.sort(() => this.options.random() - 0.5);
    this.#underway.push({ operation, left });
  }

  /** An operation goes on by some sectors, or by all that is left, and is then answered. */
  #proceed(): void {
    const underway = this.#underway[this.#below(this.#underway.length)];
    if (underway === undefined) return;
    const { operation, left } = underway;
    const most = this.#below(4) === 0 ? this.#below(left.length + 1) : left.length;
    for (const sector of left.splice(0, most)) this.#touch(operation, sector);
    if (left.length > 0 || this.#below(3) === 0) return;
    if (operation.kind === 'flush') this.#empty((_, sector) => [this.#current[sector] ?? 0]);
    if (operation.fua) this.#empty((possible, sector) => this.#keptBy(operation, possible, sector));
    operation.endedAt = this.#clock;
    operation.outcome = 'done';
    this.#underway = this.#underway.filter((one) => one !== underway);
  }

  #touch(operation: Operation, index: number): void {
    const sector = operation.firstBlock * SECTORS + index;
    if (operation.kind === 'read') {
      const block = Math.floor(index / SECTORS);
      const values = (operation.values[block] ??= []) as number[];
      values[index % SECTORS] = this.#current[sector] ?? 0;
    } else {
      this.#current[sector] = operation.value;
      this.#possible[sector]?.add(operation.value);
    }
  }

  /** A durable write: nothing older is left. What was written during it may be. */
  #keptBy(operation: Operation, possible: ReadonlySet<number>, sector: number): Iterable<number> {
    const block = Math.floor(sector / SECTORS);
    if (block < operation.firstBlock || block >= operation.firstBlock + operation.blockCount) return possible;
    return [...possible].filter((value) => value >= operation.value || value === this.#current[sector]);
  }

  #empty(keep: (possible: ReadonlySet<number>, sector: number) => Iterable<number>): void {
    for (const [sector, possible] of this.#possible.entries()) this.#possible[sector] = new Set(keep(possible, sector));
  }

  /** The old attachment's operations are carried out, in part, or dropped; after a crash so are those before. */
  #newAttachment(): void {
    for (const { operation, left } of this.#underway) {
      if (operation.kind === 'write' || operation.kind === 'trim') {
        for (const sector of left) if (this.#below(2) === 0) this.#touch(operation, sector);
      }
    }
    this.#underway = [];
    const lossAllowed = this.#below(2) === 0;
    this.#clock += 1;
    this.history.attachments.push({ servesFrom: this.#clock, lossAllowed });
    if (!lossAllowed) return;
    for (const [sector, possible] of this.#possible.entries()) {
      const values = [...possible];
      this.#current[sector] = values[this.#below(values.length)] ?? 0;
    }
  }

  /** An operation is answered with an error, done in part or not; it is not carried out later. */
  #fail(): void {
    const underway = this.#underway.shift();
    if (underway === undefined) return;
    underway.operation.endedAt = this.#clock;
    underway.operation.outcome = 'failed';
  }

  #below(limit: number): number {
    return Math.floor(this.options.random() * limit);
  }
}

/** Mulberry32. */
export function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
  };
}
