import { HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';

const STEP_MS = 5_000;

interface Step {
  readonly what: string;
  readonly end: () => void | Promise<void>;
  readonly boundMs: number;
}

/** What has been started, to be ended in reverse order. */
export class Ending {
  readonly #steps: Step[] = [];

  constructor(private readonly log: Log) {}

  /** `boundMs`: how long the rest waits for this end; a call whose peer is gone must not hold up the process. */
  add(what: string, end: () => void | Promise<void>, boundMs = STEP_MS): void {
    this.#steps.push({ what, end, boundMs });
  }

  /** Ends all; what can't be ended is logged, and holds up nothing. Repeats do nothing. */
  async run(): Promise<void> {
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await within(step);
      } catch (error) {
        this.log.warn({ part: step.what, reason: messageOf(error) }, 'did not end well');
      }
    }
  }
}

async function within({ end, boundMs }: Step): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const error = new HoldfastError('deadline-exceeded', `has not ended within ${boundMs} ms`);
    timer = setTimeout(() => reject(error), boundMs);
  });
  try {
    await Promise.race([Promise.resolve().then(end), late]);
  } finally {
    clearTimeout(timer);
  }
}
