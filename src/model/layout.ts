/** Sizes of volumes are multiples of this. */
export const CAPACITY_STEP_BYTES = 1024 * 1024;

export const MAX_CAPACITY_BYTES = 16 * 1024 ** 4;

/** A part of a volume, in bytes. */
export interface Range {
  readonly offset: number;
  readonly length: number;
}

/**
 * How a volume's bytes are divided. The product has one layout, `LAYOUT`; the simulator gives smaller ones, in which
 * regions and slices collide sooner.
 */
export class Layout {
  constructor(
    /** The unit in which divergence is tracked; a multiple of `compareBytes`. */
    readonly regionBytes: number,
    /** A replica's data is a row of sparse files of this size; a multiple of `regionBytes`. */
    readonly sliceBytes: number,
    /** The piece that is compared by digest, and copied where it differs; a multiple of a page. */
    readonly compareBytes: number,
  ) {}

  /** Regions of a volume; the last one may be shorter than `regionBytes`. */
  regionCount(capacityBytes: number): number {
    return Math.ceil(capacityBytes / this.regionBytes);
  }

  /** The first and last region that a range touches (`length` > 0). */
  regionsOf(offset: number, length: number): { first: number; last: number } {
    const { regionBytes } = this;
    return { first: Math.floor(offset / regionBytes), last: Math.floor((offset + length - 1) / regionBytes) };
  }

  /** The whole range of a region; the last one of a volume may be shorter. */
  rangeOf(region: number): Range {
    return { offset: region * this.regionBytes, length: this.regionBytes };
  }

  /** The parts of a range whose regions satisfy `wanted`, neighbours joined. */
  *partsOf(offset: number, length: number, wanted: (region: number) => boolean): Generator<Range> {
    const { regionBytes } = this;
    const { first, last } = this.regionsOf(offset, length);
    let start: number | undefined;
    for (let region = first; region <= last + 1; region++) {
      if (region <= last && wanted(region)) start ??= Math.max(offset, region * regionBytes);
      else if (start !== undefined) {
        yield { offset: start, length: Math.min(offset + length, region * regionBytes) - start };
        start = undefined;
      }
    }
  }
}

export const LAYOUT = new Layout(4 * 1024 * 1024, 1024 * 1024 * 1024, 256 * 1024);
