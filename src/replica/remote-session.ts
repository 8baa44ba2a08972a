import type { HoldfastError } from '../base/errors.js';
import type { Address, Extent, Io, Lease, Slab } from '../io/io.js';
import type { VolumeId } from '../model/ids.js';
import type { Range } from '../model/layout.js';
import { NbdClient } from '../nbd/client.js';
import type { RequestMeter } from '../nbd/request-meter.js';
import { type Controls, decodeAnswer, encodeControl, type Verb } from './control.js';
import type { Run } from './region-table.js';
import type { PieceDigest } from './replica.js';
import { type Admission, type ReplicaSession, type ReplicaState, sessionExportName } from './session.js';

/** Regions named in one request, so that it stays well below 1 MiB. */
const REGIONS_PER_REQUEST = 8_192;

/** A session with the replica of a peer: an NBD connection whose export name carries volume, epoch and session. */
export class RemoteSession implements ReplicaSession {
  #sizeBytes: number;

  private constructor(
    private readonly client: NbdClient,
    readonly state: ReplicaState,
  ) {
    this.#sizeBytes = state.capacityBytes;
  }

  /** Opening the export fences the replica. Errors: `unavailable`, `fenced`, `not-found`. */
  static async open(
    io: Io,
    address: Address,
    volume: VolumeId,
    admission: Admission,
    timeoutMs: number,
    meter?: RequestMeter,
  ): Promise<RemoteSession> {
    const client = await NbdClient.connect({
      io,
      address,
      exportName: sessionExportName(volume, admission),
      timeoutMs,
      meter,
    });
    const cancel = io.clock.timer(timeoutMs, () => client.close());
    try {
      return new RemoteSession(client, decodeAnswer('state', await client.control(encodeControl('state', {}))));
    } catch (error) {
      client.close();
      throw error;
    } finally {
      cancel();
    }
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  get lost(): Promise<HoldfastError> {
    return this.client.lost;
  }

  end(): void {
    this.client.close();
  }

  read(offset: number, length: number, slab: Slab): Promise<Lease> {
    return this.client.read(offset, length, slab);
  }

  write(offset: number, data: Lease, fua: boolean): Promise<void> {
    return this.client.write(offset, data, fua);
  }

  flush(): Promise<void> {
    return this.client.flush();
  }

  trim(offset: number, length: number, fua: boolean): Promise<void> {
    return this.client.trim(offset, length, fua);
  }

  zero(offset: number, length: number, fua: boolean, allocate: boolean): Promise<void> {
    return this.client.zero(offset, length, fua, allocate);
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.client.extents(offset, length);
  }

  async table(): Promise<Run[]> {
    const runs: Run[] = [];
    for (let region = 0; ;) {
      const part = (await this.#control('table', { from: region })).runs;
      if (part.length === 0) return runs;
      runs.push(...part);
      region += part.reduce((count, run) => count + run.count, 0);
    }
  }

  async closeRegions(regions: readonly number[], stamp: number): Promise<void> {
    for (let at = 0; at < regions.length; at += REGIONS_PER_REQUEST) {
      await this.#control('closeRegions', { regions: regions.slice(at, at + REGIONS_PER_REQUEST), stamp });
    }
  }

  async takeEntries(entries: readonly { region: number; stamp: number }[]): Promise<void> {
    for (let at = 0; at < entries.length; at += REGIONS_PER_REQUEST) {
      await this.#control('takeEntries', { entries: entries.slice(at, at + REGIONS_PER_REQUEST) });
    }
  }

  async clearMark(): Promise<void> {
    await this.#control('clearMark', {});
  }

  async digests(offset: number, length: number, blockBytes: number): Promise<PieceDigest[]> {
    return (await this.#control('digests', { offset, length, blockBytes })).digests;
  }

  async damage(): Promise<Range[]> {
    return (await this.#control('damage', {})).ranges;
  }

  async grow(capacityBytes: number): Promise<void> {
    await this.#control('grow', { capacityBytes });
    this.#sizeBytes = Math.max(this.#sizeBytes, capacityBytes);
  }

  async beginResync(): Promise<boolean> {
    return (await this.#control('beginResync', {})).begun;
  }

  async serving(): Promise<void> {
    await this.#control('serving', {});
  }

  async #control<V extends Verb>(verb: V, asked: Controls[V]['asked']): Promise<Controls[V]['told']> {
    return decodeAnswer(verb, await this.client.control(encodeControl(verb, asked)));
  }
}
