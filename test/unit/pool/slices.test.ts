import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { PAGE_BYTES } from '../../../src/io/io.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { Layout } from '../../../src/model/layout.js';
import { Slices } from '../../../src/pool/slices.js';
import { faultyIo, type BeforeOperation } from '../../support/faulty-files.js';

/** Slices of one page, so that a few writes make many. */
const TINY = new Layout(PAGE_BYTES, PAGE_BYTES, PAGE_BYTES);
const page = createNodeIo().slab(PAGE_BYTES);

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-slices-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

interface Row {
  readonly slices: Slices;
  /** What was told of losses. */
  readonly losses: string[];
}

async function open(
  before: BeforeOperation = () => undefined,
  unsynced: readonly number[] = [],
  lost: () => Promise<void> = () => Promise.resolve(),
): Promise<Row> {
  const losses: string[] = [];
  const { files } = faultyIo(createNodeIo(), before);
  const slices = await Slices.open(files, directory, TINY, {
    unsynced: new Set(unsynced),
    lost: ({ message }) => {
      losses.push(message);
      return lost();
    },
  });
  return { slices, losses };
}

async function write(slices: Slices, indices: readonly number[]): Promise<void> {
  const lease = await page.take(PAGE_BYTES);
  lease.bytes.fill(7);
  for (const index of indices) await slices.write(index * PAGE_BYTES, lease.bytes);
  lease.release();
}

/** Slices by the order in which something was done to them. */
class Seen {
  readonly slices: number[] = [];
  #waiting: (() => void)[] | undefined;

  see(path: string): Promise<void> | undefined {
    this.slices.push(Number.parseInt(path.slice(-8), 16));
    const waiting = this.#waiting;
    return waiting && new Promise((resolve) => waiting.push(resolve));
  }

  /** From now on whoever is seen waits until `release`. */
  hold(): void {
    this.#waiting = [];
  }

  release(): void {
    for (const go of this.#waiting ?? []) go();
    this.#waiting = undefined;
  }

  sorted(): number[] {
    return this.slices.splice(0).sort((one, other) => one - other);
  }
}

function upTo(count: number): number[] {
  return [...Array(count).keys()];
}

const failsAt =
  (index: number): BeforeOperation =>
  (operation, path) => {
    if (operation === 'sync' && path.endsWith(index.toString(16).padStart(8, '0'))) {
      throw new HoldfastError('io-error', `the disk has lost slice ${index}`);
    }
  };

describe('a sync of slices', () => {
  it('covers what this process wrote, and of what it found only what may not be synced', async () => {
    const former = await open();
    await write(former.slices, upTo(6));
    await former.slices.close();
    const synced = new Seen();
    const { slices } = await open(
      (operation, path) => (operation === 'sync' ? synced.see(path) : undefined),
      [2, 4, 9],
    );
    await write(slices, [5]);
    await slices.sync();
    expect(synced.sorted()).toEqual([2, 4, 5]);
    await slices.sync();
    expect(synced.sorted()).toEqual([]);
    await slices.close();
  });

  it('is carried out for some slices at once', async () => {
    const synced = new Seen();
    const { slices } = await open((operation, path) => (operation === 'sync' ? synced.see(path) : undefined));
    await write(slices, upTo(20));
    synced.sorted();
    synced.hold();
    const syncing = slices.sync();
    await expect.poll(() => synced.slices.length).toBe(8);
    synced.release();
    await syncing;
    expect(synced.sorted()).toEqual(upTo(20));
    await slices.close();
  });

  it('leaves files open until it has covered them: an error of writing back is told to those who have them open', async () => {
    const opened = new Seen();
    const { slices } = await open((operation, path) => (operation === 'open' ? opened.see(path) : undefined));
    await write(slices, upTo(150));
    await slices.sync();
    expect(opened.sorted()).toEqual(upTo(150));
    await slices.close();
  });

  it.each([0, 11, 19])('fails where that of slice %i does, and so does every later one', async (index) => {
    const former = await open();
    await write(former.slices, upTo(20));
    await former.slices.close();
    const { slices, losses } = await open(failsAt(index), upTo(20));
    for (let time = 0; time < 2; time++) await expect(slices.sync()).rejects.toThrow(`lost slice ${index}`);
    expect(slices.lostWrites).toBe(true);
    expect(losses).toEqual([`the disk has lost slice ${index}`]);
    await slices.close();
  });

  it('that fails is told to nobody before the loss is marked, and marks again where that failed', async () => {
    const former = await open();
    await write(former.slices, [0]);
    await former.slices.close();
    let mark: (() => void) | undefined;
    let tries = 0;
    const { slices } = await open(failsAt(0), [0], () =>
      tries++ === 0
        ? Promise.reject(new HoldfastError('io-error', 'the header can not be written'))
        : new Promise((resolve) => (mark = resolve)),
    );
    await expect(slices.sync()).rejects.toThrow('the header');
    let told = false;
    const syncing = slices.sync().catch(() => (told = true));
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect([tries, told]).toEqual([2, false]);
    mark?.();
    await syncing;
    await expect(slices.sync()).rejects.toThrow('lost slice 0');
    expect(tries).toBe(2);
    await slices.close();
  });

  it('that nobody asked for, since too many files are open, marks a loss too (R10)', async () => {
    let armed = false;
    const { slices, losses } = await open((operation, path) => (armed ? failsAt(0)(operation, path) : undefined));
    await write(slices, [0]);
    armed = true;
    await write(slices, upTo(300));
    await expect.poll(() => losses).toEqual(['the disk has lost slice 0']);
    await slices.close();
  });

  it('that meets the closing of the files marks no loss', async () => {
    const synced = new Seen();
    const { slices, losses } = await open((operation, path) => (operation === 'sync' ? synced.see(path) : undefined));
    await write(slices, upTo(20));
    synced.hold();
    const syncing = slices.sync();
    await new Promise((resolve) => setTimeout(resolve, 10));
    const closing = slices.close();
    synced.release();
    await expect(syncing).rejects.toThrow();
    await closing;
    expect(losses).toEqual([]);
  });
});
