import { SECTORS, type History, type Operation } from '../../history/history.js';

/*
 * The checker's oracle: what a volume may do, spelt out and searched through, for histories of a few operations.
 *
 * Every register is tried alone: its operations and the losses are put in every order that time allows, and a register
 * is run through each. Nothing here is shared with the checker.
 */

type Step =
  | { readonly kind: 'write'; readonly write: Operation; readonly end: number; readonly must: boolean }
  | { readonly kind: 'read'; readonly read: Operation; readonly found: number }
  | { readonly kind: 'loss'; readonly attachment: number };

/** Whether a correct volume can have answered so. */
export function isLegal(history: History): boolean {
  const blocks = new Set(history.operations.flatMap((operation) => blocksOf(operation)));
  return [...blocks].every((block) =>
    Array.from({ length: SECTORS }, (_, sector) => sector).every((sector) => isRegister(history, block, sector)),
  );
}

function isRegister(history: History, block: number, sector: number): boolean {
  const steps: Step[] = [];
  for (const operation of history.operations) {
    if (!blocksOf(operation).includes(block)) continue;
    if (operation.kind === 'read') {
      if (operation.outcome === 'done')
        steps.push({ kind: 'read', read: operation, found: valueAt(operation, block, sector) });
      continue;
    }
    const deadline = history.attachments[operation.attachment + 1]?.servesFrom ?? Infinity;
    const must = operation.outcome === 'done';
    if (operation.startedAt > deadline) {
      if (must) return false;
      continue;
    }
    steps.push({ kind: 'write', write: operation, end: must ? Math.min(operation.endedAt, deadline) : deadline, must });
  }
  for (const [attachment, { lossAllowed }] of history.attachments.entries()) {
    if (lossAllowed && attachment > 0) steps.push({ kind: 'loss', attachment });
  }
  const search = new Search(history, steps);
  return search.run();
}

/** A loss that has happened, what it left, and when a read first had returned that before anything overwrote it. */
interface Loss {
  readonly attachment: number;
  readonly content: number;
  readonly seen: number | null;
}

interface RegisterState {
  readonly value: number;
  /** Whether nothing was written since the last loss. */
  readonly isUntouched: boolean;
  readonly losses: readonly Loss[];
}

class Search {
  readonly #before: boolean[][];
  /** States that lead nowhere. */
  readonly #dead = new Set<string>();

  constructor(
    private readonly history: History,
    private readonly steps: readonly Step[],
  ) {
    this.#before = steps.map((one) => steps.map((other) => this.#mustPrecede(one, other)));
  }

  run(): boolean {
    return this.#from(0, { value: 0, isUntouched: false, losses: [] });
  }

