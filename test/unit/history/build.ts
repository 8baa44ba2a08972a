import { expect } from 'vitest';
import { checkHistory, SECTORS, type Attachment, type History, type Operation } from '../../history/history.js';

/** What a scenario says of an operation; the rest is the common case. */
type Details = Partial<Operation> & { readonly at: readonly [number, number] };

/** Builds a history line by line, as a test tells it. `at`: when it began and ended; Infinity: it never ended. */
export class HistoryBuilder {
  readonly #attachments: Attachment[] = [];
  readonly #operations: Operation[] = [];

  attachment(servesFrom: number, options: { lossAllowed?: boolean } = {}): this {
    this.#attachments.push({ servesFrom, lossAllowed: options.lossAllowed ?? false });
    return this;
  }

  write(value: number, details: Details): this {
    return this.#add('write', { value, ...details });
  }

  trim(details: Details): this {
    return this.#add('trim', details);
  }

  /** A read that returned these values: one for each block, or all 8 of its sectors. */
  read(values: number | Operation['values'], details: Details): this {
    const all = typeof values === 'number' ? [values] : values;
    return this.#add('read', { values: all, blockCount: all.length, ...details });
  }

  flush(details: Details): this {
    return this.#add('flush', { blockCount: 0, ...details });
  }

  get history(): History {
    return { attachments: this.#attachments, operations: this.#operations };
  }

  #add(kind: Operation['kind'], { at: [startedAt, endedAt], ...details }: Details): this {
    this.#operations.push({
      kind,
      attachment: this.#attachments.length - 1,
      firstBlock: 0,
      blockCount: 1,
      value: 0,
      fua: false,
      startedAt,
      endedAt,
      outcome: endedAt === Infinity ? 'pending' : 'done',
      values: [],
      ...details,
    });
    return this;
  }
}

/** A block whose first sectors hold one value and the rest another. */
export function torn(first: number, count: number, rest: number): number[] {
  return Array.from({ length: SECTORS }, (_, sector) => (sector < count ? first : rest));
}

/** A history that begins with an attachment. */
export function attached(): HistoryBuilder {
  return new HistoryBuilder().attachment(0);
}

/** What is wrong, by rule; and every line must name block and operation. */
export function rules(history: History): string[] {
  const violations = checkHistory(history);
  for (const { text } of violations) expect(text).toMatch(/^\w+: block \d+.*(read|write|trim) #\d+/);
  return violations.map(({ rule }) => rule);
}
