import { constants, writeSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf, HoldfastError, messageOf } from '../base/errors.js';
import { createNodeIo } from '../io/node-io.js';
import { decodeLedger, encodeLedger, Ledger, type Fault } from './ledger.js';
import { BLOCK_BYTES, writeStamp } from './stamp.js';
import type { LoadMessage, LoadOrder, ReadOrder } from './load.js';

/*
 * The pod of a drill: a process of its own, since its threads hang in the kernel while its volume waits. It is told
 * what to do by its first line of input, and tells what it sees line by line. Direct I/O: what is acknowledged here was
 * acknowledged by the volume's writer.
 */

const TELL_EVERY_MS = 100;
const READ_BYTES = 1024 * 1024;
/** One write in so many goes to a block that was written before. */
const REWRITE_EVERY = 4;
const MAX_FAULTS_TOLD = 20;

function tell(message: LoadMessage): void {
  writeSync(1, `${JSON.stringify(message)}\n`);
}

class Load {
  readonly #ledger: Ledger;
  readonly #busy = new Set<number>();
  #next = 0;
  #count = 0;
  #firstAt = 0;
  #lastAt = 0;
  #longestPauseMs = 0;
  #stopping = false;
  #failed = false;

  constructor(
    private readonly order: LoadOrder,
    private readonly device: FileHandle,
  ) {
    this.#ledger = new Ledger(order.first, order.blocks);
  }

  /** Until it is told to stop, or a write fails. */
  async run(): Promise<void> {
    const telling = setInterval(() => this.#tellState(), TELL_EVERY_MS);
    const writers = Array.from({ length: this.order.writers }, () => this.#writeOnAndOn());
    await Promise.race([Promise.all(writers), this.#untilStopped()]);
    clearInterval(telling);
    this.#tellState();
    tell({ kind: 'end', ledger: encodeLedger(this.#ledger) });
  }

  stop(): void {
    this.#stopping = true;
  }

  /** Writes under way are given a moment; one that hangs stays begun and not acknowledged. */
  async #untilStopped(): Promise<void> {
    while (!this.#stopping && !this.#failed) await sleep(20);
    for (const end = Date.now() + 1_000; this.#busy.size > 0 && Date.now() < end;) await sleep(5);
  }

  async #writeOnAndOn(): Promise<void> {
    const slab = createNodeIo().slab(BLOCK_BYTES);
    const lease = await slab.take(BLOCK_BYTES);
    const pauseMs = (1_000 * this.order.writers) / this.order.writesPerSecond;
    while (!this.#stopping && !this.#failed) {
      const began = Date.now();
      await this.#writeOne(lease.bytes);
      await sleep(Math.max(1, pauseMs - (Date.now() - began)));
    }
  }

  async #writeOne(bytes: Uint8Array): Promise<void> {
    const block = this.#choose();
    this.#busy.add(block);
    const generation = this.#ledger.begin(block);
    writeStamp(bytes, { drill: this.order.drill, block, generation });
    try {
      await this.device.write(bytes, 0, BLOCK_BYTES, block * BLOCK_BYTES);
    } catch (error) {
      if (!this.#failed) tell({ kind: 'error', at: Date.now(), code: codeOf(error), message: messageOf(error) });
      this.#failed = true;
      return;
    } finally {
      this.#busy.delete(block);
    }
    this.#ledger.acknowledge(block, generation);
    this.#noteAnswer();
  }

  /** On and on through the area; now and then one that was written before. */
  #choose(): number {
    const { first, blocks } = this.order;
    const again = ++this.#count % REWRITE_EVERY === 0 && this.#next > 0;
    let at = again ? Math.floor(Math.random() * Math.min(this.#next, blocks)) : this.#next++ % blocks;
    while (this.#busy.has(first + at)) at = (at + 1) % blocks;
    return first + at;
  }

  #noteAnswer(): void {
    const now = Date.now();
    if (this.#firstAt === 0) this.#firstAt = now;
    else this.#longestPauseMs = Math.max(this.#longestPauseMs, now - this.#lastAt);
    this.#lastAt = now;
  }

  #tellState(): void {
    tell({
      kind: 'state',
      acknowledged: this.#ledger.writes,
      firstAt: this.#firstAt,
      lastAt: this.#lastAt,
      longestPauseMs: this.#longestPauseMs,
    });
  }
}

/** Reads every area and holds it against its ledger. */
async function check(order: ReadOrder, device: FileHandle): Promise<void> {
  const slab = createNodeIo().slab(READ_BYTES);
  const lease = await slab.take(READ_BYTES);
  const faults: Fault[] = [];
  let checked = 0;
  for (const text of order.ledgers) {
    const ledger = decodeLedger(text);
    const end = ledger.first + ledger.blocks;
    for (let block = ledger.first; block < end;) {
      const count = Math.min(READ_BYTES / BLOCK_BYTES, end - block);
      const bytes = lease.bytes.subarray(0, count * BLOCK_BYTES);
      await readAll(device, bytes, block * BLOCK_BYTES);
      for (let at = 0; at < count; at++, block++) {
        const content = bytes.subarray(at * BLOCK_BYTES, (at + 1) * BLOCK_BYTES);
        const fault = ledger.judge(order.drill, block, content);
        if (fault) faults.push(fault);
      }
    }
    checked += ledger.blocksWritten;
  }
  const count = (kind: Fault['kind']): number => faults.filter((fault) => fault.kind === kind).length;
  const examples = faults.slice(0, MAX_FAULTS_TOLD).map(({ block, told }) => `block ${block} ${told}`);
  tell({ kind: 'checked', blocks: checked, lost: count('lost'), damaged: count('damaged'), examples });
}

async function readAll(device: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  const { bytesRead } = await device.read(bytes, 0, bytes.length, position);
  if (bytesRead !== bytes.length) throw new HoldfastError('io-error', `the device ends at ${position + bytesRead}`);
}

const input = createInterface({ input: process.stdin });
let load: Load | undefined;
input.once('line', (line) => {
  const order = JSON.parse(line) as LoadOrder | ReadOrder;
  void carryOut(order).catch((error: unknown) => {
    tell({ kind: 'error', at: Date.now(), code: codeOf(error), message: messageOf(error) });
    process.exit(1);
  });
  input.on('line', () => load?.stop());
});

async function carryOut(order: LoadOrder | ReadOrder): Promise<void> {
  const mode = order.kind === 'write' ? constants.O_WRONLY : constants.O_RDONLY;
  const device = await open(order.path, mode | constants.O_DIRECT);
  if (order.kind === 'read') await check(order, device);
  else {
    load = new Load(order, device);
    await load.run();
  }
  // Closing would wait for a write that hangs.
  process.exit(0);
}
