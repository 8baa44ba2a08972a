import { asHoldfastError, codeOf, HoldfastError } from '../base/errors.js';
import type { Clock } from '../io/io.js';
import type { NodeName } from '../model/ids.js';
import type { ReplicaSession } from '../replica/session.js';

/**
 * One replica as its writer sees it: connected or not, and what it has been asked and not answered.
 *
 * A request is failed here when the session ends, whether or not the replica's side ever answers, so that a hung disk
 * holds up nobody who does not need that very replica.
 */
export class Member {
  #session: ReplicaSession | undefined;
  /** In order of asking, so that the first is the oldest. */
  readonly #underWay = new Map<object, { since: number; fail: (reason: HoldfastError) => void }>();
  #gone: Promise<HoldfastError> = Promise.resolve(new HoldfastError('unavailable', 'never connected'));
  #tellGone: (reason: HoldfastError) => void = () => undefined;
  /** When the connection was lost; undefined while connected. */
  lostSince: number | undefined;
  /** When the present session began; Infinity while there is none. */
  connectedAt = Infinity;
  /** The time of the latest question that it answered by knowing no newer epoch (R9). */
  confirmedAt = -Infinity;

  constructor(
    readonly node: NodeName,
    /** On the writer's own node: a function call away. */
    readonly local: boolean,
    private readonly clock: Clock,
    /** The session ended without `disconnect`. */
    private readonly onLost: (member: Member, reason: HoldfastError) => void,
  ) {
    this.lostSince = clock.now();
  }

  get connected(): boolean {
    return this.#session !== undefined;
  }

  /** Resolves when the present session has ended, by either side. */
  get gone(): Promise<HoldfastError> {
    return this.#gone;
  }

  /** A new session, asked for at `askedAt`. */
  connect(session: ReplicaSession, askedAt: number): void {
    this.disconnect(new HoldfastError('unavailable', `${this.node}: replaced by a new session`));
    this.#session = session;
    this.#gone = new Promise((resolve) => (this.#tellGone = resolve));
    this.lostSince = undefined;
    this.confirmedAt = askedAt;
    this.connectedAt = this.clock.now();
    void session.lost.then((reason) => {
      if (this.#session === session) this.lose(reason);
    });
  }

  /** The session turns out to have ended. */
  lose(reason: HoldfastError): void {
    if (!this.connected) return;
    this.disconnect(reason);
    this.onLost(this, reason);
  }

  /** Ends the session and fails what it had not answered. */
  disconnect(reason: HoldfastError): void {
    const session = this.#session;
    if (!session) return;
    this.#session = undefined;
    this.connectedAt = Infinity;
    this.lostSince = this.clock.now();
    session.end();
    this.#tellGone(reason);
    const waiting = [...this.#underWay.values()];
    this.#underWay.clear();
    for (const request of waiting) request.fail(reason);
  }

  /**
   * Asks the replica. `unavailable` where it is not connected, or the session ends first; an answer that comes later
   * goes to `discard`.
   */
  ask<T>(request: (session: ReplicaSession) => Promise<T>, discard?: (late: T) => void): Promise<T> {
    const session = this.#session;
    if (!session) return Promise.reject(new HoldfastError('unavailable', `${this.node} is not connected`));
    return new Promise<T>((resolve, reject) => {
      const key = {};
      this.#underWay.set(key, {
        since: this.clock.now(),
        fail: (reason) =>
          reject(
            new HoldfastError(
              codeOf(reason) === 'fenced' ? 'fenced' : 'unavailable',
              `${this.node}: ${reason.message}`,
            ),
          ),
      });
      request(session).then(
        (answer) => {
          if (this.#underWay.delete(key)) resolve(answer);
          else discard?.(answer);
        },
        (error: unknown) => {
          if (this.#underWay.delete(key)) reject(asHoldfastError(error));
        },
      );
    });
  }

  /** Age of the oldest unanswered request, in milliseconds; 0 where there is none. */
  get oldestMs(): number {
    for (const request of this.#underWay.values()) return this.clock.now() - request.since;
    return 0;
  }
}
