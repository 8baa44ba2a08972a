import { HoldfastError } from '../base/errors.js';
import type { Range } from '../model/layout.js';
import { RUNS_PER_ANSWER, type ServedSession } from './served-session.js';
import type { Run } from './region-table.js';
import type { PieceDigest } from './replica.js';
import type { ReplicaState } from './session.js';

/**
 * The private command of a replica's export (NBD_CMD_HOLDFAST): one JSON object each way. One row of `CONTROLS` says
 * all about a verb: what it takes, and what the replica does.
 */
export interface Controls {
  state: { asked: Record<string, never>; told: ReplicaState };
  table: { asked: { from: number }; told: { runs: Run[] } };
  closeRegions: { asked: { regions: number[]; stamp: number }; told: Record<string, never> };
  takeEntries: { asked: { entries: { region: number; stamp: number }[] }; told: Record<string, never> };
  clearMark: { asked: Record<string, never>; told: Record<string, never> };
  digests: { asked: { offset: number; length: number; blockBytes: number }; told: { digests: PieceDigest[] } };
  grow: { asked: { capacityBytes: number }; told: Record<string, never> };
  damage: { asked: Record<string, never>; told: { ranges: Range[] } };
  beginResync: { asked: Record<string, never>; told: { begun: boolean } };
  serving: { asked: Record<string, never>; told: Record<string, never> };
}

export type Verb = keyof Controls;

interface Row<V extends Verb> {
  parse(fields: Fields): Controls[V]['asked'];
  act(session: ServedSession, asked: Controls[V]['asked']): Promise<Controls[V]['told']>;
}

const nothing = (): Record<string, never> => ({});

const CONTROLS: { readonly [V in Verb]: Row<V> } = {
  state: { parse: nothing, act: (session) => Promise.resolve(session.state) },
  table: {
    parse: (fields) => ({ from: fields.whole('from') }),
    act: async (session, { from }) => ({ runs: await session.tableFrom(from, RUNS_PER_ANSWER) }),
  },
  closeRegions: {
    parse: (fields) => ({ regions: fields.wholes('regions'), stamp: fields.whole('stamp') }),
    act: async (session, { regions, stamp }) => session.closeRegions(regions, stamp).then(nothing),
  },
  takeEntries: {
    parse: (fields) => ({
      entries: fields
        .objects('entries')
        .map((entry) => ({ region: entry.whole('region'), stamp: entry.whole('stamp') })),
    }),
    act: async (session, { entries }) => session.takeEntries(entries).then(nothing),
  },
  clearMark: { parse: nothing, act: (session) => session.clearMark().then(nothing) },
  digests: {
    parse: (fields) => ({
      offset: fields.whole('offset'),
      length: fields.whole('length'),
      blockBytes: fields.whole('blockBytes'),
    }),
    act: async (session, { offset, length, blockBytes }) => {
      const end = offset + length;
      if (length < 1 || end > session.sizeBytes || blockBytes < 4096 || blockBytes > 4 * 1024 * 1024) {
        throw new HoldfastError(
          'invalid-argument',
          `digests of ${length} bytes at ${offset} in blocks of ${blockBytes}`,
        );
      }
      return { digests: await session.digests(offset, length, blockBytes) };
    },
  },
  grow: {
    parse: (fields) => ({ capacityBytes: fields.whole('capacityBytes') }),
    act: (session, { capacityBytes }) => session.grow(capacityBytes).then(nothing),
  },
  damage: { parse: nothing, act: async (session) => ({ ranges: await session.damage() }) },
  beginResync: { parse: nothing, act: async (session) => ({ begun: await session.beginResync() }) },
  serving: { parse: nothing, act: (session) => session.serving().then(nothing) },
};

/** The bytes of a control request. */
export function encodeControl<V extends Verb>(verb: V, asked: Controls[V]['asked']): Uint8Array {
  return new TextEncoder().encode(JSON.stringify({ verb, ...asked }));
}

/** The answer's fields. The replica is trusted as far as its JSON is well formed. */
export function decodeAnswer<V extends Verb>(_verb: V, bytes: Uint8Array): Controls[V]['told'] {
  return parseObject(bytes) as Controls[V]['told'];
}

/** Carries out one control request. Malformed → `invalid-argument`, naming the field. */
export async function answerControl(session: ServedSession, payload: Uint8Array): Promise<Uint8Array> {
  const fields = new Fields(parseObject(payload));
  const verb = fields.verb();
  return new TextEncoder().encode(JSON.stringify(await actOn(verb, session, fields)));
}

function actOn<V extends Verb>(verb: V, session: ServedSession, fields: Fields): Promise<Controls[V]['told']> {
  const row: Row<V> = CONTROLS[verb];
  return row.act(session, row.parse(fields));
}

function parseObject(bytes: Uint8Array): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (error) {
    throw new HoldfastError('invalid-argument', 'a control command must be JSON', { cause: error });
  }
  throw new HoldfastError('invalid-argument', 'a control command must be a JSON object');
}

class Fields {
  constructor(private readonly object: Record<string, unknown>) {}

  verb(): Verb {
    const verb = this.object['verb'];
    if (typeof verb === 'string' && Object.hasOwn(CONTROLS, verb)) return verb as Verb;
    throw new HoldfastError('invalid-argument', `verb must be one of ${Object.keys(CONTROLS).join(', ')}`);
  }

  whole(name: string): number {
    return wholeNumber(name, this.object[name]);
  }

  wholes(name: string): number[] {
    return this.#list(name).map((value) => wholeNumber(name, value));
  }

  objects(name: string): Fields[] {
    return this.#list(name).map((value) => {
      if (typeof value === 'object' && value !== null) return new Fields(value as Record<string, unknown>);
      throw new HoldfastError('invalid-argument', `${name} must be a list of objects`);
    });
  }

  #list(name: string): unknown[] {
    const value = this.object[name];
    if (Array.isArray(value)) return value;
    throw new HoldfastError('invalid-argument', `${name} must be a list`);
  }
}

function wholeNumber(name: string, value: unknown): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value;
  throw new HoldfastError(
    'invalid-argument',
    `${name} must be a whole number of 0 or more, not ${JSON.stringify(value)}`,
  );
}
