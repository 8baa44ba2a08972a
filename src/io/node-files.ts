import { close, constants, fdatasync, fstat, ftruncate, open, read, write } from 'node:fs';
import { mkdir, open as openHandle, readdir, rename } from 'node:fs/promises';
import { GroupCommit } from '../base/group-commit.js';
import { asHoldfastError, HoldfastError } from '../base/errors.js';
import { CallsByDisk, type DiskCalls } from './disk-calls.js';
import { PAGE_BYTES, type Extent, type File, type Files } from './io.js';
import { errnoOf, systemError } from './node-errors.js';
import { punchHole, seekData, seekHole } from './node-system-calls.js';
import { removeTree } from './remove-tree.js';

/** What a file opened buffered may leave in the page cache before its writes wait for the disk. */
const MAX_DIRTY_BYTES = 16 * 1024 * 1024;

type Answer = (error: Error | null) => void;
type CountAnswer = (error: Error | null, count: number) => void;
type Start<T> = (answer: (error: Error | null, value: T) => void) => void;

export class NodeFiles implements Files {
  readonly #calls: CallsByDisk;

  /** `calls`: how many may be under way at once, over all disks (thread-pool.ts). */
  constructor(calls: number) {
    this.#calls = new CallsByDisk(calls);
  }

  /** Files below `directory` are on a disk of their own: when it hangs, only they wait. */
  addDisk(directory: string): void {
    this.#calls.add(directory);
  }

  async open(path: string, options: { write: boolean; create: boolean; direct: boolean }): Promise<File> {
    const flags = (options.write ? constants.O_RDWR : constants.O_RDONLY) | (options.create ? constants.O_CREAT : 0);
    const calls = this.#calls.of(path);
    if (options.direct) {
      try {
        const fd = await calls.run(() => openFile(path, flags | constants.O_DIRECT));
        return new NodeFile(fd, path, 'direct', calls);
      } catch (error) {
        if (errnoOf(error) !== 'EINVAL') throw systemError(error, `open ${path}`);
      }
    }
    const fd = await this.#run(`open ${path}`, path, () => openFile(path, flags));
    return new NodeFile(fd, path, options.direct ? 'fallback' : 'buffered', calls);
  }

  list(directory: string): Promise<string[]> {
    return this.#run(`list ${directory}`, directory, () => readdir(directory));
  }

  async makeDirectory(path: string): Promise<void> {
    await this.#run(`make directory ${path}`, path, () => mkdir(path, { recursive: true }));
  }

  syncDirectory(path: string): Promise<void> {
    return this.#run(`sync directory ${path}`, path, async () => {
      const handle = await openHandle(path, constants.O_RDONLY | constants.O_DIRECTORY);
      try {
        await handle.sync();
      } finally {
        await handle.close();
      }
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.#run(`rename ${from} to ${to}`, from, () => rename(from, to));
  }

  remove(path: string): Promise<void> {
    return this.#run(`remove ${path}`, path, () => removeTree(path));
  }

  async #run<T>(what: string, path: string, work: () => Promise<T>): Promise<T> {
    try {
      return await this.#calls.of(path).run(work);
    } catch (error) {
      throw systemError(error, what);
    }
  }
}

/** `fallback`: buffered, though direct I/O was asked for. */
type Mode = 'direct' | 'buffered' | 'fallback';

class NodeFile implements File {
  #closed = false;
  #callsUnderWay = 0;
  #whenIdle: (() => void) | undefined;
  #dirtyBytes = 0;
  /** A failed sync, perhaps one within a write. The kernel tells it once, and the next one would seem to succeed. */
  #lost: HoldfastError | undefined;
  readonly #commit: GroupCommit;

  constructor(
    private readonly fd: number,
    private readonly path: string,
    private readonly mode: Mode,
    private readonly calls: DiskCalls,
  ) {
    this.#commit = new GroupCommit(() => this.#syncData());
  }

  async read(into: Uint8Array, offset: number): Promise<number> {
    let done = 0;
    while (done < into.length) {
      const count = await this.#transfer('read', into, offset, done);
      done += count;
      if (count === 0) break;
      // Direct I/O is short of a page only at the end of the file, and could not go on from there.
      if (this.mode === 'direct' && count % PAGE_BYTES !== 0) break;
    }
    return done;
  }

