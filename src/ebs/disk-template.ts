import { HoldfastError } from '../base/errors.js';
import {
  fillVolumeSpec,
  judgeVolumeSpec,
  VOLUME_RULES,
  VOLUME_TYPES,
  type SpecField,
  type VolumeSpec,
  type VolumeType,
} from './volume-rules.js';

/**
 * A disk template says what disks a group of nodes gets. What is parsed here is complete: type, size and speed stand in
 * it as EBS will be asked for them, defaults included. They are copied into a disk's record at its creation, and no
 * later default, template or version touches a disk that exists.
 */
export interface DiskTemplate {
  readonly name: string;
  /** Topology segments that a node must have, all of them; empty: every node. */
  readonly nodeSelector: Readonly<Record<string, string>>;
  readonly volume: TemplateVolume;
  /** Disks of each node. */
  readonly count: number;
  readonly growth: Growth;
  /** What becomes of the disks of a node that is gone: a replacement in the zone takes them, or they are deleted. */
  readonly onNodeLoss: 'adopt' | 'delete';
}

export interface TemplateVolume extends VolumeSpec {
  readonly encrypted: boolean;
  /** Key id, alias or ARN. Without it an encrypted volume gets the account's default key. */
  readonly kmsKeyId?: string;
  /** Besides those of Holdfast. */
  readonly tags: Readonly<Record<string, string>>;
}

export interface Growth {
  /** No disk grows beyond this. */
  readonly maxSizeGiB: number;
  /** No node gets more disks than this. */
  readonly maxCount: number;
  /** Above this share of its capacity a pool grows. */
  readonly highWaterPercent: number;
  /** By how much of its size a disk grows at once. */
  readonly stepPercent: number;
  /** A pool grows when it would pass the mark within this time, by its trend. 0: only at the mark. */
  readonly leadHours: number;
}

/** Does a node of this topology get disks by the template? */
export function selectsNode(template: DiskTemplate, topology: Readonly<Record<string, string>>): boolean {
  return Object.entries(template.nodeSelector).every(([key, value]) => topology[key] === value);
}

/** EC2 takes 50 tags; the rest are for Holdfast's own and those that the account's policies add. */
const MAX_TAGS = 40;
const RESERVED_TAG_PREFIXES = ['aws:', 'holdfast.dev/'];
/** EC2 user guide, "Tag restrictions". */
const TAG_TEXT = /^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$/u;

const KEY_ID = '(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})';
const KEY_ALIAS = 'alias/[a-zA-Z0-9/_-]{1,250}';
const KMS_KEY = new RegExp(
  `^(${KEY_ID}|${KEY_ALIAS}|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:(key/${KEY_ID}|${KEY_ALIAS}))$`,
);

interface Row<Value> {
  /** The end of a sentence that begins "it must be". */
  readonly range: string;
  /** Absent: must be given. */
  readonly standard?: Value;
  /** undefined: out of range. */
  readonly parse: (given: unknown) => Value | undefined;
}

type Table<Shape> = { readonly [Name in keyof Shape]: Row<Shape[Name]> };

interface TemplateShape extends Omit<DiskTemplate, 'volume' | 'growth'> {
  readonly volume: Given;
  readonly growth: Given;
}

/** Numbers that are none become NaN, so that the rules of the type tell their range. */
interface VolumeShape {
  readonly type: VolumeType;
  readonly sizeGiB: number;
  readonly iops: number | null;
  readonly throughputMiBps: number | null;
  readonly encrypted: boolean;
  readonly kmsKeyId: string | null;
  readonly tags: Readonly<Record<string, string>>;
}

type GrowthShape = Omit<Growth, 'maxSizeGiB' | 'maxCount'> & {
  readonly maxSizeGiB: number | null;
  readonly maxCount: number | null;
};

type Given = Readonly<Record<string, unknown>>;

const MAX_DISKS = 64;
const MAX_NAME_CHARACTERS = 63;

const TEMPLATE: Table<TemplateShape> = {
  name: {
    range: `1 to ${MAX_NAME_CHARACTERS} lower-case letters, digits and '-', the first and last a letter or digit`,
    parse: matching(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/),
  },
  nodeSelector: { range: 'an object of topology keys and their values', standard: {}, parse: texts(/./, /./) },
  volume: { range: 'an object', parse: object },
  count: { range: `a whole number from 1 to ${MAX_DISKS}`, standard: 1, parse: wholeNumber(1, MAX_DISKS) },
  growth: { range: 'an object', standard: {}, parse: object },
  onNodeLoss: { range: 'adopt or delete', standard: 'adopt', parse: oneOf('adopt', 'delete') },
};

