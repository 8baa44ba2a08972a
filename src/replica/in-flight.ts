/** A read or change that is under way on blocks `first` to `last`. */
export interface Passage {
  readonly first: number;
  readonly last: number;
  readonly changes: boolean;
  /** Ranges of blocks that another one, under way at the same time, changes. */
  met: { readonly first: number; readonly last: number }[] | undefined;
}

/**
 * What is under way on a replica's blocks. A writer keeps its own requests apart; readers beside it (a read-only
 * export, the scrub) do not, and what they read of a block that is being changed says nothing of its checksum.
 */
export class InFlight {
  readonly #passages = new Set<Passage>();

  get count(): number {
    return this.#passages.size;
  }

  begin(first: number, last: number, changes: boolean): Passage {
    const passage: Passage = { first, last, changes, met: undefined };
    for (const other of this.#passages) {
      if (!(changes || other.changes) || other.first > last || first > other.last) continue;
      const shared = { first: Math.max(first, other.first), last: Math.min(last, other.last) };
      if (other.changes) (passage.met ??= []).push(shared);
      if (changes) (other.met ??= []).push(shared);
    }
    this.#passages.add(passage);
    return passage;
  }

  end(passage: Passage): void {
    this.#passages.delete(passage);
  }
}

/** Nobody else changed the block while the passage was under way. */
export function wasAlone(passage: Passage, block: number): boolean {
  return passage.met?.every(({ first, last }) => block < first || block > last) ?? true;
}