  async write(from: Uint8Array, offset: number): Promise<void> {
    let done = 0;
    while (done < from.length) {
      const count = await this.#transfer('write', from, offset, done);
      let next = done + count;
      // Direct I/O goes on at a page boundary only.
      if (this.mode === 'direct' && next < from.length) next -= next % PAGE_BYTES;
      if (next <= done)
        throw new HoldfastError('io-error', `write ${this.path} at ${offset + done}: nothing was written`);
      done = next;
    }
    if (this.mode !== 'fallback') return;
    this.#dirtyBytes += from.length;
    if (this.#dirtyBytes > MAX_DIRTY_BYTES) await this.#commit.run();
  }

  sync(): Promise<void> {
    return this.#commit.run();
  }

  truncate(sizeBytes: number): Promise<void> {
    return this.#call('truncate', (answer: Answer) => ftruncate(this.fd, sizeBytes, answer));
  }

  async size(): Promise<number> {
    return this.#call('size', (answer: CountAnswer) => {
      fstat(this.fd, (error, stats) => {
        // On failure there are no stats, whatever the type says.
        if (error) answer(error, 0);
        else answer(null, stats.size);
      });
    });
  }

  punch(offset: number, length: number): Promise<void> {
    return this.#run('punch', () => punchHole(this.fd, offset, length));
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.#run('extents', () => readExtents(this.fd, offset, length));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    // The number of a closed file may belong to another one at once; a late call must not hit that.
    if (this.#callsUnderWay > 0) await new Promise<void>((resolve) => (this.#whenIdle = resolve));
    const closed: Promise<void> = this.#begin('close', (answer: Answer) => close(this.fd, answer));
    await closed;
  }

  async #syncData(): Promise<void> {
    if (this.#lost) throw this.#lost;
    this.#dirtyBytes = 0;
    const synced: Promise<void> = this.#call('sync', (answer: Answer) => fdatasync(this.fd, answer));
    try {
      await synced;
    } catch (error) {
      if (this.mode === 'fallback') this.#lost = asHoldfastError(error);
      throw error;
    }
  }

  #transfer(verb: 'read' | 'write', memory: Uint8Array, offset: number, done: number): Promise<number> {
    return this.#call(verb, (answer: CountAnswer) => {
      if (verb === 'read') read(this.fd, memory, done, memory.length - done, offset + done, answer);
      else write(this.fd, memory, done, memory.length - done, offset + done, answer);
    });
  }

  #call<T>(verb: string, start: Start<T>): Promise<T> {
    if (this.#closed) return Promise.reject(this.#closedError(verb));
    return this.#begin(verb, start);
  }

  #begin<T>(verb: string, start: Start<T>): Promise<T> {
    this.#callsUnderWay++;
    return new Promise((resolve, reject) => {
      const answer = (error: unknown, value: T): void => {
        this.calls.end();
        this.#ended();
        if (error) reject(systemError(error, `${verb} ${this.path}`));
        else resolve(value);
      };
      this.calls.begin(() => {
        try {
          start(answer);
        } catch (error) {
          // Refused by Node, perhaps within the end of another call, which it must not reach.
          answer(error, undefined as T);
        }
      });
    });
  }

  async #run<T>(verb: string, work: () => Promise<T>): Promise<T> {
    if (this.#closed) throw this.#closedError(verb);
    this.#callsUnderWay++;
    try {
      return await this.calls.run(work);
    } catch (error) {
      throw systemError(error, `${verb} ${this.path}`);
    } finally {
      this.#ended();
    }
  }

  #ended(): void {
    if (--this.#callsUnderWay === 0) this.#whenIdle?.();
  }

  #closedError(verb: string): HoldfastError {
    return new HoldfastError('io-error', `${verb} ${this.path}: the file is closed`);
  }
}

async function readExtents(fd: number, offset: number, length: number): Promise<Extent[]> {
  const end = offset + length;
  const extents: Extent[] = [];
  let position = offset;
  while (position < end) {
    const data = Math.min((await seekData(fd, position)) ?? end, end);
    if (data > position) extents.push({ length: data - position, hole: true });
    if (data === end) break;
    // Nothing holds a writer back meanwhile: a hole punched in between is told as data, which is always allowed.
    position = Math.min(Math.max(await seekHole(fd, data), data + 1), end);
    extents.push({ length: position - data, hole: false });
  }
  return extents;
}

async function openFile(path: string, flags: number): Promise<number> {
  const fd = await new Promise<number>((resolve, reject) => {
    open(path, flags, 0o600, (error, opened) => {
      if (error) reject(error);
      else resolve(opened);
    });
  });
  const regular = await new Promise<boolean>((resolve) => {
    fstat(fd, (error, stats) => resolve(error === null && stats.isFile()));
  });
  if (regular) return fd;
  await new Promise<void>((resolve) => close(fd, () => resolve()));
  throw new HoldfastError('invalid-argument', `${path} is no regular file`);
}
