import { HoldfastError } from '../base/errors.js';
import type { SessionId, VolumeId } from '../model/ids.js';
import type { Export, Stage } from '../nbd/stage.js';

/** The export on which a peer asks for confirmations (R9). It has no data. */
export const CONFIRM_EXPORT = '@confirm';

/** So many questions fit in one private command, and so do their answers: each takes less than 128 bytes. */
export const QUESTIONS_AT_ONCE = 4_096;

export interface Question {
  readonly volume: VolumeId;
  readonly epoch: number;
  /** The writer's. */
  readonly session: SessionId;
}

/**
 * What a replica says of the writer that asks.
 *
 * - confirmed: it knows no newer epoch.
 * - denied: it does, or it is not here.
 * - stopping: confirmed, but it will soon answer nothing (R4, an announced stop).
 * - no-session: it knows no newer epoch, but the writer has no session with it. A connection that broke in silence, say
 *   by a reboot, is found so before the next request meets it.
 */
export type Confirmation = 'confirmed' | 'denied' | 'stopping' | 'no-session';

const WORDS: readonly string[] = ['confirmed', 'stopping', 'no-session'] satisfies Confirmation[];

export function confirmExport(confirm: (question: Question) => Confirmation): Export {
  return {
    stage: NO_DATA,
    readOnly: true,
    control: (payload) => {
      const answers = decodeQuestions(payload).map(confirm);
      return Promise.resolve(new TextEncoder().encode(JSON.stringify(answers)));
    },
  };
}

export function encodeQuestions(questions: readonly Question[]): Uint8Array {
  return new TextEncoder().encode(
    JSON.stringify(questions.map(({ volume, epoch, session }) => [volume, epoch, session])),
  );
}

/** Anything but the word itself confirms nothing. */
export function decodeAnswers(bytes: Uint8Array): Confirmation[] {
  const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
  if (!Array.isArray(value)) throw new HoldfastError('corrupt', 'confirmations must be a list');
  return value.map((answer: unknown) => (isConfirmation(answer) ? answer : 'denied'));
}

function isConfirmation(answer: unknown): answer is Confirmation {
  return typeof answer === 'string' && WORDS.includes(answer);
}

function decodeQuestions(payload: Uint8Array): Question[] {
  const malformed = new HoldfastError(
    'invalid-argument',
    'questions must be a JSON list of [volume id, epoch, session]',
  );
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(payload));
  } catch {
    throw malformed;
  }
  if (!Array.isArray(value)) throw malformed;
  return value.map((question: unknown) => {
    if (!Array.isArray(question)) throw malformed;
    const [volume, epoch, session] = question as unknown[];
    if (typeof volume !== 'string' || typeof epoch !== 'number' || typeof session !== 'string') throw malformed;
    return { volume, epoch, session };
  });
}

function nothing(): Promise<never> {
  return Promise.reject(new HoldfastError('unimplemented', `${CONFIRM_EXPORT} has no data`));
}

const NO_DATA: Stage = {
  sizeBytes: 0,
  read: nothing,
  write: nothing,
  flush: nothing,
  trim: nothing,
  zero: nothing,
  extents: nothing,
};
