import type { BudgetOptions, CallBudget } from './call-budget.js';
import { EC2_CALLS, type Ec2Action } from './calls.js';
import { noAnswer, noCredentials, toEc2Error, type Ec2Error } from './ec2-errors.js';

/** What the SDK is told of one try. */
export interface SendOptions {
  readonly abortSignal: AbortSignal;
}

/** Carries calls out on the budget, each try in its time, counted and with its failure as an Ec2Error. */
export class Ec2Calls {
  readonly #underWay = new Set<AbortController>();

  constructor(
    private readonly budget: CallBudget,
    private readonly options: Pick<BudgetOptions, 'clock' | 'meters'>,
    /** Resolves when there are credentials that have not expired. */
    private readonly credentials: () => Promise<unknown>,
  ) {}

  /** `what`: the thing, for messages. */
  call<T>(action: Ec2Action, what: string, send: (how: SendOptions) => Promise<T>): Promise<T> {
    return this.budget.run(EC2_CALLS[action].unanswered, () =>
      this.#count(action, () => this.#try(action, what, send)),
    );
  }

  close(): void {
    this.budget.close();
    for (const abort of this.#underWay) abort.abort();
  }

  /** The time-out covers the credentials too, whose source can't be told to stop. */
  #try<T>(action: Ec2Action, what: string, send: (how: SendOptions) => Promise<T>): Promise<T> {
    const abort = new AbortController();
    this.#underWay.add(abort);
    return new Promise((resolve, reject) => {
      const cancel = this.options.clock.timer(EC2_CALLS[action].timeoutMs, () => {
        abort.abort();
        reject(noAnswer(action, what));
      });
      this.#send(action, what, () => send({ abortSignal: abort.signal }))
        .then(resolve, reject)
        .finally(() => {
          cancel();
          this.#underWay.delete(abort);
        });
    });
  }

  async #send<T>(action: Ec2Action, what: string, send: () => Promise<T>): Promise<T> {
    await this.credentials().catch((error: unknown) => {
      throw noCredentials(error, action, what);
    });
    return send().catch((error: unknown) => {
      throw toEc2Error(error, action, what, Date.now());
    });
  }

  async #count<T>(action: Ec2Action, attempt: () => Promise<T>): Promise<T> {
    const { clock, meters } = this.options;
    const beganMs = clock.now();
    const told = (outcome: 'ok' | Ec2Error['kind']): void => {
      meters.counter('holdfast_aws_calls_total', { action, outcome }).add();
      meters.histogram('holdfast_aws_call_seconds', { action }).observe((clock.now() - beganMs) / 1_000);
    };
    return attempt().then(
      (value) => {
        told('ok');
        return value;
      },
      (error: unknown) => {
        told((error as Ec2Error).kind);
        throw error;
      },
    );
  }
}
