import fc from 'fast-check';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { crc32c } from '../../../src/base/crc32c.js';
import { HoldfastError } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { decodeSlot, encodeSlot, HeaderFile, type ReplicaHeader } from '../../../src/replica/header.js';
import { LAYOUT } from '../../../src/model/layout.js';
import { LossNote } from '../../../src/replica/loss-note.js';
import { decodePage, encodePage, OPEN, RegionTable } from '../../../src/replica/region-table.js';
import { Replica } from '../../../src/replica/replica.js';
import { faultyIo } from '../../support/faulty-files.js';

const io = createNodeIo();
const slab = io.slab(8 * 1024 * 1024);
const MIB = 1024 * 1024;
const HEADER: ReplicaHeader = {
  format: 2,
  volume: `vol-${'a'.repeat(32)}`,
  capacityBytes: 64 * MIB,
  regionBytes: 4 * MIB,
  epoch: 3,
  session: '',
  incarnation: 'boot-1',
  crashMark: false,
  stoppedClean: false,
  damage: [7, 1, 300, 25],
};

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-replica-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

describe('CRC-32C', () => {
  it('gives the check value of the algorithm', () => {
    expect(crc32c(new TextEncoder().encode('123456789'))).toBe(0xe3069283);
  });
});

describe('a replica header', () => {
  it('survives a torn or rotten write of either slot', async () => {
    const path = join(directory, 'header');
    await HeaderFile.create(io.files, path, HEADER);
    const header = await HeaderFile.open(io.files, path);
    await header.change({ epoch: 4 });
    await header.change({ epoch: 5 });
    await header.close();
    const bytes = await readFile(path);
    await fc.assert(
      fc.asyncProperty(fc.nat(4095), fc.integer({ min: 1, max: 255 }), fc.boolean(), async (at, flip, newer) => {
        const broken = Uint8Array.from(bytes);
        const index = at + (newer ? 0 : 4096);
        broken[index] = (broken[index] ?? 0) ^ flip;
        await writeFile(path, broken);
        const found = await HeaderFile.open(io.files, path);
        expect([4, 5]).toContain(found.value.epoch);
        if (!newer) expect(found.value.epoch).toBe(5);
        await found.close();
      }),
      { numRuns: 60 },
    );
  });

  it('is refused where neither slot is valid', async () => {
    const path = join(directory, 'header');
    await writeFile(path, Buffer.alloc(8192, 7));
    await expect(HeaderFile.open(io.files, path)).rejects.toThrow(/no valid replica header/);
  });

  it('is refused by name where its replica has another format', async () => {
    const path = join(directory, 'header');
    const first = Object.fromEntries(Object.entries(HEADER).filter(([name]) => name !== 'format' && name !== 'damage'));
    await writeFile(path, Buffer.concat([encodeSlot(first as unknown as ReplicaHeader, 1), Buffer.alloc(4096)]));
    await expect(HeaderFile.open(io.files, path)).rejects.toThrow(/is of format 1; .* format 2 only/);
    await writeFile(path, Buffer.concat([encodeSlot({ ...HEADER, format: 3 }, 1), Buffer.alloc(4096)]));
    await expect(HeaderFile.open(io.files, path)).rejects.toThrow(/is of format 3/);
  });

  it('decodes what it encoded, and nothing else', () => {
    expect(decodeSlot(encodeSlot(HEADER, 9))).toEqual({ header: HEADER, sequence: 9 });
    fc.assert(fc.property(fc.uint8Array({ maxLength: 4096 }), (bytes) => decodeSlot(bytes) === undefined));
  });
});

