import { HoldfastError } from '../base/errors.js';
import { type Meters, NO_METERS } from '../base/meters.js';
import type { Address, Io } from '../io/io.js';
import type { NodeName, VolumeId } from '../model/ids.js';
import { NbdClient } from '../nbd/client.js';
import { Kinds, PeerAnswers } from '../nbd/request-meter.js';
import {
  CONFIRM_EXPORT,
  type Confirmation,
  decodeAnswers,
  encodeQuestions,
  type Question,
} from '../replica/confirm.js';
import type { ReplicaHost } from '../replica/host.js';
import { RemoteSession } from '../replica/remote-session.js';
import type { Admission, ReplicaSession } from '../replica/session.js';

/** For a connection and the fence that its opening is. */
const CONNECT_MS = 3_000;

/** How a data thread reaches replicas: its own by a call, those of peers by NBD to the same thread there. */
export class Peers {
  readonly #confirming = new Map<NodeName, NbdClient>();
  readonly #answers: Kinds<NodeName, PeerAnswers>;

  constructor(
    private readonly io: Io,
    private readonly self: NodeName,
    private readonly host: ReplicaHost,
    /** Where the data thread of a peer listens that has the volumes of this one; `unavailable` where it is not known. */
    private readonly addressOf: (node: NodeName) => Promise<Address>,
    meters: Meters = NO_METERS,
  ) {
    this.#answers = new Kinds((node) => new PeerAnswers(meters, node));
  }

  /** Opens a session: the fence, on the replica's side. Errors: `unavailable`, `fenced`, `not-found`. */
  async connect(node: NodeName, volume: VolumeId, admission: Admission): Promise<ReplicaSession> {
    if (node === this.self) return this.host.admit(volume, admission);
    const address = await this.addressOf(node);
    return RemoteSession.open(this.io, address, volume, admission, CONNECT_MS, this.#answers.of(node));
  }

  /** R9: asks a peer's replicas whether they know no newer epoch. `unavailable` where it does not answer. */
  async confirm(node: NodeName, questions: readonly Question[]): Promise<Confirmation[]> {
    const client = this.#confirming.get(node) ?? (await this.#openConfirming(node));
    const cancel = this.io.clock.timer(CONNECT_MS, () => client.close());
    try {
      return decodeAnswers(await client.control(encodeQuestions(questions)));
    } finally {
      cancel();
    }
  }

  close(): void {
    for (const client of this.#confirming.values()) client.close();
  }

  async #openConfirming(node: NodeName): Promise<NbdClient> {
    const address = await this.addressOf(node);
    const client = await NbdClient.connect({ io: this.io, address, exportName: CONFIRM_EXPORT, timeoutMs: CONNECT_MS });
    if (this.#confirming.has(node)) {
      client.close();
      throw new HoldfastError('unavailable', `${node} is being asked already`);
    }
    this.#confirming.set(node, client);
    void client.lost.then(() => this.#confirming.delete(node));
    return client;
  }
}
