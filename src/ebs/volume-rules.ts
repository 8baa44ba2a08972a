/**
 * What EBS allows of a volume: one row says all about one type.
 *
 * Sources: EC2 API reference, CreateVolume (sizes, IOPS, throughput); EBS user guide, "Amazon EBS volume types", for the
 * ratios: gp3 500 IOPS for each GiB and 0.25 MiB/s for each IOPS, io1 50 and io2 (Block Express) 1,000 IOPS for each
 * GiB. gp3 has had its present limits (64 TiB, 80,000 IOPS, 2,000 MiB/s) since September 2025.
 */
export type VolumeType = 'gp3' | 'gp2' | 'io1' | 'io2' | 'st1' | 'sc1' | 'standard';

/** What CreateVolume is asked for. A speed that the type doesn't take is absent. */
export interface VolumeSpec {
  readonly type: VolumeType;
  readonly sizeGiB: number;
  readonly iops?: number;
  readonly throughputMiBps?: number;
}

/** Whole numbers, both ends included. */
export interface Range {
  readonly least: number;
  readonly most: number;
}

interface SpeedRule extends Range {
  /** What EBS gives where none is asked for; absent: it must be asked for. */
  readonly standard?: number;
  /** The most for each GiB (IOPS), or for each IOPS (throughput). `least` is allowed at any size. */
  readonly ratio: number;
}

export interface VolumeRule {
  readonly sizeGiB: Range;
  /** Absent: may not be given. */
  readonly iops?: SpeedRule;
  /** Absent: may not be given. */
  readonly throughputMiBps?: SpeedRule & { readonly standard: number };
}

export const VOLUME_RULES: Readonly<Record<VolumeType, VolumeRule>> = {
  gp3: {
    sizeGiB: { least: 1, most: 65_536 },
    iops: { least: 3_000, most: 80_000, standard: 3_000, ratio: 500 },
    throughputMiBps: { least: 125, most: 2_000, standard: 125, ratio: 0.25 },
  },
  gp2: { sizeGiB: { least: 1, most: 16_384 } },
  io1: { sizeGiB: { least: 4, most: 16_384 }, iops: { least: 100, most: 64_000, ratio: 50 } },
  io2: { sizeGiB: { least: 4, most: 65_536 }, iops: { least: 100, most: 256_000, ratio: 1_000 } },
  st1: { sizeGiB: { least: 125, most: 16_384 } },
  sc1: { sizeGiB: { least: 125, most: 16_384 } },
  standard: { sizeGiB: { least: 1, most: 1_024 } },
};

export const VOLUME_TYPES = Object.keys(VOLUME_RULES) as VolumeType[];

export type SpecField = 'sizeGiB' | 'iops' | 'throughputMiBps';

export type VolumeRuleName =
  | 'size-range'
  | 'iops-required'
  | 'iops-not-taken'
  | 'iops-range'
  | 'iops-per-gib'
  | 'throughput-not-taken'
  | 'throughput-range'
  | 'throughput-per-iops';

/** One thing that EBS would refuse. */
export interface SpecFault {
  readonly field: SpecField;
  /** undefined: not given. */
  readonly value: number | undefined;
  /** What would be right, as the end of a sentence that begins "it must be". */
  readonly allowed: string;
  readonly rule: VolumeRuleName;
}

/** The spec with what EBS gives where nothing is asked for. Only what is absent is filled in. */
export function fillVolumeSpec(spec: VolumeSpec): VolumeSpec {
  const { iops: iopsRule, throughputMiBps: throughputRule } = VOLUME_RULES[spec.type];
  const iops = spec.iops ?? iopsRule?.standard;
  const throughputMiBps = spec.throughputMiBps ?? throughputRule?.standard;
  return {
    type: spec.type,
    sizeGiB: spec.sizeGiB,
    ...(iops === undefined ? {} : { iops }),
    ...(throughputMiBps === undefined ? {} : { throughputMiBps }),
  };
}

/**
 * Everything that EBS would refuse of the spec; empty: nothing. What is absent counts as EBS would fill it in. A ratio is
 * judged only where both its numbers are in their ranges.
 */
export function judgeVolumeSpec(given: VolumeSpec): SpecFault[] {
  const spec = fillVolumeSpec(given);
  const size = judgeSize(spec);
  const iops = judgeIops(spec, size === undefined);
  const throughput = judgeThroughput(spec, iops === undefined);
  return [size, iops, throughput].filter((fault) => fault !== undefined);
}

function judgeSize({ type, sizeGiB }: VolumeSpec): SpecFault | undefined {
  const range = VOLUME_RULES[type].sizeGiB;
  if (isIn(range, sizeGiB)) return undefined;
  return { field: 'sizeGiB', value: sizeGiB, allowed: `${inRange(range)} GiB with type ${type}`, rule: 'size-range' };
}

function judgeIops({ type, sizeGiB, iops }: VolumeSpec, sizeIsRight: boolean): SpecFault | undefined {
  const rule = VOLUME_RULES[type].iops;
  const fault = (allowed: string, name: VolumeRuleName): SpecFault => {
    return { field: 'iops', value: iops, allowed, rule: name };
  };
  if (rule === undefined) {
    return iops === undefined ? undefined : fault(`left out: type ${type} takes none`, 'iops-not-taken');
  }
  const range = `${inRange(rule)} with type ${type}`;
  if (iops === undefined) return fault(`${range}, which has no default`, 'iops-required');
  if (!isIn(rule, iops)) return fault(range, 'iops-range');
  const most = mostFor(rule, sizeGiB);
  if (!sizeIsRight || iops <= most) return undefined;
  const ratio = `${rule.ratio} for each GiB with type ${type}`;
  return fault(`${inRange({ ...rule, most })} at ${sizeGiB} GiB, ${ratio}`, 'iops-per-gib');
}

function judgeThroughput(spec: VolumeSpec, iopsAreRight: boolean): SpecFault | undefined {
  const { type, iops, throughputMiBps } = spec;
  const rule = VOLUME_RULES[type].throughputMiBps;
  if (throughputMiBps === undefined) return undefined;
  const fault = (allowed: string, name: VolumeRuleName): SpecFault => {
    return { field: 'throughputMiBps', value: throughputMiBps, allowed, rule: name };
  };
  if (rule === undefined) return fault(`left out: type ${type} takes none`, 'throughput-not-taken');
  if (!isIn(rule, throughputMiBps)) return fault(`${inRange(rule)} MiB/s with type ${type}`, 'throughput-range');
  if (iops === undefined || !iopsAreRight) return undefined;
  const most = mostFor(rule, iops);
  if (throughputMiBps <= most) return undefined;
  const ratio = `${rule.ratio} MiB/s for each IOPS with type ${type}`;
  return fault(`${inRange({ ...rule, most })} MiB/s at ${iops} IOPS, ${ratio}`, 'throughput-per-iops');
}

function mostFor(rule: SpeedRule, base: number): number {
  return Math.min(rule.most, Math.max(rule.least, Math.floor(rule.ratio * base)));
}

function isIn({ least, most }: Range, value: number): boolean {
  return Number.isInteger(value) && value >= least && value <= most;
}

function inRange({ least, most }: Range): string {
  return `a whole number from ${least} to ${most}`;
}
