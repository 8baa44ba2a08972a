import koffi, { type KoffiFunc } from 'koffi';

/**
 * The few system calls that Node does not offer. They run on libuv's thread pool, as Node's own file calls do, so the
 * event loop never waits for a disk. koffi refuses a call when 256 are waiting: callers bound them (thread-pool.ts).
 */
const libc = koffi.load('libc.so.6');

type Fallocate = KoffiFunc<(fd: number, mode: number, offset: number, length: number) => number>;
type Seek = KoffiFunc<(fd: number, offset: number, whence: number) => number | bigint>;

const fallocate = libc.func('int fallocate(int fd, int mode, int64_t offset, int64_t length)') as Fallocate;
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)') as Seek;

const FALLOC_FL_KEEP_SIZE = 0x01;
const FALLOC_FL_PUNCH_HOLE = 0x02;
const SEEK_DATA = 3;
const SEEK_HOLE = 4;

const ERRNO_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(koffi.os.errno).map(([name, value]) => [value, name] as const),
);
/** Linux has one number for two names; the map above may hold the other. */
const EOPNOTSUPP = 95;

/** Deallocates a range of an open file. Rejects with an Error whose `code` is the errno name, as Node's fs does. */
export async function punchHole(fd: number, offset: number, length: number): Promise<void> {
  await call('fallocate', (answer) =>
    fallocate.async(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length, answer),
  );
}

/** The first offset from `offset` on that holds data; undefined where only a hole follows. */
export async function seekData(fd: number, offset: number): Promise<number | undefined> {
  try {
    return await call('lseek', (answer) => lseek.async(fd, offset, SEEK_DATA, answer));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENXIO') return undefined;
    throw error;
  }
}

/** The first offset from `offset` on that is a hole; the end of the file counts as one. `offset` must hold data. */
export function seekHole(fd: number, offset: number): Promise<number> {
  return call('lseek', (answer) => lseek.async(fd, offset, SEEK_HOLE, answer));
}

/** Where the memory of a buffer lies. */
export function addressOf(memory: ArrayBuffer): bigint {
  return koffi.address(memory);
}

function call(
  name: string,
  start: (answer: (error: unknown, result: number | bigint) => void) => void,
): Promise<number> {
  return new Promise((resolve, reject) => {
    start((error, result) => {
      const errno = koffi.errno();
      if (error instanceof Error) reject(error);
      else if (Number(result) < 0) reject(failure(name, errno));
      else resolve(Number(result));
    });
  });
}

function failure(name: string, errno: number): Error {
  const code = errno === EOPNOTSUPP ? 'EOPNOTSUPP' : (ERRNO_NAMES.get(errno) ?? String(errno));
  return Object.assign(new Error(`${code}, ${name}`), { code, errno });
}
