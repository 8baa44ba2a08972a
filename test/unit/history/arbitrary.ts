import fc from 'fast-check';
import { SECTORS, type Attachment, type History, type Operation } from '../../history/history.js';
import { torn } from './build.js';

const MOMENTS = 14;

interface Wish {
  readonly kind: Operation['kind'];
  readonly attachment: number;
  readonly at: number;
  readonly length: number;
  readonly outcome: Operation['outcome'];
  readonly fua: boolean;
  /** Which of the written values a read returned. */
  readonly found: number;
  readonly other: number;
  readonly sectors: number;
}

const rarely = fc.nat(5).map((n) => n === 0);

const wish = (kinds: readonly Operation['kind'][]): fc.Arbitrary<Wish> =>
  fc.record({
    kind: fc.constantFrom(...kinds),
    attachment: fc.nat(2),
    at: fc.nat(MOMENTS),
    length: fc.nat(4),
    outcome: fc.constantFrom('done', 'done', 'done', 'failed', 'pending'),
    fua: rarely,
    found: fc.nat(20),
    other: fc.nat(20),
    sectors: fc.oneof(fc.constant(SECTORS), fc.constant(SECTORS), fc.nat(SECTORS)),
  });

const attachments: fc.Arbitrary<Attachment[]> = fc
  .array(fc.record({ servesFrom: fc.nat(MOMENTS), lossAllowed: fc.boolean() }), { minLength: 1, maxLength: 3 })
  .map((all) => {
    const moments = all.map(({ servesFrom }) => servesFrom).sort((one, other) => one - other);
    return all.map(({ lossAllowed }, index) => ({ servesFrom: index === 0 ? 0 : (moments[index] ?? 0), lossAllowed }));
  });

/** Small histories of one block, legal ones and others. Moments are whole numbers, so that many fall together. */
export function smallHistories(options: { trims: boolean; most: number }): fc.Arbitrary<History> {
  const kinds = ['write', 'write', 'read', 'read', 'read', 'flush'] as const;
  const wishes = fc.array(wish(options.trims ? [...kinds, 'trim', 'trim'] : kinds), { maxLength: options.most });
  return fc.tuple(attachments, wishes).map(([all, operations]) => ({
    attachments: all,
    operations: operations.map((one, index) => operationOf(one, index, operations, all)),
  }));
}

/**
 * Operations one after another, with losses between them: what is durable, and what was read after a loss, counts here.
 * `most`: of operations and losses.
 */
export function historiesOfLosses(options: { trims: boolean; most: number }): fc.Arbitrary<History> {
  const kinds = ['write', 'read', 'read', 'flush', ...(options.trims ? (['trim'] as const) : [])] as const;
  const step = fc.oneof({ weight: 3, arbitrary: wish(kinds) }, { weight: 1, arbitrary: fc.constant('loss' as const) });
  return fc.array(step, { maxLength: options.most }).map((steps) => {
    const all: Attachment[] = [{ servesFrom: 0, lossAllowed: false }];
    const wishes: Wish[] = [];
    for (const [index, one] of steps.entries()) {
      if (one === 'loss') all.push({ servesFrom: 10 * index, lossAllowed: true });
      else wishes.push({ ...one, attachment: all.length - 1, at: 10 * index + 1, sectors: SECTORS });
    }
    return { attachments: all, operations: wishes.map((one, index) => operationOf(one, index, wishes, all)) };
  });
}

function operationOf(one: Wish, index: number, all: readonly Wish[], attached: readonly Attachment[]): Operation {
  const attachment = one.attachment % attached.length;
  const startedAt = Math.max(one.at, attached[attachment]?.servesFrom ?? 0);
  const written = [0, ...all.flatMap(({ kind }, n) => (kind === 'write' ? [n + 1] : []))];
  const value = (choice: number): number => written[choice % written.length] ?? 0;
  const found = one.sectors === SECTORS ? value(one.found) : torn(value(one.found), one.sectors, value(one.other));
  const isRead = one.kind === 'read';
  return {
    kind: one.kind,
    attachment,
    firstBlock: 0,
    blockCount: one.kind === 'flush' ? 0 : 1,
    value: one.kind === 'write' ? index + 1 : 0,
    fua: one.fua && (one.kind === 'write' || one.kind === 'trim'),
    startedAt,
    endedAt: one.outcome === 'pending' ? Infinity : startedAt + one.length,
    outcome: one.outcome,
    values: isRead && one.outcome === 'done' ? [found] : [],
  };
}

/** Whether a read went on while a loss happened, so that the checker leaves open which side it belongs to. */
export function readsOverLoss(history: History): boolean {
  return history.attachments.some(
    ({ servesFrom, lossAllowed }, index) =>
      lossAllowed &&
      history.operations.some(
        (operation) =>
          operation.kind === 'read' &&
          operation.attachment < index &&
          operation.startedAt <= servesFrom &&
          operation.endedAt >= servesFrom,
      ),
  );
}
