import { HoldfastError } from '../base/errors.js';
import { formatTable } from '../cli/table.js';

/** Shows steps as they go, on a terminal with what they are at, and a table of them at the end. */
export class Screen {
  readonly #rows: string[][] = [];
  readonly #out = process.stdout;
  #shown = '';

  /**
   * Runs a step and shows how long it took, behind the last thing it told. `cancelled` at once when the signal comes.
   */
  async step<T>(
    what: string,
    signal: AbortSignal | undefined,
    action: (progress: (text: string) => void) => Promise<T>,
  ): Promise<T> {
    const began = Date.now();
    const seconds = (): string => `${((Date.now() - began) / 1000).toFixed(1)} s`;
    let at = '';
    const show = (): void => this.#live(`  … ${what}  ${at}  ${seconds()}`);
    const ticker = setInterval(show, 500);
    try {
      const result = await orCancelled(signal, () => action((text) => void (at = text)));
      this.#line(`  ✓ ${what}${at === '' ? '' : `: ${at}`}  ${seconds()}`);
      this.#rows.push([what, at, seconds()]);
      return result;
    } catch (error) {
      this.#line(`  ✗ ${what}  ${seconds()}`);
      throw error;
    } finally {
      clearInterval(ticker);
    }
  }

  note(text: string): void {
    for (const line of text.split('\n')) this.#line(`      ${line}`);
  }

  summary(): void {
    this.#line('');
    this.#line(formatTable(['STEP', '', 'TOOK'], this.#rows, ['TOOK']));
  }

  #live(text: string): void {
    if (!this.#out.isTTY) return;
    const line = text.slice(0, this.#out.columns - 1);
    this.#out.write(`\r${line.padEnd(this.#shown.length)}`);
    this.#shown = line;
  }

  #line(text: string): void {
    this.#out.write(this.#shown === '' ? `${text}\n` : `\r${text.padEnd(this.#shown.length)}\n`);
    this.#shown = '';
  }
}

async function orCancelled<T>(signal: AbortSignal | undefined, action: () => Promise<T>): Promise<T> {
  if (signal === undefined) return action();
  const stop = (): HoldfastError => new HoldfastError('cancelled', 'stopped');
  if (signal.aborted) throw stop();
  let cancel = (): void => undefined;
  const cancelled = new Promise<never>((_resolve, reject) => {
    cancel = () => reject(stop());
    signal.addEventListener('abort', cancel, { once: true });
  });
  try {
    return await Promise.race([action(), cancelled]);
  } finally {
    signal.removeEventListener('abort', cancel);
  }
}