const VOLUME: Table<VolumeShape> = {
  type: { range: `one of ${VOLUME_TYPES.join(', ')}`, standard: 'gp3', parse: oneOf(...VOLUME_TYPES) },
  sizeGiB: { range: 'a whole number of GiB', parse: orNaN },
  iops: { range: 'a whole number', standard: null, parse: orNaN },
  throughputMiBps: { range: 'a whole number of MiB/s', standard: null, parse: orNaN },
  encrypted: { range: 'true or false', standard: true, parse: oneOf(true, false) },
  kmsKeyId: { range: 'the id, alias/… or ARN of a KMS key', standard: null, parse: matching(KMS_KEY) },
  tags: {
    range: `an object of at most ${MAX_TAGS} keys (1 to 128 characters) with texts (up to 256) of letters, digits, spaces and _.:/=+-@`,
    standard: {},
    parse: tags,
  },
};

const GROWTH: Table<GrowthShape> = {
  maxSizeGiB: { range: 'a whole number of GiB', standard: null, parse: orNaN },
  maxCount: { range: `a whole number from 1 to ${MAX_DISKS}`, standard: null, parse: wholeNumber(1, MAX_DISKS) },
  highWaterPercent: { range: 'a whole number from 10 to 95', standard: 80, parse: wholeNumber(10, 95) },
  stepPercent: { range: 'a whole number from 5 to 400', standard: 50, parse: wholeNumber(5, 400) },
  leadHours: { range: 'a whole number from 0 to 168', standard: 12, parse: wholeNumber(0, 168) },
};

/**
 * A disk template from configuration (what a JSON text becomes). `invalid-argument` tells all that is wrong at once: each
 * key with its path, its value and what would be right.
 */
export function parseDiskTemplate(given: unknown): DiskTemplate {
  const faults = new Faults();
  const { name, volume, growth, ...rest } = readObject('', object(given) ?? {}, TEMPLATE, faults);
  const title = typeof name === 'string' ? `disk template ${name}` : 'a disk template';
  if (object(given) === undefined) throw refused(title, [`it is ${shown(given)}; it must be an object`]);
  const parsedVolume = readVolume(volume ?? {}, volume !== undefined, faults);
  const parsedGrowth = readGrowth(growth ?? {}, parsedVolume, rest.count, faults);
  if (!faults.isEmpty) throw refused(title, faults.list);
  return { name, ...rest, volume: parsedVolume, growth: parsedGrowth } as DiskTemplate;
}

/** Gathers what is wrong. */
class Faults {
  readonly list: string[] = [];

  get isEmpty(): boolean {
    return this.list.length === 0;
  }

  add(path: string, given: unknown, right: string): void {
    this.list.push(`${path} is ${shown(given)}; it must be ${right}`);
  }

  unknown(path: string, name: string, known: readonly string[]): void {
    const near = known.find((each) => each.toLowerCase() === name.toLowerCase());
    const right = near === undefined ? `known are ${known.join(', ')}` : `it is written ${near}`;
    this.list.push(`${path} is unknown; ${right}`);
  }
}

type Partly<Shape> = { readonly [Name in keyof Shape]: Shape[Name] | undefined };

/** undefined stands where a value was refused. */
function readObject<Shape>(path: string, given: Given, table: Table<Shape>, faults: Faults): Partly<Shape> {
  const known = Object.keys(table);
  for (const name of Object.keys(given)) if (!known.includes(name)) faults.unknown(path + name, name, known);
  const read = (name: keyof Shape & string): unknown => {
    const row = table[name];
    const value = Object.hasOwn(given, name) ? given[name] : undefined;
    if (value === undefined && row.standard !== undefined) return row.standard;
    const parsed = value === undefined ? undefined : row.parse(value);
    if (parsed === undefined) faults.add(path + name, value, row.range);
    return parsed;
  };
  return Object.fromEntries(known.map((name) => [name, read(name as keyof Shape & string)])) as Partly<Shape>;
}

