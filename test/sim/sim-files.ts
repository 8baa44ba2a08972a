import { AssertionFailed } from '../../src/base/assert.js';
import { HoldfastError } from '../../src/base/errors.js';
import { PAGE_BYTES, type Extent, type File, type Files } from '../../src/io/io.js';
import type { OperationKind, Work } from './disk-queue.js';
import { FileContent } from './file-content.js';
import { Directory } from './namespace.js';
import type { Schedule } from './schedule.js';
import type { Deliverer } from './sim-clock.js';
import type { SimDisk } from './sim-disk.js';

interface Parts {
  readonly process: Deliverer;
  readonly schedule: Schedule;
  readonly disk: SimDisk;
}

/** A process' files on a simulated disk. */
export class SimFiles implements Files {
  constructor(private readonly parts: Parts) {}

  open(path: string, options: { write: boolean; create: boolean; direct: boolean }): Promise<File> {
    const { disk } = this.parts;
    return this.#do(options.create ? 'write' : 'read', `open ${path}`, () => {
      let found = disk.find(path);
      if (found instanceof Directory) {
        if (options.write) throw new HoldfastError('io-error', `open ${path}: it is a directory`);
        throw new HoldfastError('invalid-argument', `${path} is no regular file`);
      }
      if (found === undefined) {
        if (!options.create) throw new HoldfastError('not-found', `open ${path}: there is no such file`);
        this.#needRoom(`open ${path}`);
        found = disk.createFile(path);
      }
      return new SimFile(this.parts, path, found, options);
    });
  }

  list(directory: string): Promise<string[]> {
    return this.#do('read', `list ${directory}`, () => [
      ...this.#directory(`list ${directory}`, directory).entries.keys(),
    ]);
  }

  makeDirectory(path: string): Promise<void> {
    return this.#do('write', `make directory ${path}`, () => {
      if (!(this.parts.disk.find(path) instanceof Directory)) this.#needRoom(`make directory ${path}`);
      this.parts.disk.makeDirectories(path);
    });
  }

  syncDirectory(path: string): Promise<void> {
    const { disk, process } = this.parts;
    const what = `sync directory ${path}`;
    // What is covered is what was there when it began.
    const found = disk.find(path);
    const { incarnation } = disk;
    const lastEntry = found?.lastEntry ?? 0;
    return disk.queue.submit(process, {
      kind: 'sync',
      what,
      carryOut: () => {
        if (!(found instanceof Directory)) this.#directory(what, path);
        if (disk.incarnation === incarnation) disk.commitJournal(lastEntry);
      },
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.#do('write', `rename ${from} to ${to}`, () => this.parts.disk.rename(from, to));
  }

  remove(path: string): Promise<void> {
    const { disk, process } = this.parts;
    return disk.queue.submit(process, {
      kind: 'write',
      what: `remove ${path}`,
      carryOut: () => disk.remove(path),
      partly: () => disk.remove(path, 1),
    });
  }

  #do<T>(kind: OperationKind, what: string, carryOut: () => T): Promise<T> {
    return this.parts.disk.queue.submit(this.parts.process, { kind, what, carryOut });
  }

  #directory(what: string, path: string): Directory {
    const found = this.parts.disk.find(path);
    if (found instanceof Directory) return found;
    if (found === undefined) throw new HoldfastError('not-found', `${what}: there is no such directory`);
    throw new HoldfastError('io-error', `${what}: it is no directory`);
  }

  #needRoom(what: string): void {
    if (this.parts.disk.faults.full) throw new HoldfastError('no-space', `${what}: the disk is full`);
  }
}

class SimFile implements File {
  readonly #incarnation: number;
  #closed = false;
  #callsUnderWay = 0;
  #whenIdle: (() => void) | undefined;

  constructor(
    private readonly parts: Parts,
    private readonly path: string,
    private readonly content: FileContent,
    private readonly options: { write: boolean; direct: boolean },
  ) {
    this.#incarnation = parts.disk.incarnation;
  }

  read(into: Uint8Array, offset: number): Promise<number> {
    this.#checkAlignment('read', into, offset);
    return this.#do('read', 'read', () => this.content.read(into, offset));
  }

