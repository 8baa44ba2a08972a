/** A bound on memory that many share: whoever wants some waits, in order of arrival, until there is enough. */
export class Budget {
  readonly #waiters: { bytes: number; resolve: () => void }[] = [];

  /** `left`: all that may be in use at once. */
  constructor(private left: number) {}

  /** `bytes` is at most the whole budget. */
  take(bytes: number): Promise<void> {
    if (this.#waiters.length === 0 && bytes <= this.left) {
      this.left -= bytes;
      return Promise.resolve();
    }
    return new Promise((resolve) => this.#waiters.push({ bytes, resolve }));
  }

  give(bytes: number): void {
    this.left += bytes;
    for (let waiter = this.#waiters[0]; waiter !== undefined && waiter.bytes <= this.left; waiter = this.#waiters[0]) {
      this.#waiters.shift();
      this.left -= waiter.bytes;
      waiter.resolve();
    }
  }
}
