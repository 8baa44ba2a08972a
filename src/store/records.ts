import { HoldfastError, messageOf } from '../base/errors.js';
import { RECORD_KINDS, SCHEMA_VERSION, type RecordKind, type RecordTypes } from '../model/records.js';

/**
 * Between text and typed records: what every implementation of the store does with a record on its way in and out.
 *
 * A record of this or an older schema is read; a newer one is refused, for this process can't know what its fields
 * mean together. Fields that are not known here stay in the record and are written back with it. A list that holds a
 * record which can't be read fails as a whole: to leave it out would tell its reader that there is no such record, and
 * what has no record is cleaned away.
 */

/** Longest JSON text of a record. */
export const MAX_RECORD_BYTES = 1024 * 1024;

const MAX_KEY_LENGTH = 253;
const KEY = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** `invalid-argument` unless the word is a kind of record. */
export function parseKind(kind: string): RecordKind {
  const known = RECORD_KINDS.find((each) => each === kind);
  if (known === undefined) {
    throw new HoldfastError(
      'invalid-argument',
      `kind ${shorten(kind)} is unknown; known are ${RECORD_KINDS.join(', ')}`,
    );
  }
  return known;
}

/** `invalid-argument` unless the key is 1–253 letters, digits, dots, dashes and underscores. */
export function checkKey(kind: RecordKind, key: string): void {
  if (key.length > MAX_KEY_LENGTH || !KEY.test(key)) {
    const right = `1 to ${MAX_KEY_LENGTH} letters, digits, '.', '-' and '_', the first a letter or digit`;
    throw new HoldfastError('invalid-argument', `key ${shorten(key)} of a ${kind} must be ${right}`);
  }
}

/** The text a record is stored and sent as. `invalid-argument` where it is not a right record of its kind or too long. */
export function encodeRecord<K extends RecordKind>(kind: K, key: string, record: RecordTypes[K]): string {
  checkKey(kind, key);
  const json = JSON.stringify(record);
  acceptRecord(kind, key, json);
  return json;
}

/** Checks text from outside before it is stored: `invalid-argument`, or `failed-precondition` for a newer schema. */
export function acceptRecord(kind: RecordKind, key: string, json: string): void {
  checkKey(kind, key);
  const length = Buffer.byteLength(json);
  if (length > MAX_RECORD_BYTES) {
    throw new HoldfastError(
      'invalid-argument',
      `${kind} ${key} has ${length} bytes of JSON; at most ${MAX_RECORD_BYTES} are stored`,
    );
  }
  checkRecord(kind, key, json, 'invalid-argument');
}

/** Reads stored text. `corrupt` where it is no record of its kind, `failed-precondition` where its schema is newer. */
export function decodeRecord<K extends RecordKind>(kind: K, key: string, json: string): RecordTypes[K] {
  // The one place where text becomes a type: checkRecord has looked at every field that the type names.
  return checkRecord(kind, key, json, 'corrupt') as unknown as RecordTypes[K];
}

type Fields = Record<string, unknown>;

function checkRecord(kind: RecordKind, key: string, json: string, code: 'corrupt' | 'invalid-argument'): Fields {
  const what = `${kind} ${key}`;
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new HoldfastError(code, `${what} is no JSON: ${messageOf(error)}`, { cause: error });
  }
  if (!isObject(value)) throw new HoldfastError(code, `${what} must be a JSON object, not ${shorten(json)}`);
  const schema = value['schema'];
  if (!isWhole(schema) || schema < 1) {
    throw new HoldfastError(code, `${what}: schema ${show(schema)} must be a whole number from 1 on`);
  }
  if (schema > SCHEMA_VERSION) {
    throw new HoldfastError(
      'failed-precondition',
      `${what} was written with schema ${schema} by a newer Holdfast; this one reads up to ${SCHEMA_VERSION}: upgrade it`,
    );
  }
  const wrong = wrongField(value, FIELDS[kind]);
  if (wrong !== undefined) throw new HoldfastError(code, `${what}: ${wrong}`);
  return value;
}

