import { codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Clock } from '../io/io.js';
import type { NodeName, SessionId, VolumeId } from '../model/ids.js';
import { type Confirmation, type Question, QUESTIONS_AT_ONCE } from '../replica/confirm.js';

/** One volume's wish to hear from the replica on a node that it knows no newer epoch. */
export interface Confirming {
  readonly volume: VolumeId;
  readonly session: SessionId;
  epoch(): number;
  /** Confirmed, by a question asked at `askedAt`. */
  confirmed(askedAt: number): void;
  /** The replica knows a newer epoch, or is gone. */
  denied(): void;
  /** It has no session with this writer, by a question asked at `askedAt`. */
  unknown(askedAt: number): void;
  /** Its node's plugin is about to stop. */
  stopping(): void;
}

/** Asks the data thread of a peer; the answers come in the order of the questions. */
export type AskPeer = (node: NodeName, questions: readonly Question[]) => Promise<readonly Confirmation[]>;

/** R9: one message for each peer node carries the confirmations of all volumes (of many: a few), again and again. */
export class Confirmations {
  readonly #peers = new Map<NodeName, Set<Confirming>>();
  /** Peers that did not answer the last question: each is told once. */
  readonly #silent = new Set<NodeName>();

  constructor(
    private readonly clock: Clock,
    private readonly everyMs: number,
    private readonly ask: AskPeer,
    /** Absent: a peer that does not answer is not told of. */
    private readonly log?: Log,
  ) {}

  /** Until the returned function is called. */
  subscribe(node: NodeName, confirming: Confirming): () => void {
    const known = this.#peers.get(node);
    const asking = known ?? new Set<Confirming>();
    asking.add(confirming);
    if (!known) {
      this.#peers.set(node, asking);
      void this.#run(node, asking);
    }
    return () => asking.delete(confirming);
  }

  async #run(node: NodeName, asking: Set<Confirming>): Promise<void> {
    while (asking.size > 0) {
      await this.#round(node, [...asking]);
      await this.clock.sleep(this.everyMs);
    }
    this.#peers.delete(node);
    this.#silent.delete(node);
  }

  async #round(node: NodeName, asking: readonly Confirming[]): Promise<void> {
    try {
      for (let first = 0; first < asking.length; first += QUESTIONS_AT_ONCE) {
        await this.#askSome(node, asking.slice(first, first + QUESTIONS_AT_ONCE));
      }
      this.#silent.delete(node);
    } catch (error) {
      // It confirms nothing. Its sessions may be well all the same, and then nothing else tells why reads wait.
      if (this.#silent.has(node)) return;
      this.#silent.add(node);
      const fault = { peer: node, volumes: asking.length, code: codeOf(error), reason: messageOf(error) };
      this.log?.warn(fault, 'a peer does not confirm; told once');
    }
  }

  async #askSome(node: NodeName, asking: readonly Confirming[]): Promise<void> {
    const askedAt = this.clock.now();
    const answers = await this.ask(
      node,
      asking.map((one) => ({ volume: one.volume, epoch: one.epoch(), session: one.session })),
    );
    for (const [index, one] of asking.entries()) {
      const answer = answers[index] ?? 'denied';
      if (answer === 'denied') one.denied();
      else if (answer === 'no-session') one.unknown(askedAt);
      else one.confirmed(askedAt);
      if (answer === 'stopping') one.stopping();
    }
  }
}
