import { HoldfastError } from '../../src/base/errors.js';
import { DiskQueue, SettableFaults, type DiskFaults } from './disk-queue.js';
import { drawSurvival, FileContent } from './file-content.js';
import {
  apply,
  copyTree,
  Directory,
  filesIn,
  lookUp,
  nameOf,
  namesOf,
  parentOf,
  pathsBelow,
  type NameChange,
} from './namespace.js';
import { PagePool } from './page-pool.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import type { Deliverer } from './sim-clock.js';

export type { DiskFaults } from './disk-queue.js';

/** All that was durable on a disk at one time. */
export class DiskImage {
  /** The tree belongs to the image: nothing changes it. */
  constructor(readonly root: Directory) {}
}

/**
 * One disk with a filesystem, which outlives processes and crashes.
 *
 * Data is durable by a sync of its file. Names and sizes go through a journal, in order, as XFS' do: a sync of a file
 * or directory makes durable what concerns it and everything journaled before that; a crash keeps any beginning of the
 * rest. Methods of this class take no time and never fail for a fault: they are for processes' files, which add
 * both (SimFiles), and for whoever looks on from outside.
 */
export class SimDisk {
  readonly faults: DiskFaults;
  /** The mount. Files opened on an earlier one fail. */
  incarnation = 1;
  readonly queue: DiskQueue;
  readonly #random: Prng;
  readonly #pool = new PagePool();
  #root = new Directory();
  /** The tree as a crash would leave it at worst. Files are the same objects as in the visible one. */
  #durableRoot = new Directory();
  /** Changes that are not durable; the first has the number #firstEntry. */
  #journal: NameChange[] = [];
  #firstEntry = 1;

  constructor(schedule: Schedule, random: Prng) {
    this.#random = random.fork();
    const faults = new SettableFaults();
    this.faults = faults;
    this.queue = new DiskQueue(schedule, random.fork(), faults);
  }

