import { closeSync, writeSync } from 'node:fs';
import { assert } from '../base/assert.js';
import { changeEpoll, createEpoll, createEventFd, waitEpoll } from './system-calls.js';

const EVENTS_AT_ONCE = 64;
const READABLE = 0x001;
/** One event for each arming, so that nobody is told of what it does not want to read yet. */
const ONE_SHOT = 1 << 30;

/** struct epoll_event is packed on x86-64 alone. */
const EVENT_BYTES = process.arch === 'x64' ? 12 : 16;
const DATA_OFFSET = process.arch === 'x64' ? 4 : 8;

/** Something that waits for its descriptor. */
export interface Watch {
  /** Resolves once when the descriptor is readable, has failed, or `stop` is called. One wait at a time. */
  readable(): Promise<void>;
  /** Must come before the descriptor is closed. Repeats do nothing. */
  stop(): void;
}

/**
 * Tells when descriptors that Node can't watch itself (/dev/fuse) become readable. All of them together occupy one
 * thread of the pool, which sleeps in epoll_wait.
 */
export class Readiness {
  readonly #epoll = createEpoll();
  readonly #wake = createEventFd();
  readonly #events = new Uint8Array(EVENT_BYTES * EVENTS_AT_ONCE);
  readonly #eventsView = new DataView(this.#events.buffer);
  readonly #told = new Map<number, () => void>();
  /** From the first watch on: a process that watches nothing is not kept from ending. */
  #loop: Promise<void> | undefined;
  #closed = false;

  constructor() {
    changeEpoll(this.#epoll, 'add', this.#wake, event(this.#wake, READABLE));
  }

  watch(fd: number): Watch {
    assert(!this.#closed, 'nothing is watched after the end');
    this.#loop ??= this.#run();
    let known = false;
    let stopped = false;
    return {
      readable: () =>
        new Promise((resolve) => {
          if (stopped) {
            resolve();
            return;
          }
          this.#told.set(fd, resolve);
          changeEpoll(this.#epoll, known ? 'change' : 'add', fd, event(fd, READABLE | ONE_SHOT));
          known = true;
        }),
      stop: () => {
        if (stopped) return;
        stopped = true;
        if (known) changeEpoll(this.#epoll, 'remove', fd, event(fd, 0));
        this.#tell(fd);
      },
    };
  }

  /** Ends the wait, so that the process can end. Nobody is told of anything any more. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    writeSync(this.#wake, new BigUint64Array([1n]));
    await this.#loop;
    closeSync(this.#wake);
    closeSync(this.#epoll);
  }

  async #run(): Promise<void> {
    while (!this.#closed) {
      const count = await waitEpoll(this.#epoll, this.#events, EVENTS_AT_ONCE);
      for (let index = 0; index < count; index++) {
        this.#tell(this.#eventsView.getInt32(index * EVENT_BYTES + DATA_OFFSET, true));
      }
    }
  }

  #tell(fd: number): void {
    const resolve = this.#told.get(fd);
    this.#told.delete(fd);
    resolve?.();
  }
}

function event(fd: number, events: number): Uint8Array {
  const bytes = new Uint8Array(EVENT_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, events, true);
  view.setInt32(DATA_OFFSET, fd, true);
  return bytes;
}
