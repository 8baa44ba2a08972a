import { performance } from 'node:perf_hooks';
import { join } from 'node:path';
import { checkHistory, type History, type Operation } from '../history/history.js';
import { writeHistory } from '../history/history-file.js';

/** Where histories that were not legal are kept; absent: nowhere. */
const KEEP = process.env['HOLDFAST_KEEP_HISTORIES'];

type Begun = Pick<Operation, 'kind' | 'firstBlock' | 'blockCount' | 'fua'>;

/** Writes down what the clients of one volume did, all by one clock. */
export class Recorder {
  readonly history: History = { attachments: [], operations: [] };
  #lastValue = 0;

  /** The volume is attached (again) and may be used from now on; resolves to the attachment's number. */
  attached(options: { lossAllowed?: boolean } = {}): number {
    this.history.attachments.push({ servesFrom: performance.now(), lossAllowed: options.lossAllowed ?? false });
    return this.history.attachments.length - 1;
  }

  begin(attachment: number, begun: Begun): Operation {
    const operation: Operation = {
      ...begun,
      attachment,
      value: begun.kind === 'write' ? ++this.#lastValue : 0,
      startedAt: performance.now(),
      endedAt: Infinity,
      outcome: 'pending',
      values: [],
    };
    this.history.operations.push(operation);
    return operation;
  }

  end(operation: Operation, outcome: 'done' | 'failed', values: Operation['values'] = []): void {
    operation.endedAt = performance.now();
    operation.outcome = outcome;
    operation.values = values;
  }

  /** What is not legal, one line for each block. */
  async violations(): Promise<string[]> {
    const violations = checkHistory(this.history).map(({ text }) => text);
    if (violations.length > 0 && KEEP !== undefined)
      await writeHistory(join(KEEP, `${Date.now()}.jsonl`), this.history);
    return violations;
  }
}
