import koffi, { type KoffiFunc } from 'koffi';

/** The few system calls that the device process needs and Node does not offer. */
const libc = koffi.load('libc.so.6');

type Read = KoffiFunc<(fd: number, into: Uint8Array, length: number) => number>;
type EpollCreate = KoffiFunc<(flags: number) => number>;
type EpollControl = KoffiFunc<(epoll: number, operation: number, fd: number, event: Uint8Array) => number>;
type EpollWait = KoffiFunc<(epoll: number, events: Uint8Array, count: number, timeoutMs: number) => number>;
type EventFd = KoffiFunc<(initial: number, flags: number) => number>;
type Lock = KoffiFunc<(fd: number, operation: number) => number>;
type Control = KoffiFunc<(option: number, a: number, b: number, c: number, d: number) => number>;

const read = libc.func('int64_t read(int fd, void *into, size_t length)') as Read;
const epollCreate = libc.func('int epoll_create1(int flags)') as EpollCreate;
const epollControl = libc.func('int epoll_ctl(int epoll, int operation, int fd, void *event)') as EpollControl;
const epollWait = libc.func('int epoll_wait(int epoll, void *events, int count, int timeoutMs)') as EpollWait;
const eventFd = libc.func('int eventfd(unsigned int initial, int flags)') as EventFd;
const lock = libc.func('int flock(int fd, int operation)') as Lock;
const control = libc.func(
  'int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)',
) as Control;

const EINTR = 4;
const EAGAIN = 11;
const CLOEXEC = 0o2000000;
const NONBLOCK = 0o4000;
const LOCK_EXCLUSIVE_NOW = 2 | 4;
const PR_SET_IO_FLUSHER = 57;

/** A failed system call; `errno` is its number. */
export class SystemCallFailed extends Error {
  override readonly name = 'SystemCallFailed';

  constructor(
    call: string,
    readonly errno: number,
  ) {
    super(`${call} failed with errno ${errno}`);
  }
}

/**
 * Reads from a descriptor in non-blocking mode: the number of bytes, or `again` where nothing is there now. Other
 * failures throw SystemCallFailed.
 */
export function readNow(fd: number, into: Uint8Array): number | 'again' {
  for (;;) {
    const count = read(fd, into, into.length);
    if (count >= 0) return count;
    const errno = koffi.errno();
    if (errno === EAGAIN) return 'again';
    if (errno !== EINTR) throw new SystemCallFailed('read', errno);
  }
}

export function createEpoll(): number {
  return checked('epoll_create1', epollCreate(CLOEXEC));
}

export function changeEpoll(
  epoll: number,
  operation: 'add' | 'remove' | 'change',
  fd: number,
  event: Uint8Array,
): void {
  const number = { add: 1, remove: 2, change: 3 }[operation];
  checked('epoll_ctl', epollControl(epoll, number, fd, event));
}

/** Waits on a thread of the pool, without a time limit, for up to `count` events; resolves to how many there are. */
export function waitEpoll(epoll: number, events: Uint8Array, count: number): Promise<number> {
  return new Promise((resolve, reject) => {
    epollWait.async(epoll, events, count, -1, (error: unknown, ready: number) => {
      const errno = koffi.errno();
      if (error instanceof Error) reject(error);
      else if (ready >= 0) resolve(ready);
      else if (errno === EINTR) resolve(0);
      else reject(new SystemCallFailed('epoll_wait', errno));
    });
  });
}

/** A descriptor that is readable when something was written to it. */
export function createEventFd(): number {
  return checked('eventfd', eventFd(0, CLOEXEC | NONBLOCK));
}

/** Takes the exclusive lock of an open file, which ends with the process; false where another process has it. */
export function tryLock(fd: number): boolean {
  return lock(fd, LOCK_EXCLUSIVE_NOW) === 0;
}

/**
 * Marks the calling thread, and those made by it later, as a part of the path by which dirty memory is written back
 * (prctl(2), PR_SET_IO_FLUSHER); false where that is not permitted.
 */
export function becomeIoFlusher(): boolean {
  return control(PR_SET_IO_FLUSHER, 1, 0, 0, 0) === 0;
}

function checked(call: string, result: number): number {
  if (result < 0) throw new SystemCallFailed(call, koffi.errno());
  return result;
}
