import { present } from '../base/assert.js';
import type { Clock } from '../io/io.js';
import { Ec2Error } from './ec2-errors.js';

/** The two ways of EC2 to describe some things by their ids. */
export interface DescribeForms<T> {
  /** By parameter; fails as a whole where one of the ids is unknown or malformed. */
  byIds(ids: readonly string[]): Promise<readonly T[]>;
  /** By filter; leaves out what is unknown. */
  byFilter(ids: readonly string[]): Promise<readonly T[]>;
  idOf(item: T): string;
}

/** How many ids one call names, and how many things a page of an answer has, at most. */
export const IDS_PER_CALL = 500;
/** EC2 refuses filters with more values. */
export const FILTER_VALUES_PER_CALL = 200;

interface Asker<T> {
  readonly ids: readonly string[];
  readonly resolve: (found: ReadonlyMap<string, T>) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Joins what is asked in one turn, and then all that is asked until its answer, into one call each: thirty nodes that
 * start together cost no more than one, and a call that is held up by the budget piles up no others behind it. An answer
 * is never older than its question.
 *
 * An id that EC2 doesn't know is missing from its asker's answer alone: the joined call is then made again by filter.
 */
export class DescribeBatch<T> {
  #askers: Asker<T>[] = [];
  #asking = false;

  constructor(
    private readonly clock: Pick<Clock, 'timer'>,
    private readonly forms: DescribeForms<T>,
  ) {}

  /** What EC2 knows of these ids, by id. Fails as the call fails that they were part of. */
  describe(ids: readonly string[]): Promise<ReadonlyMap<string, T>> {
    if (ids.length === 0) return Promise.resolve(new Map());
    return new Promise((resolve, reject) => {
      this.#askers.push({ ids, resolve, reject });
      if (this.#asking) return;
      this.#asking = true;
      this.clock.timer(0, () => void this.#askInTurn());
    });
  }

  async #askInTurn(): Promise<void> {
    while (this.#askers.length > 0) {
      const askers = this.#askers;
      this.#askers = [];
      await this.#askAll(askers);
    }
    this.#asking = false;
  }

  /** Never rejects. */
  async #askAll(askers: readonly Asker<T>[]): Promise<void> {
    const calls = new Map<string, Promise<ReadonlyMap<string, T>>>();
    for (const part of parts([...new Set(askers.flatMap(({ ids }) => ids))], IDS_PER_CALL)) {
      const call = this.#ask(part);
      for (const id of part) calls.set(id, call);
    }
    for (const { ids, resolve, reject } of askers) answer(ids, calls).then(resolve, reject);
    await Promise.allSettled(calls.values());
  }

  async #ask(ids: readonly string[]): Promise<ReadonlyMap<string, T>> {
    const found = await this.forms.byIds(ids).catch((error: unknown) => {
      if (!isAboutOneId(error)) throw error;
      return ids.length === 1 && error.kind === 'not-found' ? [] : this.#askByFilter(ids);
    });
    return new Map(found.map((item) => [this.forms.idOf(item), item]));
  }

  async #askByFilter(ids: readonly string[]): Promise<readonly T[]> {
    const answers = parts(ids, FILTER_VALUES_PER_CALL).map((part) => this.forms.byFilter(part));
    return (await Promise.all(answers)).flat();
  }
}

/** A single malformed id makes EC2 call the whole request invalid. */
function isAboutOneId(error: unknown): error is Ec2Error {
  return error instanceof Ec2Error && (error.kind === 'not-found' || error.kind === 'invalid');
}

async function answer<T>(
  ids: readonly string[],
  calls: ReadonlyMap<string, Promise<ReadonlyMap<string, T>>>,
): Promise<ReadonlyMap<string, T>> {
  const found = new Map<string, T>();
  for (const id of ids) {
    const item = (await present(calls.get(id), 'each id is part of a call')).get(id);
    if (item !== undefined) found.set(id, item);
  }
  return found;
}

function parts<T>(all: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, at) => all.slice(at * size, (at + 1) * size));
}
