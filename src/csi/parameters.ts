import { HoldfastError } from '../base/errors.js';
import type { FilesystemType, VolumeParameters } from '../model/records.js';
import { judgeFilesystem } from './capability.js';

/**
 * The parameters of a StorageClass: one row says all about one parameter. Whoever adds a row adds nothing else; the
 * refusals and the documentation come from the table. What a parameter was at creation is written in the volume's
 * record, and no default here ever touches a volume that exists.
 */
interface Row<Value> {
  readonly range: string;
  readonly standard: Value;
  readonly doc: string;
  /** undefined: out of range. */
  readonly parse: (text: string) => Value | undefined;
}

type Table = { readonly [Name in keyof VolumeParameters]: Row<VolumeParameters[Name]> };

const MAX_REPLICAS = 3;
const MAX_MKFS_OPTIONS_BYTES = 1024;

/** Options reach mkfs as they are, one by one, never through a shell; no path of the host can be named. */
const MKFS_OPTION = /^[A-Za-z0-9_=,.:^+-]+$/;

const TABLE: Table = {
  replicas: {
    range: `1 to ${MAX_REPLICAS}`,
    standard: 2,
    doc: 'Full copies of the volume, each on another node.',
    parse: wholeNumber(1, MAX_REPLICAS),
  },
  minInSync: {
    range: '1 to the number of replicas',
    standard: 1,
    doc: 'Writes wait while fewer replicas than this are in sync.',
    parse: wholeNumber(1, MAX_REPLICAS),
  },
  zones: {
    range: 'spread or same',
    standard: 'spread',
    doc: 'Whether replicas lie in different zones (survives the loss of a zone; every write crosses zones) or in one.',
    parse: oneOf('spread', 'same'),
  },
  failover: {
    range: 'auto or manual',
    standard: 'auto',
    doc: 'Whether another node may take over by itself when the writer is lost.',
    parse: oneOf('auto', 'manual'),
  },
  diskTemplate: {
    range: 'empty, as no disk templates are defined',
    standard: '',
    doc: 'The disk template whose disks hold the replicas; empty for any.',
    parse: (text) => (text === '' ? '' : undefined),
  },
  mkfsOptions: {
    range: `options of mkfs, separated by spaces, without paths, at most ${MAX_MKFS_OPTIONS_BYTES} bytes`,
    standard: [],
    doc: 'Further options for mkfs when the volume is formatted.',
    parse: mkfsOptions,
  },
};

/** Keys under this prefix belong to the orchestrator's sidecars. */
const SIDECAR_PREFIX = 'csi.storage.k8s.io/';
const FILESYSTEM_KEY = `${SIDECAR_PREFIX}fstype`;

export interface ParsedParameters {
  readonly parameters: VolumeParameters;
  /** null: not said. */
  readonly filesystem: FilesystemType | null;
}

/** `invalid-argument` names the parameter, its value and what would be right, or lists the known ones. */
export function parseParameters(given: Readonly<Record<string, string>>): ParsedParameters {
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(TABLE, name) && !name.startsWith(SIDECAR_PREFIX)) throw unknownParameter(name);
  }
  const parameters: VolumeParameters = {
    replicas: read('replicas', given),
    minInSync: read('minInSync', given),
    zones: read('zones', given),
    failover: read('failover', given),
    diskTemplate: read('diskTemplate', given),
    mkfsOptions: read('mkfsOptions', given),
  };
  if (parameters.minInSync > parameters.replicas) {
    throw refused('minInSync', String(parameters.minInSync), `at most replicas, which is ${parameters.replicas}`);
  }
  const filesystem = judgeFilesystem(given[FILESYSTEM_KEY] ?? '', `parameters["${FILESYSTEM_KEY}"]`);
  if ('refusal' in filesystem) throw new HoldfastError('invalid-argument', filesystem.refusal);
  return { parameters, filesystem: filesystem.offered };
}

const PARAMETER_NAMES = Object.keys(TABLE) as (keyof VolumeParameters)[];

/** The table for people: one entry for each parameter. */
export function describeParameters(): { name: string; range: string; standard: string; doc: string }[] {
  return PARAMETER_NAMES.map((name) => {
    const { range, standard, doc } = TABLE[name];
    return { name, range, standard: Array.isArray(standard) ? standard.join(' ') : String(standard), doc };
  });
}

function read<Name extends keyof VolumeParameters>(
  name: Name,
  given: Readonly<Record<string, string>>,
): VolumeParameters[Name] {
  const row: Row<VolumeParameters[Name]> = TABLE[name];
  const text = Object.hasOwn(given, name) ? given[name] : undefined;
  if (text === undefined) return row.standard;
  const value = row.parse(text);
  if (value === undefined) throw refused(name, text, row.range);
  return value;
}

function refused(name: string, text: string, range: string): HoldfastError {
  return new HoldfastError('invalid-argument', `parameter ${name} is ${JSON.stringify(text)}; it must be ${range}`);
}

function unknownParameter(name: string): HoldfastError {
  const known = PARAMETER_NAMES.join(', ');
  return new HoldfastError('invalid-argument', `parameter ${JSON.stringify(name)} is unknown; known are ${known}`);
}

function wholeNumber(min: number, max: number): (text: string) => number | undefined {
  return (text) => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    return value >= min && value <= max ? value : undefined;
  };
}

function oneOf<Word extends string>(...words: Word[]): (text: string) => Word | undefined {
  return (text) => words.find((word) => word === text);
}

function mkfsOptions(text: string): string[] | undefined {
  if (Buffer.byteLength(text) > MAX_MKFS_OPTIONS_BYTES) return undefined;
  const options = text.split(' ').filter((option) => option !== '');
  return options.every((option) => MKFS_OPTION.test(option)) ? options : undefined;
}
