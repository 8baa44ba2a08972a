/** Something that happens again and again, to wait for without missing it. */
export class Signal {
  #waiting: (() => void)[] = [];
  #count = 0;

  /** How often it has happened; for `since`. */
  get count(): number {
    return this.#count;
  }

  /** Resolves when it has happened more than `count` times. */
  since(count: number): Promise<void> {
    if (this.#count > count) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  notify(): void {
    this.#count++;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
