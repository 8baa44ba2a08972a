import type { File, Files, Io } from '../../src/io/io.js';

export type FileOperation = 'open' | 'read' | 'write' | 'sync' | 'truncate' | 'punch' | 'size';

/** Called before each operation on a file; where it throws, or never resolves, so does the operation. */
export type BeforeOperation = (operation: FileOperation, path: string) => void | Promise<void>;

/** An I/O whose files may fail. */
export function faultyIo(io: Io, before: BeforeOperation): Io {
  return { ...io, files: faultyFiles(io.files, before), slab: (bytes) => io.slab(bytes) };
}

function faultyFiles(files: Files, before: BeforeOperation): Files {
  return {
    open: async (path, options) => {
      await before('open', path);
      return faultyFile(await files.open(path, options), path, before);
    },
    list: (directory) => files.list(directory),
    makeDirectory: (path) => files.makeDirectory(path),
    syncDirectory: (path) => files.syncDirectory(path),
    rename: (from, to) => files.rename(from, to),
    remove: (path) => files.remove(path),
  };
}

function faultyFile(file: File, path: string, before: BeforeOperation): File {
  const run = async <T>(operation: FileOperation, carryOut: () => Promise<T>): Promise<T> => {
    await before(operation, path);
    return carryOut();
  };
  return {
    read: (into, offset) => run('read', () => file.read(into, offset)),
    write: (from, offset) => run('write', () => file.write(from, offset)),
    sync: () => run('sync', () => file.sync()),
    truncate: (sizeBytes) => run('truncate', () => file.truncate(sizeBytes)),
    size: () => run('size', () => file.size()),
    punch: (offset, length) => run('punch', () => file.punch(offset, length)),
    extents: (offset, length) => file.extents(offset, length),
    close: () => file.close(),
  };
}