  write(from: Uint8Array, offset: number): Promise<void> {
    this.#checkAlignment('write', from, offset);
    return this.#change('write', {
      carryOut: () => {
        const writable = this.#writableLength(from.length, offset);
        this.#put(writable < from.length ? from.subarray(0, writable) : from, offset);
        if (writable < from.length) throw this.#error('no-space', 'write', 'the disk is full');
      },
      partly: () => {
        if (this.parts.disk.faults.full) return;
        this.content.writeSome(from, offset);
        this.#growTo(offset + from.length);
      },
    });
  }

  sync(): Promise<void> {
    const { content } = this;
    if (!this.#usable) return this.#do('sync', 'sync', () => undefined);
    const mark = content.beginSync();
    const entry = content.lastEntry;
    return this.#submit('sync', 'sync', {
      carryOut: () => {
        content.endSync(mark);
        this.parts.disk.commitJournal(entry);
      },
      dropped: (failed) => {
        if (failed) content.failSync();
        else content.abandonSync();
      },
    });
  }

  truncate(sizeBytes: number): Promise<void> {
    return this.#change('truncate', { carryOut: () => this.parts.disk.setSize(this.content, sizeBytes) });
  }

  size(): Promise<number> {
    return this.#do('look', 'size', () => this.content.sizeBytes);
  }

  punch(offset: number, length: number): Promise<void> {
    return this.#change('punch', { carryOut: () => this.content.punch(offset, length) });
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.#do('read', 'extents', () => extentsOf(this.content, offset, length));
  }

  close(): Promise<void> {
    const { process, schedule } = this.parts;
    if (this.#closed) return process.alive ? Promise.resolve() : new Promise(() => undefined);
    this.#closed = true;
    return new Promise((resolve) => {
      this.#whenIdle = () => {
        schedule.after(0, () => process.deliver(resolve));
      };
      if (this.#callsUnderWay === 0) this.#whenIdle();
    });
  }

  get #usable(): boolean {
    return !this.#closed && this.#incarnation === this.parts.disk.incarnation;
  }

  /** How much of a write finds room; what has pages already needs none. */
  #writableLength(length: number, offset: number): number {
    if (!this.parts.disk.faults.full) return length;
    const first = Math.floor(offset / PAGE_BYTES);
    let page = first;
    while (page * PAGE_BYTES < offset + length && this.content.isAllocated(page)) page++;
    return page === first ? 0 : Math.min(length, page * PAGE_BYTES - offset);
  }

  #put(from: Uint8Array, offset: number): void {
    this.content.write(from, offset);
    if (from.length > 0) this.#growTo(offset + from.length);
  }

  #growTo(end: number): void {
    if (end > this.content.sizeBytes) this.parts.disk.setSize(this.content, end);
  }

  #change(verb: string, work: Pick<Work<void>, 'carryOut' | 'partly'>): Promise<void> {
    if (!this.options.write) {
      return this.#do('look', verb, () => {
        throw this.#error('io-error', verb, 'it was opened for reading');
      });
    }
    return this.#submit('write', verb, work);
  }

  #do<T>(kind: OperationKind, verb: string, carryOut: () => T): Promise<T> {
    return this.#submit(kind, verb, { carryOut });
  }

  async #submit<T>(
    kind: OperationKind,
    verb: string,
    work: Pick<Work<T>, 'carryOut' | 'partly' | 'dropped'>,
  ): Promise<T> {
    const { disk, process } = this.parts;
    if (!this.#usable) return this.#refuse(verb);
    this.#callsUnderWay++;
    try {
      return await disk.queue.submit(process, { kind, what: `${verb} ${this.path}`, ...work });
    } finally {
      if (--this.#callsUnderWay === 0) this.#whenIdle?.();
    }
  }

  /** Fails the call, soon, as one of a closed file or of a filesystem that is gone. */
  #refuse(verb: string): Promise<never> {
    const { schedule, process } = this.parts;
    const error = this.#error('io-error', verb, this.#closed ? 'the file is closed' : 'the filesystem is gone');
    return new Promise((_, reject) => schedule.after(0, () => process.deliver(() => reject(error))));
  }

  #error(code: 'io-error' | 'no-space', verb: string, reason: string): HoldfastError {
    return new HoldfastError(code, `${verb} ${this.path}: ${reason}`);
  }

  /** Direct I/O of anything but whole pages is a defect of the caller, whoever may catch the error. */
  #checkAlignment(verb: string, memory: Uint8Array, offset: number): void {
    if (!this.options.direct) return;
    if (offset % PAGE_BYTES === 0 && memory.length % PAGE_BYTES === 0 && memory.byteOffset % PAGE_BYTES === 0) return;
    const found = `offset ${offset}, length ${memory.length}, memory at ${memory.byteOffset}`;
    const error = new AssertionFailed(`direct ${verb} of ${this.path} is in whole pages: ${found}`);
    this.parts.schedule.fail(error);
    throw error;
  }
}

function extentsOf(content: FileContent, offset: number, length: number): Extent[] {
  const end = offset + length;
  const extents: { length: number; hole: boolean }[] = [];
  const add = (until: number, hole: boolean, from: number): void => {
    const last = extents.at(-1);
    if (last?.hole === hole) last.length += until - from;
    else extents.push({ length: until - from, hole });
  };
  let at = offset;
  const dataEnd = Math.min(end, content.sizeBytes);
  for (const page of content.allocatedIn(Math.floor(offset / PAGE_BYTES), Math.ceil(dataEnd / PAGE_BYTES))) {
    const start = Math.max(page * PAGE_BYTES, offset);
    const stop = Math.min((page + 1) * PAGE_BYTES, dataEnd);
    if (start > at) add(start, true, at);
    if (stop > start) add(stop, false, start);
    at = Math.max(at, stop);
  }
  if (at < end) add(end, true, at);
  return extents;
}