/** What a field must be: a test, and its words for the message. */
interface Rule {
  readonly test: (value: unknown) => boolean;
  readonly right: string;
}

const TEXT: Rule = { test: (value) => typeof value === 'string', right: 'text' };
const NAME: Rule = { test: (value) => typeof value === 'string' && value !== '', right: 'text, not empty' };
const FLAG: Rule = { test: (value) => typeof value === 'boolean', right: 'true or false' };
const COUNT: Rule = { test: (value) => isWhole(value) && value >= 0, right: 'a whole number from 0 on' };
const POSITIVE: Rule = { test: (value) => isWhole(value) && value >= 1, right: 'a whole number from 1 on' };
const SEGMENTS: Rule = { test: isSegments, right: 'an object of texts' };

/** A value of a later version's union is not refused here: who acts on it must know it, who passes it on need not. */
const FIELDS: Readonly<Record<RecordKind, Readonly<Record<string, Rule>>>> = {
  cluster: { clusterId: NAME },
  node: {
    name: NAME,
    nodeUid: NAME,
    topology: SEGMENTS,
    host: NAME,
    agentPort: COUNT,
    dataPorts: listOf(COUNT, 'port numbers'),
    cordoned: FLAG,
  },
  lease: { nodeUid: NAME, intervalMs: POSITIVE, beat: COUNT },
  disk: { diskId: NAME, node: NAME, capacityBytes: COUNT, usedBytes: COUNT, state: NAME, reason: TEXT },
  volume: {
    id: NAME,
    name: TEXT,
    capacityBytes: POSITIVE,
    parameters: objectWith({
      replicas: POSITIVE,
      minInSync: POSITIVE,
      zones: NAME,
      failover: NAME,
      diskTemplate: TEXT,
      mkfsOptions: listOf(TEXT, 'texts'),
    }),
    content: objectWith({ kind: NAME }),
    format: NAME,
    phase: NAME,
    accessibleTopology: listOf(SEGMENTS, 'objects of texts'),
    epoch: POSITIVE,
    writer: {
      test: (value) => value === null || objectWith({ node: NAME, session: NAME }).test(value),
      right: 'null, or an object with node and session',
    },
    replicas: listOf(
      objectWith({ node: NAME, disk: NAME, inSync: FLAG, placement: optional(COUNT) }),
      'objects with node, disk and inSync',
    ),
    placements: optional(COUNT),
    decisions: optional(
      listOf(objectWith({ at: TEXT, by: TEXT, what: TEXT, epoch: COUNT }), 'objects with at, by, what and epoch'),
    ),
    createdAt: TEXT,
    lastAttachedAt: TEXT,
  },
};

function wrongField(fields: Fields, rules: Readonly<Record<string, Rule>>): string | undefined {
  for (const [name, rule] of Object.entries(rules)) {
    if (!rule.test(fields[name])) return `${name} ${show(fields[name])} must be ${rule.right}`;
  }
  return undefined;
}

function listOf(item: Rule, right: string): Rule {
  return {
    test: (value) => Array.isArray(value) && value.every((each) => item.test(each)),
    right: `a list of ${right}`,
  };
}

/** A field that older records lack. */
function optional(rule: Rule): Rule {
  return { test: (value) => value === undefined || rule.test(value), right: `${rule.right}, or absent` };
}

function objectWith(rules: Readonly<Record<string, Rule>>): Rule {
  return {
    test: (value) => isObject(value) && wrongField(value, rules) === undefined,
    right: `an object with right values of ${Object.keys(rules).join(', ')}`,
  };
}

function isSegments(value: unknown): boolean {
  return isObject(value) && Object.values(value).every((each) => typeof each === 'string');
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

function show(value: unknown): string {
  return value === undefined ? '(missing)' : shorten(JSON.stringify(value));
}

function shorten(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text === '' ? '(empty)' : text;
}
