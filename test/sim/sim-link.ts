/** One direction between two machines. */
export class Link {
  cut = false;
  extraMs = 0;

  constructor(
    readonly from: string,
    readonly to: string,
  ) {}
}

/** A machine's place in the network. */
export class NetworkHost {
  /** It has power. */
  up = true;
  /** The next port for whoever leaves the choice to the system. */
  #nextPort = 40_000;

  constructor(readonly name: string) {}

  freshPort(isTaken: (port: number) => boolean): number {
    while (isTaken(this.#nextPort)) this.#nextPort++;
    return this.#nextPort++;
  }
}
