import { afterEach, describe, expect, it } from 'vitest';
import { codeOf, HoldfastError } from '../../../src/base/errors.js';
import { BLOCKS_PER_REGION, CheckedReplica, SMALL } from './checked-replica.js';

const BLOCKS_PER_SLICE = (SMALL.sliceBytes / SMALL.regionBytes) * BLOCKS_PER_REGION;
const SLICES = [0, 1, 2];

/** Slices that were synced, by the last digit of their names. */
let synced: string[] = [];
let failing = false;
let checked: CheckedReplica;

async function create(): Promise<void> {
  checked = await CheckedReplica.create(100, (operation, path) => {
    if (operation !== 'sync' || !path.includes('/data/')) return;
    synced.push(path.slice(-1));
    if (failing) throw new HoldfastError('io-error', 'the kernel dropped what it could not write');
  });
}

afterEach(async () => {
  failing = false;
  await checked.remove();
});

/** The first region of each slice is written. */
async function writeAll(): Promise<void> {
  for (const slice of SLICES) await checked.write(slice * BLOCKS_PER_SLICE, 1, 1 + slice);
}

async function syncedByFlush(): Promise<string[]> {
  synced = [];
  await checked.replica.flush();
  return synced.sort();
}

const regionsPerSlice = SMALL.sliceBytes / SMALL.regionBytes;

describe('the first flush of a replica after a start', () => {
  it('syncs the slices with open regions only: a region is closed when it has been flushed (R2)', async () => {
    await create();
    await writeAll();
    await checked.closeRegions([0, 2 * regionsPerSlice]);
    await checked.kill();
    await checked.start();
    expect(await syncedByFlush()).toEqual(['1']);
    expect(await syncedByFlush()).toEqual([]);
  });

  it('syncs all that a process wrote that was killed before it flushed', async () => {
    await create();
    await writeAll();
    await checked.closeRegions();
    for (const slice of [0, 2]) await checked.trim(slice * BLOCKS_PER_SLICE, 1);
    await checked.kill();
    await checked.start();
    expect(await syncedByFlush()).toEqual(['0', '2']);
  });

  it('syncs every slice of which the region table can not be read', async () => {
    await create();
    await writeAll();
    await checked.closeRegions();
    await checked.kill();
    await checked.rotTable();
    await checked.start();
    expect(await syncedByFlush()).toEqual(['0', '1', '2']);
  });
});

describe('a failed sync that no client asked for', () => {
  it('leaves its mark before a read that found a bad block is answered (R10)', async () => {
    await create();
    await checked.write(0, 1, 7);
    await checked.rot(0, 3);
    failing = true;
    await expect(checked.read(0, 1)).rejects.toSatisfy((error) => codeOf(error) === 'corrupt');
    expect(checked.replica.state.crashMark).toBe(true);
    // The process is killed, and the next finds a disk that was not mounted anew and syncs again.
    await checked.kill();
    failing = false;
    await checked.start();
    expect(checked.replica.state.crashMark).toBe(true);
  });

  it('leaves its mark where the scrub found a bad block (R10)', async () => {
    await create();
    await checked.write(0, 1, 7);
    await checked.rot(0, 3);
    failing = true;
    await checked.scrub();
    expect(checked.replica.state.crashMark).toBe(true);
    expect(checked.damaged()).toEqual([]);
  });
});
