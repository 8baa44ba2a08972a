import type { Counter, Histogram, Meters } from '../base/meters.js';
import type { Clock } from '../io/io.js';

/** Counts what the replicas of one data thread ask of their disks. */
export class DiskMeter {
  readonly #seconds: Readonly<Record<DiskOperation, Histogram>>;
  readonly #bytes: Readonly<Record<DiskOperation, Counter>>;
  readonly #opens: Histogram;
  readonly #scrubbed: Counter;
  readonly #damaged: Counter;

  constructor(
    meters: Meters,
    private readonly clock: Clock,
  ) {
    const seconds = (op: string): Histogram => meters.histogram('holdfast_disk_request_seconds', { op });
    const bytes = (op: string): Counter => meters.counter('holdfast_disk_bytes_total', { op });
    this.#seconds = { read: seconds('read'), write: seconds('write'), flush: seconds('flush'), trim: seconds('trim') };
    this.#bytes = { read: bytes('read'), write: bytes('write'), flush: bytes('flush'), trim: bytes('trim') };
    this.#opens = meters.histogram('holdfast_region_open_seconds');
    this.#scrubbed = meters.counter('holdfast_scrubbed_bytes_total');
    this.#damaged = meters.counter('holdfast_damaged_blocks_found_total');
  }

  now(): number {
    return this.clock.now();
  }

  /** The disk has done what it was asked at `began`. */
  done(operation: DiskOperation, bytes: number, began: number): void {
    this.#seconds[operation].observe((this.clock.now() - began) / 1_000);
    this.#bytes[operation].add(bytes);
  }

  /** So much at rest was compared with its checksums. */
  scrubbed(bytes: number): void {
    this.#scrubbed.add(bytes);
  }

  /** So many blocks turned out bad. */
  damaged(blocks: number): void {
    this.#damaged.add(blocks);
  }

  /** Regions are noted as open, for which a write waited since `began`. */
  opened(began: number): void {
    this.#opens.observe((this.clock.now() - began) / 1_000);
  }
}

export type DiskOperation = 'read' | 'write' | 'flush' | 'trim';
