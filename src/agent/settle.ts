import { performance } from 'node:perf_hooks';
import { codeOf, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { BlockDevices } from '../device/device.js';
import type { VolumeId } from '../model/ids.js';

export interface SettlerOptions {
  readonly devices: BlockDevices;
  /** Brings one device and its attachment into agreement; waits at most so long for its turn. */
  readonly settle: (volume: VolumeId, waitMs: number) => Promise<void>;
  readonly log: Log;
  /** Monotonic milliseconds; for tests. */
  readonly now?: () => number;
}

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;

/** A volume that another call is busy with is looked at in the next round. */
const TURN_MS = 2_000;

/**
 * Given a block device on this node, then its attachment is live, or goes on from before a restart of the plugin, or
 * has ended and the device with it. While that can't be decided, because the store or the peers do not answer, the
 * device's I/O waits and the decision is tried again, ever less often.
 */
export class DeviceSettler {
  readonly #late = new Map<VolumeId, { failures: number; dueAt: number }>();
  readonly #now: () => number;

  constructor(private readonly options: SettlerOptions) {
    this.#now = options.now ?? (() => performance.now());
  }

  /** One look at all devices, all at once. */
  async round(): Promise<void> {
    const listed = await this.options.devices.list();
    const volumes = new Set(listed.map(({ volume }) => volume));
    for (const volume of this.#late.keys()) if (!volumes.has(volume)) this.#late.delete(volume);
    const due = [...volumes].filter((volume) => (this.#late.get(volume)?.dueAt ?? 0) <= this.#now());
    await Promise.all(due.map((volume) => this.#settle(volume)));
  }

  async #settle(volume: VolumeId): Promise<void> {
    const before = this.#late.get(volume)?.failures ?? 0;
    try {
      await this.options.settle(volume, TURN_MS);
      if (before > 0) this.options.log.info({ volume, failures: before }, 'attachment is settled');
      this.#late.delete(volume);
    } catch (error) {
      if (codeOf(error) === 'aborted') return;
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** before, LONGEST_PAUSE_MS);
      this.#late.set(volume, { failures: before + 1, dueAt: this.#now() + pause });
      if (before === 0) {
        this.options.log.warn({ volume, reason: messageOf(error) }, 'attachment can not be settled yet; I/O waits');
      }
    }
  }
}