describe('a region table', () => {
  const ENTRIES_PER_PAGE = 248;

  it('decodes what it encoded', () => {
    const entry = fc.record({ stamp: fc.oneof(fc.constant(OPEN), fc.nat()), row: fc.nat(0xffffffff) });
    fc.assert(
      fc.property(fc.array(entry, { minLength: 1, maxLength: 600 }), (list) => {
        const columns = {
          entries: Float64Array.from(list.map(({ stamp }) => stamp)),
          rowChecksums: Uint32Array.from(list.map(({ row }) => row)),
        };
        const found = { entries: new Float64Array(list.length), rowChecksums: new Uint32Array(list.length) };
        for (let page = 0; page * ENTRIES_PER_PAGE < list.length; page++) {
          decodePage(encodePage(columns, page), page, found);
        }
        expect(found).toEqual(columns);
      }),
    );
  });

  it('takes every entry of a sector that does not check, or is cut off, for open', () => {
    const columns = { entries: new Float64Array(248).fill(7), rowChecksums: new Uint32Array(248).fill(9) };
    const page = encodePage(columns, 0);
    page[600] = 1;
    const found = { entries: new Float64Array(248), rowChecksums: new Uint32Array(248) };
    decodePage(page.subarray(0, 4096 - 512), 0, found);
    expect([...found.entries.slice(0, 31)].every((entry) => entry === 7)).toBe(true);
    expect([...found.rowChecksums.slice(0, 31)].every((row) => row === 9)).toBe(true);
    expect([...found.entries.slice(31, 62)].every((entry) => entry === OPEN)).toBe(true);
    expect([...found.rowChecksums.slice(31, 62)].every((row) => row === 0)).toBe(true);
    expect([...found.entries.slice(217)].every((entry) => entry === OPEN)).toBe(true);
  });

  it('knows the rows of open regions after an orderly stop only', async () => {
    const path = join(directory, 'regions');
    await RegionTable.create(io.files, path, 10, 0);
    const table = await RegionTable.open(io.files, path, 10);
    await table.open(3, 3);
    table.setRowChecksum(3, 77);
    table.setRowChecksum(4, 88);
    await table.saveOpen();
    await table.close([{ region: 4, stamp: 5 }]);
    await table.closeFile();
    for (const stoppedClean of [true, false]) {
      const again = await RegionTable.open(io.files, path, 10, stoppedClean);
      expect([again.rowChecksum(3), again.rowChecksum(4)]).toEqual([stoppedClean ? 77 : 0, 88]);
      await again.closeFile();
    }
  });

  it('has the open entry on disk before the opening resolves', async () => {
    const path = join(directory, 'regions');
    await RegionTable.create(io.files, path, 1_000, 0);
    const table = await RegionTable.open(io.files, path, 1_000);
    await table.open(600, 602);
    expect(table.open(600, 602)).toBeUndefined();
    const other = await RegionTable.open(io.files, path, 1_000);
    expect([599, 600, 602, 603].map((region) => other.entry(region))).toEqual([0, OPEN, OPEN, 0]);
    await table.close([{ region: 600, stamp: 9 }]);
    const opening = table.open(600, 600);
    expect(opening).toBeDefined();
    await opening;
    await table.closeFile();
    await other.closeFile();
  });

  it('tells itself in runs from anywhere', async () => {
    const path = join(directory, 'regions');
    await RegionTable.create(io.files, path, 100, 0);
    const table = await RegionTable.open(io.files, path, 100);
    await table.open(10, 19);
    await table.grow(120);
    expect(table.runs(0, 100)).toEqual([
      { count: 10, entry: 0 },
      { count: 10, entry: OPEN },
      { count: 100, entry: 0 },
    ]);
    expect(table.runs(15, 1)).toEqual([{ count: 5, entry: OPEN }]);
    await table.closeFile();
  });
});