  /** `used`: the steps taken or left out, as bits. */
  #from(used: number, register: RegisterState): boolean {
    if (this.steps.every((step, index) => hasBit(used, index) || isOptional(step))) return true;
    const state = JSON.stringify([used, register]);
    if (this.#dead.has(state)) return false;
    for (const [index, step] of this.steps.entries()) {
      if (hasBit(used, index)) continue;
      // Whatever must come before has come, or is a write that need not take effect (and can't any more).
      const early = this.steps.map((_, other) => other).filter((other) => this.#before[other]?.[index] === true);
      if (early.some((other) => !hasBit(used, other) && !isOptional(this.steps[other]))) continue;
      const next = early.reduce((bits, other) => bits | (1 << other), used | (1 << index));
      if (this.#after(register, step).some((changed) => this.#from(next, changed))) return true;
    }
    this.#dead.add(state);
    return false;
  }

  /** What can become of the register by a step; nothing where the step can't be. */
  #after(register: RegisterState, step: Step): RegisterState[] {
    const { value, isUntouched, losses } = register;
    switch (step.kind) {
      case 'write':
        return [{ ...register, value: step.write.value, isUntouched: false }];
      case 'read': {
        if (step.found !== value) return [];
        const [last] = losses.slice(-1);
        if (last === undefined || !isUntouched) return [register];
        const seen = { ...last, seen: Math.min(last.seen ?? Infinity, step.read.endedAt) };
        return [{ ...register, losses: [...losses.slice(0, -1), seen] }];
      }
      case 'loss':
        return this.#possibleAfterLoss(step.attachment, losses).map((content) => ({
          value: content,
          isUntouched: true,
          losses: [...losses, { attachment: step.attachment, content, seen: null }],
        }));
    }
  }

  #mustPrecede(one: Step, other: Step): boolean {
    const loss = (step: Step): number => (step.kind === 'loss' ? step.attachment : -1);
    if (one.kind === 'loss' && other.kind === 'loss') return one.attachment < other.attachment;
    if (one.kind === 'write' && other.kind === 'loss') return one.write.attachment < loss(other);
    if (one.kind === 'loss' && other.kind === 'write') return other.write.attachment >= loss(one);
    // The first read of an attachment comes after the loss that went before it, also where the clock stood still.
    if (one.kind === 'loss' && other.kind === 'read' && other.read.attachment >= loss(one)) return true;
    return this.#end(one) < this.#start(other);
  }

  #start(step: Step): number {
    if (step.kind === 'loss') return this.history.attachments[step.attachment]?.servesFrom ?? 0;
    return (step.kind === 'read' ? step.read : step.write).startedAt;
  }

  #end(step: Step): number {
    if (step.kind === 'loss') return this.#start(step);
    return step.kind === 'read' ? step.read.endedAt : step.end;
  }

  /** What the register may hold after the loss before an attachment. */
  #possibleAfterLoss(attachment: number, losses: readonly Loss[]): number[] {
    const older = this.steps.filter((step) => step.kind === 'write' && step.write.attachment < attachment);
    const candidates = [{ value: 0, end: -Infinity, attachment: -1 }];
    for (const step of older) {
      if (step.kind !== 'write') continue;
      candidates.push({ value: step.write.value, end: step.end, attachment: step.write.attachment });
    }
    const isOverwritten = (end: number): boolean =>
      older.some((step) => step.kind === 'write' && this.#isDurable(step.write) && step.write.startedAt > end);
    // What was read after an earlier loss, and flushed before the next one, was put there anew by that earlier loss.
    const kept = losses.findLast(
      ({ attachment: from, seen }, n) =>
        seen !== null &&
        this.#flushes(from, losses[n + 1]?.attachment ?? attachment).some((flush) => flush.startedAt > seen),
    );
    if (kept === undefined) return candidates.filter(({ end }) => !isOverwritten(end)).map(({ value }) => value);
    const later = candidates.filter((one) => one.attachment >= kept.attachment && !isOverwritten(one.end));
    const values = later.map(({ value }) => value);
    const isKeptOverwritten = older.some(
      (step) => step.kind === 'write' && this.#isDurable(step.write) && step.write.attachment >= kept.attachment,
    );
    return isKeptOverwritten ? values : [kept.content, ...values];
  }

  #isDurable(write: Operation): boolean {
    if (write.outcome !== 'done') return false;
    if (write.fua) return true;
    const { attachments } = this.history;
    let first = write.attachment;
    while (first > 0 && attachments[first]?.lossAllowed !== true) first--;
    let next = write.attachment + 1;
    while (next < attachments.length && attachments[next]?.lossAllowed !== true) next++;
    return this.#flushes(first, next).some((flush) => flush.startedAt > write.endedAt);
  }

  /** Flushes that were acknowledged to the attachments from `first` until before `next`, while they lasted. */
  #flushes(first: number, next: number): Operation[] {
    return this.history.operations.filter(
      (operation) =>
        operation.kind === 'flush' &&
        operation.outcome === 'done' &&
        operation.attachment >= first &&
        operation.attachment < next &&
        operation.startedAt <= this.#serves(operation.attachment + 1) &&
        operation.endedAt < this.#serves(next),
    );
  }

  #serves(attachment: number): number {
    return this.history.attachments[attachment]?.servesFrom ?? Infinity;
  }
}

function isOptional(step: Step | undefined): boolean {
  return step?.kind === 'write' && !step.must;
}

function hasBit(bits: number, index: number): boolean {
  return (bits & (1 << index)) !== 0;
}

function blocksOf(operation: Operation): number[] {
  return Array.from({ length: operation.blockCount }, (_, index) => operation.firstBlock + index);
}

function valueAt(read: Operation, block: number, sector: number): number {
  const values = read.values[block - read.firstBlock];
  return typeof values === 'number' ? values : (values?.[sector] ?? -1);
}
