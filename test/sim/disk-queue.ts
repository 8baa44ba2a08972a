import { HoldfastError } from '../../src/base/errors.js';
import type { Prng } from './prng.js';
import type { Schedule } from './schedule.js';
import type { Deliverer } from './sim-clock.js';

/** What is wrong with a disk. May be changed at any time. */
export interface DiskFaults {
  /** Probabilities, for each operation, of an io-error. */
  readErrors: number;
  writeErrors: number;
  syncErrors: number;
  /** A failed write may have changed any of its sectors. */
  tornWriteOnError: boolean;
  /** What needs a new page or a new name fails with no-space. */
  full: boolean;
  /** Nothing completes until this is false again. */
  hung: boolean;
  /** Multiplies how long everything takes. */
  slowFactor: number;
  /** The device is gone: everything fails with io-error. */
  dead: boolean;
}

export class SettableFaults implements DiskFaults {
  readErrors = 0;
  writeErrors = 0;
  syncErrors = 0;
  tornWriteOnError = false;
  full = false;
  slowFactor = 1;
  dead = false;
  /** Called when the disk goes on. */
  whenReleased: () => void = () => undefined;
  #hung = false;

  get hung(): boolean {
    return this.#hung;
  }

  set hung(hung: boolean) {
    this.#hung = hung;
    if (!hung) this.whenReleased();
  }
}

/** By which an operation's time and its chance to fail go. */
export type OperationKind = 'read' | 'write' | 'sync' | 'look';

/** What an operation does when it completes. */
export interface Work<T> {
  /** For messages: what is done to which file. */
  readonly what: string;
  readonly kind: OperationKind;
  /** May throw a HoldfastError. */
  carryOut(): T;
  /** Does a random part; absent where there are no parts. */
  partly?(): void;
  /** It ends otherwise than by carryOut. `failed`: the disk has reported an error. */
  dropped?(failed: boolean): void;
}

interface Operation {
  readonly process: Deliverer;
  readonly work: Work<unknown>;
  readonly resolve: (result: never) => void;
  readonly reject: (error: HoldfastError) => void;
}

/** Shortest and longest usual time, in milliseconds. */
const TIMES: Readonly<Record<OperationKind, readonly [number, number]>> = {
  look: [0.005, 0.05],
  read: [0.05, 0.3],
  write: [0.05, 0.4],
  sync: [0.1, 1.5],
};
/** One of so many operations takes up to so much longer. */
const SLOW_ONE_OF = 100;
const SLOW_ONE_OF_SLOW_DISK = 5;
const SLOW_FACTOR = 20;

/** The operations under way on one disk. Each has its effect at its completion, in whatever order they complete. */
export class DiskQueue {
  readonly #underWay = new Set<Operation>();
  #lateWrite: { readonly ms: number; readonly begun: () => void } | undefined;
  /** Those that would have completed while the disk hung. */
  #hanging: Operation[] = [];

  constructor(
    private readonly schedule: Schedule,
    private readonly random: Prng,
    private readonly faults: SettableFaults,
  ) {
    faults.whenReleased = () => {
      const released = this.#hanging;
      this.#hanging = [];
      for (const operation of released) this.#plan(operation);
    };
  }

  /** Begins an operation of the process. */
  submit<T>(process: Deliverer, work: Work<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (!process.alive) return;
      const operation: Operation = { process, work, resolve, reject };
      this.#underWay.add(operation);
      this.#plan(operation);
    });
  }

  /** The next write takes so much longer; `begun` is called when it is under way. */
  delayNextWrite(ms: number, begun: () => void): void {
    this.#lateWrite = { ms, begun };
  }

  /** What is under way takes from now on as long as what begins now. */
  hurry(): void {
    for (const operation of this.#underWay) this.#plan(operation);
  }

  /** Ends the operations of a process that has died: each is now done, done in part, or never done. */
  forget(process: Deliverer): void {
    for (const operation of this.#underWay) {
      if (operation.process !== process) continue;
      this.#underWay.delete(operation);
      this.#doSome(operation.work);
    }
  }

  /** Ends all operations, since the filesystem below them goes away; `cleanly` does them all first. */
  interrupt(cleanly: boolean): void {
    for (const operation of this.#underWay) {
      this.#underWay.delete(operation);
      if (cleanly) this.#complete(operation);
      else {
        this.#doSome(operation.work);
        this.#answer(operation, new HoldfastError('io-error', `${operation.work.what}: the filesystem is gone`));
      }
    }
  }

  #plan(operation: Operation): void {
    const [least, most] = TIMES[operation.work.kind];
    let time = this.random.between(least, most) * this.faults.slowFactor;
    const oneOf = this.faults.slowFactor > 1 ? SLOW_ONE_OF_SLOW_DISK : SLOW_ONE_OF;
    if (this.random.below(oneOf) === 0) time *= this.random.between(1, SLOW_FACTOR);
    if (operation.work.kind === 'write' && this.#lateWrite) {
      const { ms, begun } = this.#lateWrite;
      this.#lateWrite = undefined;
      time += ms;
      this.schedule.after(0, begun);
    }
    this.schedule.after(time, () => {
      if (!this.#underWay.has(operation)) return;
      if (this.faults.hung) {
        this.#hanging.push(operation);
        return;
      }
      this.#underWay.delete(operation);
      this.#complete(operation);
    });
  }

  #complete(operation: Operation): void {
    const { work } = operation;
    if (this.faults.dead || this.random.chance(this.#errorChance(work.kind))) {
      if (!this.faults.dead && this.faults.tornWriteOnError) work.partly?.();
      work.dropped?.(true);
      this.#answer(operation, new HoldfastError('io-error', `${work.what}: the disk has failed`));
      return;
    }
    let result: unknown;
    try {
      result = work.carryOut();
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      this.#answer(operation, error);
      return;
    }
    operation.process.deliver(() => operation.resolve(result as never));
  }

  #answer(operation: Operation, error: HoldfastError): void {
    operation.process.deliver(() => operation.reject(error));
  }

  #doSome(work: Work<unknown>): void {
    const outcome = this.faults.dead ? 'nothing' : this.random.pick(['all', 'part', 'nothing'] as const);
    if (outcome === 'all') {
      try {
        work.carryOut();
      } catch (error) {
        if (!(error instanceof HoldfastError)) throw error;
      }
      return;
    }
    if (outcome === 'part') work.partly?.();
    work.dropped?.(false);
  }

  #errorChance(kind: OperationKind): number {
    switch (kind) {
      case 'read':
        return this.faults.readErrors;
      case 'write':
        return this.faults.writeErrors;
      case 'sync':
        return this.faults.syncErrors;
      case 'look':
        return 0;
    }
  }
}
