/**
 * Joins callers of one expensive, idempotent action (a sync) into as few runs as possible. Each caller is answered by
 * a run that began after it called, so whatever it did before the call is covered.
 */
export class GroupCommit {
  #running = false;
  #waiting: { resolve: () => void; reject: (error: unknown) => void }[] = [];

  constructor(private readonly action: () => Promise<void>) {}

  run(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (!this.#running) void this.#drain();
    });
  }

  async #drain(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting;
      this.#waiting = [];
      try {
        await this.action();
        for (const caller of group) caller.resolve();
      } catch (error) {
        for (const caller of group) caller.reject(error);
      }
    }
    this.#running = false;
  }
}
