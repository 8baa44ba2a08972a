import { codeOf, messageOf, type ErrorCode } from '../base/errors.js';
import type { Log } from '../base/log.js';

/**
 * Logs a fault that is met again and again once, and not once a try: at its first try, when it becomes another fault,
 * at its 10th, 100th, … try, and when it is over, each with the count.
 */
export class RepeatedFault {
  #count = 0;
  #code: ErrorCode | undefined;
  #nextLogged = 10;

  constructor(
    private readonly log: Log,
    /** What fails, for the log line. */
    private readonly what: string,
  ) {}

  failed(error: unknown): void {
    this.#count++;
    const code = codeOf(error);
    if (code === this.#code && this.#count < this.#nextLogged) return;
    this.#code = code;
    if (this.#count >= this.#nextLogged) this.#nextLogged *= 10;
    this.log.warn({ code, reason: messageOf(error), count: this.#count }, `${this.what} fails`);
  }

  succeeded(): void {
    if (this.#count === 0) return;
    this.log.info({ count: this.#count }, `${this.what} works again`);
    this.#count = 0;
    this.#code = undefined;
    this.#nextLogged = 10;
  }
}
