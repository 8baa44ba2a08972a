import { PAGE_BYTES } from '../../src/io/io.js';
import type { PagePool } from './page-pool.js';
import type { Prng } from './prng.js';

export const SECTOR_BYTES = 512;
const SECTORS = PAGE_BYTES / SECTOR_BYTES;
/** Of a page that is written again and again before a sync, so many contents in between are kept at most. */
const MAX_VERSIONS = 4;

/** The content of a page; undefined is a hole. */
type Page = Uint8Array | undefined;

interface Version {
  readonly page: Page;
  /** The number of the change that made it. */
  readonly change: number;
}

/** What may be found of a page after a crash. The last version is the visible one. */
interface Unsynced {
  durable: Page;
  readonly versions: Version[];
}

/**
 * The bytes of one file: what is visible, and for each page changed since the last sync, what is durable and what was
 * visible in between. Every page array stands at one place only, so it can be used again when it leaves that.
 */
export class FileContent {
  /** Visible size; the durable one is the namespace's matter, since it is journaled. */
  sizeBytes = 0;
  durableSizeBytes = 0;
  /** The last entry of the disk's journal that concerns this file. */
  lastEntry = 0;
  readonly #pages = new Map<number, Uint8Array>();
  readonly #unsynced = new Map<number, Unsynced>();
  #changes = 0;
  #syncsUnderWay = 0;

  constructor(
    private readonly pool: PagePool,
    private readonly random: Prng,
  ) {}

  get pageCount(): number {
    return this.#pages.size;
  }