  /** Power cut, or the device was torn away: unsynced changes survive or not, sector by sector. */
  crash(): void {
    this.queue.interrupt(false);
    const survival = drawSurvival(this.#random);
    const length = this.#journal.length;
    const kept = survival === 0 ? 0 : survival === 1 ? length : this.#random.below(length + 1);
    this.#commit(this.#firstEntry + kept - 1);
    for (const [, content] of filesIn(this.#durableRoot)) content.crash(survival);
    this.#mount(this.#durableRoot);
  }

  /** A clean unmount, and a mount: nothing is lost. */
  remount(): void {
    this.queue.interrupt(true);
    this.#commit(Infinity);
    for (const [, content] of filesIn(this.#root)) content.endSync(content.beginSync());
    this.#mount(this.#durableRoot);
  }

  snapshot(): DiskImage {
    const pool = new PagePool();
    return new DiskImage(copyTree(this.#durableRoot, (content) => content.durableCopy(pool, this.#random)));
  }

  /** The disk is what it was then. */
  restore(image: DiskImage): void {
    this.queue.interrupt(false);
    this.#mount(copyTree(image.root, (content) => content.durableCopy(this.#pool, this.#random)));
  }

  /** A new, empty disk. */
  wipe(): void {
    this.queue.interrupt(false);
    this.#mount(new Directory());
  }

  /** Silent corruption of a byte that is not in a hole. */
  flipBit(path: string, offset: number, bit: number): void {
    this.#file(path)?.flipBit(offset, bit);
  }

  /** Visible bytes, cut at the end of the file; undefined where there is no such file. */
  peek(path: string, offset: number, length: number): Uint8Array | undefined {
    const content = this.#file(path);
    if (content === undefined) return undefined;
    const bytes = new Uint8Array(Math.max(0, Math.min(length, content.sizeBytes - offset)));
    content.read(bytes, offset);
    return bytes;
  }

  size(path: string): number | undefined {
    return this.#file(path)?.sizeBytes;
  }

  /** Names in a directory; none where it is missing. */
  list(directory: string): string[] {
    const found = lookUp(this.#root, directory);
    return found instanceof Directory ? [...found.entries.keys()] : [];
  }

  /** Paths of all files. */
  paths(): string[] {
    return [...filesIn(this.#root)].map(([path]) => path);
  }

  /** Numbers of the pages of a file that take space, ascending. */
  allocatedPages(path: string): number[] {
    return this.#file(path)?.allocated() ?? [];
  }

  usedBytes(): number {
    let pages = 0;
    for (const [, content] of filesIn(this.#root)) pages += content.pageCount;
    return pages * 4096;
  }

  /** A process has died: what it has under way is done now, wholly, partly or not at all. */
  processEnded(process: Deliverer): void {
    this.queue.forget(process);
  }

  /** What stands at the path: a file, a directory or nothing. */
  find(path: string): FileContent | Directory | undefined {
    return lookUp(this.#root, path);
  }

  createFile(path: string): FileContent {
    const parent = parentOf(this.#root, path);
    const content = new FileContent(this.#pool, this.#random);
    this.#change({ kind: 'file', path, content }, parent, content);
    return content;
  }

  /** Makes the directories of the path that are missing. */
  makeDirectories(path: string): void {
    let at = '';
    for (const name of namesOf(path)) {
      at += `/${name}`;
      const found = lookUp(this.#root, at);
      if (found instanceof Directory) continue;
      if (found !== undefined) throw new HoldfastError('already-exists', `make directory ${path}: ${at} is a file`);
      this.#makeDirectory(at);
    }
  }

  rename(from: string, to: string): void {
    const what = `rename ${from} to ${to}`;
    const source = parentOf(this.#root, from);
    const target = parentOf(this.#root, to);
    const moved = source.entries.get(nameOf(from));
    const replaced = target.entries.get(nameOf(to));
    if (moved === undefined) throw new HoldfastError('not-found', `${what}: there is no such file`);
    if (moved === replaced) return;
    if (`${clean(to)}/`.startsWith(`${clean(from)}/`)) throw new HoldfastError('io-error', `${what}: into itself`);
    if (replaced instanceof Directory && replaced.entries.size > 0) {
      throw new HoldfastError('already-exists', `${what}: the directory is not empty`);
    }
    if (replaced !== undefined && replaced instanceof Directory !== moved instanceof Directory) {
      throw new HoldfastError('io-error', `${what}: one is a directory, the other is not`);
    }
    this.#change({ kind: 'rename', from, to }, source, target, moved);
  }

  /** Removes `count` of the things at and below the path, all of them if not told. */
  remove(path: string, count = Infinity): void {
    const found = lookUp(this.#root, path);
    if (found === undefined) return;
    for (const gone of pathsBelow(path, found).slice(0, count)) {
      this.#change({ kind: 'remove', path: gone }, parentOf(this.#root, gone));
    }
  }

  setSize(content: FileContent, sizeBytes: number): void {
    content.cut(sizeBytes);
    content.sizeBytes = sizeBytes;
    this.#change({ kind: 'size', content, sizeBytes }, content);
  }

  /** Makes durable what is journaled up to the entry. */
  commitJournal(lastEntry: number): void {
    this.#commit(lastEntry);
  }

  #makeDirectory(path: string): void {
    const parent = parentOf(this.#root, path);
    this.#change({ kind: 'directory', path }, parent);
    const made = parent.entries.get(nameOf(path));
    if (made) made.lastEntry = parent.lastEntry;
  }

  #change(change: NameChange, ...concerned: (Directory | FileContent)[]): void {
    if (change.kind !== 'size') apply(this.#root, change);
    this.#journal.push(change);
    const entry = this.#firstEntry + this.#journal.length - 1;
    for (const one of concerned) one.lastEntry = entry;
  }

  #commit(lastEntry: number): void {
    const count = Math.min(this.#journal.length, lastEntry - this.#firstEntry + 1);
    if (count <= 0) return;
    for (const change of this.#journal.splice(0, count)) apply(this.#durableRoot, change);
    this.#firstEntry += count;
  }

  #mount(root: Directory): void {
    this.incarnation++;
    this.#firstEntry += this.#journal.length;
    this.#journal = [];
    this.#durableRoot = root;
    this.#root = copyTree(root, (content) => content);
  }

  #file(path: string): FileContent | undefined {
    const found = lookUp(this.#root, path);
    return found instanceof FileContent ? found : undefined;
  }
}

function clean(path: string): string {
  return `/${namesOf(path).join('/')}`;
}
