import type { Orchestrator, ProvisionedVolume } from '../dev/orchestrator.js';
import { changesBetween, sightOf, type VolumeSight } from './changes.js';
import type { Load } from './load.js';
import { seconds } from './verdict.js';

const EVERY_MS = 200;
const LOOK_MS = 3_000;
/** No answer for so long is told as a stall. */
const STALL_MS = 1_000;

/** Tells what happens to a volume and to the loads on it, as it happens. */
export class Watch {
  readonly #loads: LoadWatch[] = [];
  #sight: VolumeSight | undefined;
  #seenAt = 0;
  #stopped = false;
  readonly #running: Promise<void>[] = [];

  constructor(
    private readonly kubernetes: Orchestrator,
    private readonly volume: ProvisionedVolume,
    private readonly say: (line: string) => void,
  ) {}

  start(): void {
    this.#running.push(
      this.#repeat(() => this.#lookAtVolume()),
      this.#repeat(() => this.#lookAtLoads()),
    );
  }

  add(load: Load): void {
    this.#loads.push(new LoadWatch(load, this.say));
  }

  /** The latest sight of the volume that began after a moment; undefined: none yet. */
  sightSince(moment: number): VolumeSight | undefined {
    return this.#seenAt >= moment ? this.#sight : undefined;
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#running);
  }

  async #repeat(look: () => Promise<void>): Promise<void> {
    while (!this.#stopped) {
      await look();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }

  async #lookAtVolume(): Promise<void> {
    const askedAt = Date.now();
    try {
      const now = sightOf(await this.kubernetes.view(this.volume, LOOK_MS));
      if (this.#sight) for (const line of changesBetween(this.#sight, now)) this.say(line);
      this.#sight = now;
      this.#seenAt = askedAt;
    } catch {
      // A look that fails is followed by the next.
    }
  }

  #lookAtLoads(): Promise<void> {
    for (const load of this.#loads) load.look();
    return Promise.resolve();
  }
}

class LoadWatch {
  #stalled = false;
  #failed = false;

  constructor(
    private readonly load: Load,
    private readonly say: (line: string) => void,
  ) {}

  look(): void {
    const { node, state, error } = this.load;
    if (this.#failed || state.lastAt === 0) return;
    if (error !== undefined) {
      this.#failed = true;
      this.say(`I/O on node ${node} fails: ${error.message}`);
    } else if (!this.#stalled && Date.now() - state.lastAt > STALL_MS) {
      this.#stalled = true;
      this.say(`I/O on node ${node} waits, since ${seconds(Date.now() - state.lastAt)}`);
    } else if (this.#stalled && Date.now() - state.lastAt < STALL_MS) {
      this.#stalled = false;
      this.say(`I/O on node ${node} goes on; its longest pause was ${seconds(state.longestPauseMs)}`);
    }
  }
}
