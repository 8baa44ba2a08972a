import type { Link, NetworkHost } from './sim-link.js';
import type { Wire } from './sim-outgoing.js';

/** When TCP sends the first packet of a connection again, each after the one before. */
const RETRIES_MS = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000];

/** What comes of an attempt to connect. */
export interface Handshake<Listening> {
  /** Whether anybody still waits for it. */
  isWanted(): boolean;
  /** The first packet has reached the machine; undefined: nobody listens there. */
  asked(): Listening | undefined;
  refused(): void;
  accepted(by: Listening): void;
}

/** Goes there and back again, anew while packets are lost or the machine is down. */
export function shakeHands<Listening>(
  wire: Wire,
  way: { there: Link; back: Link },
  target: NetworkHost,
  shake: Handshake<Listening>,
): void {
  const { there, back } = way;
  const retry = (count: number): void => {
    const delay = RETRIES_MS[count];
    if (delay === undefined || !shake.isWanted()) return;
    wire.schedule.after(delay, () => {
      if (shake.isWanted()) attempt(count + 1);
    });
  };
  const attempt = (count: number): void => {
    wire.schedule.after(wire.latency(there), () => {
      if (there.cut || !target.up) {
        retry(count);
        return;
      }
      const listening = shake.asked();
      wire.schedule.after(wire.latency(back), () => {
        if (!shake.isWanted()) return;
        if (back.cut) retry(count);
        else if (listening === undefined) shake.refused();
        else shake.accepted(listening);
      });
    });
  };
  attempt(0);
}
