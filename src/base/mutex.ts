/** Mutual exclusion in order of arrival. */
export class Mutex {
  #tail: Promise<void> = Promise.resolve();

  /** Runs `section` when all earlier ones have ended. */
  run<T>(section: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(section);
    this.#tail = result.then(
      () => undefined,
      () => undefined,
    );
    return result;
  }
}

/** One mutex for each key, kept only while it is in use. */
export class KeyedMutex<K> {
  readonly #sections = new Map<K, { mutex: Mutex; users: number }>();

  async run<T>(key: K, section: () => Promise<T>): Promise<T> {
    const entry = this.#sections.get(key) ?? { mutex: new Mutex(), users: 0 };
    this.#sections.set(key, entry);
    entry.users++;
    try {
      return await entry.mutex.run(section);
    } finally {
      if (--entry.users === 0) this.#sections.delete(key);
    }
  }
}
