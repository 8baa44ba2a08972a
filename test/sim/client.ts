import { codeOf } from '../../src/base/errors.js';
import { decodeBlock, fillBlocks, type History, type Operation } from '../history/history.js';
import { Prng } from './prng.js';
import { OPERATIONS_PER_SLOT, type VolumePlan } from './scenario.js';
import type { SimCluster } from './sim-cluster.js';
import type { SimDevice } from './sim-device.js';

const PAGE_BYTES = 4096;
const MOST_BLOCKS = 3;

type Wish = Pick<Operation, 'kind' | 'firstBlock' | 'blockCount' | 'fua'>;

/** Whoever uses a block device: some requests at once, all noted in the volume's history. */
export class Client {
  /** The device has told it that the attachment has ended. */
  ended = false;
  #stopping = false;
  /** It reads only: where writes wait, one that writes would soon do nothing but wait. */
  readonly #isReader: boolean;
  readonly #underWay = new Set<Operation>();

  constructor(
    private readonly cluster: SimCluster,
    private readonly plan: VolumePlan,
    private readonly random: Prng,
    readonly device: SimDevice,
    private readonly history: History,
    readonly attachment: number,
    private readonly nextValue: () => number,
    private readonly blocks: () => number,
  ) {
    this.#isReader = random.chance(0.35);
  }

  start(): void {
    void this.#work();
  }

  /** Resolves when nothing is under way any more. */
  async stop(): Promise<void> {
    this.#stopping = true;
    while (this.#underWay.size > 0 && this.device.process.alive) await this.cluster.sleep(50);
  }

  /** The longest that an operation has been under way. */
  get oldestMs(): number {
    let oldest = 0;
    for (const operation of this.#underWay) oldest = Math.max(oldest, this.cluster.schedule.now - operation.startedAt);
    return oldest;
  }

  flush(): Promise<boolean> {
    return this.#run({ kind: 'flush', firstBlock: 0, blockCount: 0, fua: false });
  }

  /** Reads every block once. */
  async readAll(): Promise<void> {
    for (let block = 0; block < this.blocks(); block++) {
      await this.#run({ kind: 'read', firstBlock: block, blockCount: 1, fua: false });
    }
  }

  /** Burst after burst. One that gets no answers is joined by few more. */
  async #work(): Promise<void> {
    const { clock } = this.device.process.io;
    while (!this.#stopping && !this.ended) {
      await clock.sleep(-Math.log(1 - this.random.fraction()) * this.plan.burstEveryMs);
      for (let slot = this.#underWay.size; slot < this.plan.queueDepth; slot++) void this.#slot();
    }
  }

  async #slot(): Promise<void> {
    const { clock } = this.device.process.io;
    for (let count = this.random.below(2 * OPERATIONS_PER_SLOT); count >= 0; count--) {
      if (this.#stopping || this.ended) return;
      await this.#run(this.#draw());
      if (this.random.chance(0.5)) await clock.sleep(this.random.between(0, 5));
    }
  }

  #draw(): Wish {
    const { write, fua, read, flush, trim } = this.plan.weights;
    const blocks = this.blocks();
    const firstBlock = this.random.below(blocks);
    const blockCount = Math.min(1 + this.random.below(MOST_BLOCKS), blocks - firstBlock);
    if (this.#isReader) return { kind: 'read', firstBlock, blockCount, fua: false };
    let dice = this.random.fraction() * (write + fua + read + flush + trim);
    if ((dice -= flush) < 0) return { kind: 'flush', firstBlock: 0, blockCount: 0, fua: false };
    if ((dice -= read) < 0) return { kind: 'read', firstBlock, blockCount, fua: false };
    if ((dice -= trim) < 0) return { kind: 'trim', firstBlock, blockCount, fua: this.random.chance(0.2) };
    return { kind: 'write', firstBlock, blockCount, fua: dice < fua };
  }

  /** Whether it succeeded. */
  async #run(wish: Wish): Promise<boolean> {
    const { schedule, tell } = this.cluster;
    const operation: Operation = {
      ...wish,
      attachment: this.attachment,
      value: wish.kind === 'write' ? this.nextValue() : 0,
      startedAt: schedule.now,
      endedAt: Infinity,
      outcome: 'pending',
      values: [],
    };
    this.history.operations.push(operation);
    this.#underWay.add(operation);
    try {
      operation.values = await this.#carryOut(operation);
      operation.outcome = 'done';
    } catch (error) {
      operation.outcome = 'failed';
      if (codeOf(error) === 'fenced') this.ended = true;
      else if (codeOf(error) === 'internal') schedule.fail(error);
    }
    operation.endedAt = schedule.now;
    this.#underWay.delete(operation);
    if (tell) tell(`client ${this.device.volume.slice(-1)}.${this.attachment}`, tellOperation(operation));
    return operation.outcome === 'done';
  }

  async #carryOut({ kind, firstBlock, blockCount, value, fua }: Operation): Promise<Operation['values']> {
    const { stage, slab } = this.device;
    const offset = firstBlock * PAGE_BYTES;
    const length = blockCount * PAGE_BYTES;
    switch (kind) {
      case 'flush':
        await stage.flush();
        return [];
      case 'trim':
        await stage.trim(offset, length, fua);
        return [];
      case 'write': {
        const lease = await slab.take(length);
        try {
          fillBlocks(lease.bytes, value, firstBlock);
          await stage.write(offset, lease, fua);
        } finally {
          lease.release();
        }
        return [];
      }
      case 'read': {
        const lease = await stage.read(offset, length, slab);
        const values = Array.from({ length: blockCount }, (_, index) =>
          decodeBlock(lease.bytes.subarray(index * PAGE_BYTES, (index + 1) * PAGE_BYTES), firstBlock + index),
        );
        lease.release();
        return values;
      }
    }
  }
}

function tellOperation({ kind, firstBlock, blockCount, value, fua, startedAt, outcome, values }: Operation): string {
  const where = kind === 'flush' ? '' : ` ${firstBlock}+${blockCount}`;
  const what = kind === 'write' ? ` v${value}` : kind === 'read' ? ` = ${JSON.stringify(values)}` : '';
  return `${kind}${fua ? ' fua' : ''}${where}${what} since ${startedAt.toFixed(1)}: ${outcome}`;
}
