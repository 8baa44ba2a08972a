/**
 * What a part of Holdfast counts of itself. The data path is given this interface and knows nothing of who asks for the
 * figures; a row of src/metrics/table.ts stands behind every name.
 *
 * Counters and histograms are asked for once, ahead; to count with them allocates nothing. Gauges are read only when
 * somebody asks.
 */
export interface Meters {
  /** The same name and labels give the same counter. */
  counter(name: string, labels?: Labels): Counter;
  /** The same name and labels give the same histogram; its buckets stand in its row. */
  histogram(name: string, labels?: Labels): Histogram;
  /** `read` is called each time that somebody asks, and tells what is the case then. */
  gauges(read: (tell: Tell) => void): void;
  /** Drops every counter and histogram that has these labels, as of a volume that is no longer here. */
  forget(labels: Labels): void;
}

export type Labels = Readonly<Record<string, string>>;

export interface Counter {
  /** By one where no amount is given; never less than 0. */
  add(amount?: number): void;
}

export interface Histogram {
  /** Durations are in seconds. */
  observe(value: number): void;
}

export type Tell = (name: string, value: number, labels?: Labels) => void;

const nothing = (): void => undefined;

/** Where nobody asks: counts nothing. */
export const NO_METERS: Meters = {
  counter: () => ({ add: nothing }),
  histogram: () => ({ observe: nothing }),
  gauges: nothing,
  forget: nothing,
};