describe('a replica', () => {
  const path = (): string => join(directory, HEADER.volume);

  async function fresh(): Promise<Replica> {
    await Replica.create(io, LAYOUT, path(), { volume: HEADER.volume, capacityBytes: 64 * MIB, incarnation: 'boot-1' });
    return Replica.open(io, silentLog(), LAYOUT, path(), 'boot-1');
  }

  async function write(replica: Replica, offset: number, fill: number): Promise<void> {
    const lease = await slab.take(4096);
    lease.bytes.fill(fill);
    await replica.write(offset, lease, false);
    lease.release();
  }

  describe('whose flush fails', () => {
    const note = (): LossNote => new LossNote(io.files, join(directory, 'notes'), HEADER.volume);

    async function failing(fails: (path: string) => boolean, before?: () => Promise<void>): Promise<void> {
      await fresh().then((replica) => replica.close());
      let armed = false;
      const faulty = faultyIo(io, (operation, file) => {
        if (armed && operation === 'sync' && fails(file)) throw new HoldfastError('io-error', 'the disk has failed');
      });
      const replica = await Replica.open(faulty, silentLog(), LAYOUT, path(), 'boot-1', { note: note() });
      await write(replica, 0, 1);
      await before?.();
      armed = true;
      await expect(replica.flush()).rejects.toMatchObject({ code: 'io-error' });
      await replica.abandon();
    }

    const reopened = (): Promise<Replica> => Replica.open(io, silentLog(), LAYOUT, path(), 'boot-1', { note: note() });

    it('is marked by the next process too where the mark could not be written (R10)', async () => {
      await failing(() => true);
      const next = await reopened();
      expect(next.state.crashMark).toBe(true);
      expect(await note().exists()).toBe(false);
      await next.close();
    });

    it('is marked though the failure can not be noted', async () => {
      const inTheWay = (): Promise<void> => writeFile(join(directory, 'notes'), 'not a directory');
      await failing((file) => file.includes('/data/'), inTheWay);
      await rm(join(directory, 'notes'));
      const next = await reopened();
      expect(next.state.crashMark).toBe(true);
      await next.close();
    });

    it('leaves no note once it is marked', async () => {
      await failing((file) => file.includes('/data/'));
      expect(await note().exists()).toBe(false);
    });
  });

  it('is marked when its disk was mounted anew while regions were open', async () => {
    const replica = await fresh();
    await write(replica, 0, 1);
    expect((await Replica.open(io, silentLog(), LAYOUT, path(), 'boot-1')).state.crashMark).toBe(false);
    expect((await Replica.open(io, silentLog(), LAYOUT, path(), 'boot-2')).state.crashMark).toBe(true);
    expect((await Replica.open(io, silentLog(), LAYOUT, path(), 'boot-2')).state.crashMark).toBe(true);
  });

  it('is not marked after an orderly stop, nor with all regions closed', async () => {
    const replica = await fresh();
    await write(replica, 0, 1);
    await replica.close();
    const again = await Replica.open(io, silentLog(), LAYOUT, path(), 'boot-2');
    expect(again.state.crashMark).toBe(false);
    await again.closeRegions([{ region: 0, stamp: 4 }]);
    expect((await Replica.open(io, silentLog(), LAYOUT, path(), 'boot-3')).state.crashMark).toBe(false);
  });

  it('leaves a region that was never written alone when it is trimmed', async () => {
    const replica = await fresh();
    await write(replica, 0, 1);
    await replica.trim(0, 64 * MIB, false);
    expect(replica.openRegions).toBe(1);
    const lease = await replica.read(0, 4096, slab);
    expect(lease.bytes.every((byte) => byte === 0)).toBe(true);
    lease.release();
    await replica.close();
  });

  it('serves as it was after an unfinished creation is made again', async () => {
    await Replica.create(io, LAYOUT, path(), { volume: HEADER.volume, capacityBytes: 4 * MIB, incarnation: 'x' });
    await expect(
      Replica.create(io, LAYOUT, path(), { volume: HEADER.volume, capacityBytes: 4 * MIB, incarnation: 'x' }),
    ).rejects.toThrow();
    const replica = await Replica.open(io, silentLog(), LAYOUT, path(), 'x');
    await write(replica, 0, 5);
    await replica.close();
  });
});
