import type { NodeName, VolumeId } from '../model/ids.js';

/** A replica that its volume no longer wants, on a node that could not be told so. */
export interface Stray {
  readonly node: NodeName;
  readonly volume: VolumeId;
}

/** Above this many the oldest are forgotten: their nodes find them by themselves, as nothing in the store names them. */
const MAX_STRAYS = 10_000;

/**
 * Replicas to be removed when their nodes answer again. Only a short cut, kept in memory: what is forgotten here is
 * found by its own node, which compares what is on its disks with the records.
 */
export class Strays {
  readonly #strays = new Map<string, Stray>();

  add(node: NodeName, volume: VolumeId): void {
    const key = `${node} ${volume}`;
    this.#strays.delete(key);
    this.#strays.set(key, { node, volume });
    const oldest = this.#strays.keys().next();
    if (this.#strays.size > MAX_STRAYS && !oldest.done) this.#strays.delete(oldest.value);
  }

  forget({ node, volume }: Stray): void {
    this.#strays.delete(`${node} ${volume}`);
  }

  list(): Stray[] {
    return [...this.#strays.values()];
  }
}