function readVolume(given: Given, isGiven: boolean, faults: Faults): TemplateVolume | undefined {
  if (!isGiven) return undefined;
  const { type, sizeGiB, iops, throughputMiBps, encrypted, kmsKeyId, tags } = readObject(
    'volume.',
    given,
    VOLUME,
    faults,
  );
  judgeTags(given['tags'], faults);
  if (kmsKeyId != null && encrypted === false) faults.add('volume.encrypted', false, 'true where kmsKeyId is given');
  if (type === undefined) {
    judgeNumbers({ sizeGiB, iops, throughputMiBps }, given, faults);
    return undefined;
  }
  const spec: VolumeSpec = fillVolumeSpec({
    type,
    sizeGiB: sizeGiB ?? VOLUME_RULES[type].sizeGiB.most,
    ...(iops == null ? {} : { iops }),
    ...(throughputMiBps == null ? {} : { throughputMiBps }),
  });
  for (const { field, value, allowed, rule } of judgeVolumeSpec(spec)) {
    faults.add(`volume.${field}`, asGiven(given, field, value), `${allowed} (${rule})`);
  }
  if (encrypted === undefined || tags === undefined || sizeGiB === undefined) return undefined;
  return { ...spec, encrypted, ...(kmsKeyId == null ? {} : { kmsKeyId }), tags };
}

function readGrowth(
  given: Given,
  volume: TemplateVolume | undefined,
  count: number | undefined,
  faults: Faults,
): Growth | undefined {
  const growth = readObject('growth.', given, GROWTH, faults);
  if (volume === undefined || count === undefined) return undefined;
  const maxSizeGiB = growth.maxSizeGiB ?? volume.sizeGiB;
  const maxCount = growth.maxCount ?? count;
  const most = VOLUME_RULES[volume.type].sizeGiB.most;
  // Where the size itself is refused, that is told already.
  const least = isWhole(volume.sizeGiB, 1, most) ? volume.sizeGiB : 1;
  if (growth.maxSizeGiB != null && !isWhole(maxSizeGiB, least, most)) {
    const right = `a whole number from ${least} (volume.sizeGiB) to ${most} GiB with type ${volume.type}`;
    faults.add('growth.maxSizeGiB', given['maxSizeGiB'], right);
  }
  if (maxCount < count) faults.add('growth.maxCount', maxCount, `at least count, which is ${count}`);
  return { ...growth, maxSizeGiB, maxCount } as Growth;
}

/** Without a type there are no ranges, but numbers they must be. */
function judgeNumbers(numbers: Readonly<Record<SpecField, unknown>>, given: Given, faults: Faults): void {
  for (const field of Object.keys(numbers) as SpecField[]) {
    const value = numbers[field];
    if (value == null || isWhole(value, 1, Number.MAX_SAFE_INTEGER)) continue;
    faults.add(`volume.${field}`, given[field], 'a whole number from 1');
  }
}

/** What stood in the configuration, rather than what it was read as. */
function asGiven(given: Given, field: SpecField, value: number | undefined): unknown {
  return Object.hasOwn(given, field) ? given[field] : value;
}

function judgeTags(given: unknown, faults: Faults): void {
  for (const key of Object.keys(object(given) ?? {})) {
    const prefix = RESERVED_TAG_PREFIXES.find((each) => key.toLowerCase().startsWith(each));
    if (prefix !== undefined)
      faults.list.push(`volume.tags has ${shown(key)}; keys that begin with ${prefix} are reserved`);
  }
}

function refused(title: string, faults: readonly string[]): HoldfastError {
  return new HoldfastError('invalid-argument', `${title}: ${faults.join('. ')}`);
}

function shown(value: unknown): string {
  return value === undefined ? 'missing' : JSON.stringify(value);
}

function isWhole(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most;
}

function wholeNumber(least: number, most: number): (given: unknown) => number | undefined {
  return (given) => (isWhole(given, least, most) ? given : undefined);
}

function orNaN(given: unknown): number {
  return typeof given === 'number' ? given : Number.NaN;
}

function oneOf<Word>(...words: Word[]): (given: unknown) => Word | undefined {
  return (given) => words.find((word) => word === given);
}

function matching(form: RegExp): (given: unknown) => string | undefined {
  return (given) => (typeof given === 'string' && form.test(given) ? given : undefined);
}

function object(given: unknown): Given | undefined {
  const isObject = typeof given === 'object' && given !== null && !Array.isArray(given);
  return isObject ? (given as Given) : undefined;
}

function texts(key: RegExp, value: RegExp): (given: unknown) => Readonly<Record<string, string>> | undefined {
  return (given) => {
    const entries = Object.entries(object(given) ?? { '': null });
    const right = entries.every(([name, text]) => key.test(name) && typeof text === 'string' && value.test(text));
    return right ? (Object.fromEntries(entries) as Record<string, string>) : undefined;
  };
}

function tags(given: unknown): Readonly<Record<string, string>> | undefined {
  const read = texts(TAG_TEXT, TAG_TEXT)(given);
  const entries = Object.entries(read ?? {});
  const right = entries.every(([key, value]) => key.length >= 1 && key.length <= 128 && value.length <= 256);
  return right && entries.length <= MAX_TAGS ? read : undefined;
}
