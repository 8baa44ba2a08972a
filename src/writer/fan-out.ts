import { asHoldfastError, codeOf, type HoldfastError } from '../base/errors.js';
import type { NodeName } from '../model/ids.js';
import type { ReplicaSession } from '../replica/session.js';
import type { Member } from './member.js';
import { hasEveryAnswer } from './rules.js';

/** A write, trim, zero, flush or close on its way to all replicas that R3 asks. */
interface Operation {
  readonly apply: (session: ReplicaSession) => Promise<void>;
  /** Meant for these only (R2: never for a resync target); undefined: for whomever R3 asks. */
  readonly only: ReadonlySet<NodeName> | undefined;
  readonly answered: Set<NodeName>;
  readonly resolve: () => void;
  readonly reject: (error: HoldfastError) => void;
}

/**
 * Synchronous replication: sends each operation to every receiver at once, keeps it until all that R3 asks have answered, and
 * sends what a receiver has not answered again when it comes back (R11: its server has drained the old connection).
 */
export class FanOut {
  readonly #pending = new Set<Operation>();
  readonly #receivers = new Map<NodeName, Member>();
  #ended: HoldfastError | undefined;

  constructor(
    /** R3: members of every in-sync set that the record may hold, and the resync target. */
    private readonly required: () => ReadonlySet<NodeName>,
    private readonly onAnswer: (node: NodeName) => void,
    /**
     * A replica refused with an error that is its own fault. True: it will be dropped. False: it is the last one; then
     * the client is told, and nobody who has carried the operation out, or still may, is in the set or on the way there.
     */
    private readonly onFailure: (node: NodeName, error: HoldfastError) => boolean,
  ) {}

  /** Operations that lack answers. */
  get pending(): number {
    return this.#pending.size;
  }

  /** From now on the member gets every operation, those under way too; its earlier answers don't count (R7). */
  add(member: Member): void {
    this.#receivers.set(member.node, member);
    for (const operation of this.#pending) {
      operation.answered.delete(member.node);
      if (this.#isFor(operation, member.node)) this.#send(operation, member);
    }
  }

  /** The member is back with a new session: what it has not answered is sent again. */
  resend(member: Member): void {
    for (const operation of this.#pending) {
      if (this.#isFor(operation, member.node) && !operation.answered.has(member.node)) this.#send(operation, member);
    }
  }

  /** Nothing more is sent to the member. */
  remove(node: NodeName): void {
    this.#receivers.delete(node);
    for (const operation of this.#pending) operation.answered.delete(node);
  }

  /** Resolves when all have answered that R3 asks; rejects where the last replica refused it, or the writer has ended. */
  run(apply: (session: ReplicaSession) => Promise<void>, only?: ReadonlySet<NodeName>): Promise<void> {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      const operation: Operation = { apply, only, answered: new Set(), resolve, reject };
      this.#pending.add(operation);
      for (const member of this.#receivers.values()) {
        if (this.#isFor(operation, member.node)) this.#send(operation, member);
      }
    });
  }

  /** What R3 asks has changed. */
  recheck(): void {
    for (const operation of this.#pending) this.#settle(operation);
  }

  /** The writer has ended: nothing more succeeds. */
  fail(reason: HoldfastError): void {
    this.#ended = reason;
    const pending = [...this.#pending];
    this.#pending.clear();
    this.#receivers.clear();
    for (const operation of pending) operation.reject(reason);
  }

  #isFor(operation: Operation, node: NodeName): boolean {
    return operation.only?.has(node) ?? true;
  }

  #send(operation: Operation, member: Member): void {
    member.ask(operation.apply).then(
      () => {
        // An answer from before the member was dropped, or added anew, came on an ended session and is never seen here.
        if (this.#receivers.get(member.node) !== member) return;
        operation.answered.add(member.node);
        this.onAnswer(member.node);
        this.#settle(operation);
      },
      (error: unknown) => this.#refused(operation, member, asHoldfastError(error)),
    );
  }

  #refused(operation: Operation, member: Member, error: HoldfastError): void {
    if (this.#receivers.get(member.node) !== member || !this.#pending.has(operation)) return;
    // A lost connection is the member's own matter: it comes back, and the operation is sent again, or it is dropped.
    if (codeOf(error) === 'unavailable') return;
    if (this.onFailure(member.node, error) || !this.#pending.delete(operation)) return;
    operation.reject(error);
  }

  #settle(operation: Operation): void {
    const required = this.required();
    const asked = operation.only ? new Set([...operation.only].filter((node) => required.has(node))) : required;
    if (hasEveryAnswer(operation.answered, asked) && this.#pending.delete(operation)) operation.resolve();
  }
}
