import { close, constants, fdatasync, fstat, ftruncate, open, read, write } from 'node:fs';
import { mkdir, open as openHandle, readdir, rename, rm } from 'node:fs/promises';
import { GroupCommit } from '../base/group-commit.js';
import { HoldfastError } from '../base/errors.js';
import { PAGE_BYTES, type Extent, type File, type Files } from './io.js';
import { errnoOf, systemError } from './node-errors.js';
import { punchHole, seekData, seekHole } from './node-system-calls.js';

/** What a file opened buffered may leave in the page cache before its writes wait for the disk. */
const MAX_DIRTY_BYTES = 16 * 1024 * 1024;

type Answer = (error: Error | null) => void;
type CountAnswer = (error: Error | null, count: number) => void;

export class NodeFiles implements Files {
  async open(path: string, options: { write: boolean; create: boolean; direct: boolean }): Promise<File> {
    const flags = (options.write ? constants.O_RDWR : constants.O_RDONLY) | (options.create ? constants.O_CREAT : 0);
    if (options.direct) {
      try {
        return new NodeFile(await openFile(path, flags | constants.O_DIRECT), path, 'direct');
      } catch (error) {
        if (errnoOf(error) !== 'EINVAL') throw systemError(error, `open ${path}`);
      }
    }
    try {
      return new NodeFile(await openFile(path, flags), path, options.direct ? 'fallback' : 'buffered');
    } catch (error) {
      throw systemError(error, `open ${path}`);
    }
  }

  list(directory: string): Promise<string[]> {
    return named(`list ${directory}`, readdir(directory));
  }

  async makeDirectory(path: string): Promise<void> {
    await named(`make directory ${path}`, mkdir(path, { recursive: true }));
  }

  async syncDirectory(path: string): Promise<void> {
    const handle = await named(`open directory ${path}`, openHandle(path, constants.O_RDONLY | constants.O_DIRECTORY));
    try {
      await named(`sync directory ${path}`, handle.sync());
    } finally {
      await handle.close();
    }
  }

  rename(from: string, to: string): Promise<void> {
    return named(`rename ${from} to ${to}`, rename(from, to));
  }

  remove(path: string): Promise<void> {
    return named(`remove ${path}`, rm(path, { recursive: true, force: true }));
  }
}

/** `fallback`: buffered, though direct I/O was asked for. */
type Mode = 'direct' | 'buffered' | 'fallback';

class NodeFile implements File {
  #closed = false;
  #callsUnderWay = 0;
  #whenIdle: (() => void) | undefined;
  #dirtyBytes = 0;
  readonly #commit: GroupCommit;

  constructor(
    private readonly fd: number,
    private readonly path: string,
    private readonly mode: Mode,
  ) {
    this.#commit = new GroupCommit(() => {
      this.#dirtyBytes = 0;
      return this.#call('sync', (answer: Answer) => fdatasync(this.fd, answer));
    });
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
    await new Promise<void>((resolve, reject) => {
      close(this.fd, (error) => {
        if (error) reject(systemError(error, `close ${this.path}`));
        else resolve();
      });
    });
  }

  #transfer(verb: 'read' | 'write', memory: Uint8Array, offset: number, done: number): Promise<number> {
    return this.#call(verb, (answer: CountAnswer) => {
      if (verb === 'read') read(this.fd, memory, done, memory.length - done, offset + done, answer);
      else write(this.fd, memory, done, memory.length - done, offset + done, answer);
    });
  }

  #call<T>(verb: string, start: (answer: (error: Error | null, value: T) => void) => void): Promise<T> {
    if (this.#closed) return Promise.reject(this.#closedError(verb));
    this.#callsUnderWay++;
    return new Promise((resolve, reject) => {
      start((error, value) => {
        this.#ended();
        if (error) reject(systemError(error, `${verb} ${this.path}`));
        else resolve(value);
      });
    });
  }

  async #run<T>(verb: string, work: () => Promise<T>): Promise<T> {
    if (this.#closed) throw this.#closedError(verb);
    this.#callsUnderWay++;
    try {
      return await work();
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

async function named<T>(what: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw systemError(error, what);
  }
}