  /** Numbers of the pages that take space, ascending. */
  allocated(): number[] {
    return [...this.#pages.keys()].sort((one, other) => one - other);
  }

  /** Those of them in first … end - 1. */
  allocatedIn(first: number, end: number): number[] {
    if (end - first > this.#pages.size) return this.allocated().filter((page) => page >= first && page < end);
    const found: number[] = [];
    for (let page = first; page < end; page++) if (this.#pages.has(page)) found.push(page);
    return found;
  }

  isAllocated(page: number): boolean {
    return this.#pages.has(page);
  }

  /** Reads what is visible; resolves to the number of bytes, short of `into` only at the end of the file. */
  read(into: Uint8Array, offset: number): number {
    const count = Math.max(0, Math.min(into.length, this.sizeBytes - offset));
    for (let done = 0; done < count;) {
      const at = offset + done;
      const start = at % PAGE_BYTES;
      const length = Math.min(PAGE_BYTES - start, count - done);
      const page = this.#pages.get((at - start) / PAGE_BYTES);
      if (page === undefined) into.fill(0, done, done + length);
      else if (length === PAGE_BYTES) into.set(page, done);
      else into.set(page.subarray(start, start + length), done);
      done += length;
    }
    return count;
  }

  write(from: Uint8Array, offset: number): void {
    for (let done = 0; done < from.length;) {
      const at = offset + done;
      const start = at % PAGE_BYTES;
      const length = Math.min(PAGE_BYTES - start, from.length - done);
      const number = (at - start) / PAGE_BYTES;
      const page = this.pool.take();
      if (length < PAGE_BYTES) {
        const old = this.#pages.get(number);
        if (old === undefined) page.fill(0);
        else page.set(old);
      }
      page.set(from.subarray(done, done + length), start);
      this.#put(number, page);
      done += length;
    }
  }

  /** Writes a random subset of the sectors. */
  writeSome(from: Uint8Array, offset: number): void {
    for (let done = 0; done < from.length;) {
      const at = offset + done;
      const length = Math.min(SECTOR_BYTES - (at % SECTOR_BYTES), from.length - done);
      if (this.random.chance(0.5)) this.write(from.subarray(done, done + length), at);
      done += length;
    }
  }

  punch(offset: number, length: number): void {
    const end = offset + length;
    const firstWhole = Math.ceil(offset / PAGE_BYTES);
    const endWhole = Math.floor(end / PAGE_BYTES);
    for (const page of this.allocatedIn(firstWhole, endWhole)) this.#put(page, undefined);
    if (firstWhole > endWhole) this.#zero(offset, end);
    else {
      this.#zero(offset, firstWhole * PAGE_BYTES);
      this.#zero(endWhole * PAGE_BYTES, end);
    }
  }

  /** What a shrinking file loses. (A crash may keep the loss without the new size: real disks lose nothing there.) */
  cut(sizeBytes: number): void {
    if (sizeBytes < this.sizeBytes) this.punch(sizeBytes, this.#paddedSize() - sizeBytes);
  }

  /** A sync begins; the mark goes to `endSync`. */
  beginSync(): number {
    this.#syncsUnderWay++;
    return this.#changes;
  }

  /** What had changed when the sync began is durable. */
  endSync(mark: number): void {
    this.#syncsUnderWay--;
    for (const [number, unsynced] of this.#unsynced) {
      const { versions } = unsynced;
      let covered = 0;
      while (covered < versions.length && (versions[covered] as Version).change <= mark) covered++;
      if (covered === 0) continue;
      this.pool.give(unsynced.durable);
      for (let index = 0; index < covered - 1; index++) this.pool.give(versions[index]?.page);
      if (covered === versions.length) {
        this.#unsynced.delete(number);
      } else {
        unsynced.durable = versions[covered - 1]?.page;
        versions.splice(0, covered);
      }
    }
  }

  /** The sync will not end: whoever asked for it has died. */
  abandonSync(): void {
    this.#syncsUnderWay--;
  }

  /** A sync has failed: the kernel drops what it could not write, and that is seen at once. */
  failSync(): void {
    this.#syncsUnderWay--;
    const survival = drawSurvival(this.random);
    for (const [number, unsynced] of this.#unsynced) {
      const kept = this.#choose(unsynced, survival);
      // What was written need not be durable before the next sync that succeeds.
      const isDurable = kept !== undefined && kept === unsynced.durable;
      for (const { page } of unsynced.versions) if (page !== kept) this.pool.give(page);
      this.#show(number, kept);
      if (isDurable || (kept === undefined && unsynced.durable === undefined)) this.#unsynced.delete(number);
      else unsynced.versions.splice(0, unsynced.versions.length, { page: kept, change: ++this.#changes });
    }
  }

  /** The power fails: of each unsynced change every sector survives with probability `survival`. */
  crash(survival: number): void {
    for (const [number, unsynced] of this.#unsynced) {
      const kept = this.#choose(unsynced, survival);
      for (const { page } of unsynced.versions) if (page !== kept) this.pool.give(page);
      if (unsynced.durable !== kept) this.pool.give(unsynced.durable);
      this.#show(number, kept);
    }
    this.#unsynced.clear();
    this.#syncsUnderWay = 0;
    this.sizeBytes = this.durableSizeBytes;
    // Where the data survived and the size did not, nothing is left beyond the end.
    for (const [number, page] of this.#pages) {
      const length = this.sizeBytes - number * PAGE_BYTES;
      if (length > 0) {
        if (length < PAGE_BYTES) page.fill(0, length);
      } else {
        this.#pages.delete(number);
        this.pool.give(page);
      }
    }
  }

  /** A copy of what would be there if every unsynced change were lost. */
  durableCopy(pool: PagePool, random: Prng): FileContent {
    const copy = new FileContent(pool, random);
    copy.sizeBytes = copy.durableSizeBytes = this.durableSizeBytes;
    const numbers = new Set([...this.#pages.keys(), ...this.#unsynced.keys()]);
    for (const number of numbers) {
      const unsynced = this.#unsynced.get(number);
      const page = unsynced ? unsynced.durable : this.#pages.get(number);
      if (page === undefined || number * PAGE_BYTES >= copy.sizeBytes) continue;
      const copied = pool.take();
      copied.set(page);
      copy.#pages.set(number, copied);
    }
    return copy;
  }

  /** Changes one bit wherever the byte is kept; a hole has none. */
  flipBit(offset: number, bit: number): void {
    const number = Math.floor(offset / PAGE_BYTES);
    const unsynced = this.#unsynced.get(number);
    const pages = new Set([
      this.#pages.get(number),
      unsynced?.durable,
      ...(unsynced?.versions ?? []).map((v) => v.page),
    ]);
    for (const page of pages) if (page) page[offset % PAGE_BYTES] = (page[offset % PAGE_BYTES] ?? 0) ^ (1 << bit);
  }

  /** Makes `page` the visible content. */
  #put(number: number, page: Page): void {
    const change = ++this.#changes;
    const known = this.#unsynced.get(number);
    if (known === undefined) {
      this.#unsynced.set(number, { durable: this.#pages.get(number), versions: [{ page, change }] });
    } else {
      const { versions } = known;
      versions.push({ page, change });
      // One that a sync under way covers must stay.
      if (versions.length > MAX_VERSIONS && this.#syncsUnderWay === 0) {
        const [dropped] = versions.splice(this.random.below(versions.length - 1), 1);
        this.pool.give(dropped?.page);
      }
    }
    this.#show(number, page);
  }

  #show(number: number, page: Page): void {
    if (page === undefined) this.#pages.delete(number);
    else this.#pages.set(number, page);
  }

  #zero(from: number, to: number): void {
    if (from >= to || !this.#pages.has(Math.floor(from / PAGE_BYTES))) return;
    this.write(new Uint8Array(to - from), from);
  }

  #paddedSize(): number {
    return Math.ceil(this.sizeBytes / PAGE_BYTES) * PAGE_BYTES;
  }

  /** What a page holds afterwards: one of its contents, or a new page with sectors of several. */
  #choose({ durable, versions }: Unsynced, survival: number): Page {
    const { random } = this;
    const choose = (): Page => {
      for (let index = versions.length - 1; index >= 0; index--) {
        if (random.chance(survival)) return versions[index]?.page;
      }
      return durable;
    };
    const first = choose();
    // Most pages are lost or kept as a whole.
    if (survival === 0 || survival === 1 || random.chance(0.5)) return first;
    const sectors = Array.from({ length: SECTORS }, choose);
    if (sectors.every((page) => page === first)) return first;
    const mixed = this.pool.take();
    for (let sector = 0; sector < SECTORS; sector++) {
      const start = sector * SECTOR_BYTES;
      const page = sectors[sector];
      if (page === undefined) mixed.fill(0, start, start + SECTOR_BYTES);
      else mixed.set(page.subarray(start, start + SECTOR_BYTES), start);
    }
    return mixed;
  }
}

/** How likely a change survives this time: often all do or none does. */
export function drawSurvival(random: Prng): number {
  const draw = random.below(4);
  return draw === 0 ? 0 : draw === 1 ? 1 : random.fraction();
}
