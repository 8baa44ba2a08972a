import { HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { BlockDevices } from '../device/device.js';
import { volumeKey, type VolumeId } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import type { Attachments } from '../writer/attachments.js';
import { noSuchVolume } from './capability.js';
import { viewKernel, type KernelView } from './node-kernel.js';
import type { StagingNotes } from './node-notes.js';

/** What the CSI Node service stands on. */
export interface NodeParts {
  readonly store: RecordStore;
  readonly attachments: Attachments;
  readonly devices: BlockDevices;
  readonly notes: StagingNotes;
  readonly log: Log;
}

/** Milliseconds left to the caller's deadline. */
export type Remaining = () => number;

/** What a call takes at most where its caller set no deadline. */
const LONGEST_CALL_MS = 115_000;

/** Kept for what follows a tool that was cut off: its end, taking back what was done, and the answer. */
const AFTER_TOOL_MS = 3_000;

/** Least time that a tool is given: even a caller in a hurry must not leave half a mkfs behind for want of a second. */
const SHORTEST_TOOL_MS = 2_000;

/** The bound of one external tool within a call. */
export function toolTimeoutMs(remaining: Remaining): number {
  return Math.max(Math.min(remaining(), LONGEST_CALL_MS) - AFTER_TOOL_MS, SHORTEST_TOOL_MS);
}

/** How long a take-over may wait for another node's release: until 5 s before the caller's deadline. */
export function attachTimeoutMs(remaining: Remaining): number {
  const left = Math.min(remaining(), LONGEST_CALL_MS);
  return Math.max(left - 5_000, left / 2, 500);
}

export async function viewOf(parts: NodeParts): Promise<KernelView> {
  return viewKernel(await parts.devices.list());
}

/** The volume's record; `not-found` where there is none or it is another volume's of the same name. */
export async function volumeRecord(store: RecordStore, volume: VolumeId): Promise<VolumeRecord> {
  const found = await store.get('volume', volumeKey(volume));
  if (found?.record.id !== volume) throw noSuchVolume(volume);
  return found.record;
}

/** The record of a volume that may be used. */
export async function readyRecord(store: RecordStore, volume: VolumeId): Promise<VolumeRecord> {
  const record = await volumeRecord(store, volume);
  switch (record.phase) {
    case 'ready':
      return record;
    case 'creating':
      throw new HoldfastError('aborted', `volume ${volume} is still being created; try again`);
    case 'deleting':
      throw new HoldfastError('failed-precondition', `volume ${volume} is being deleted`);
  }
}

/** What a call has done so far, so that a failure half way can take it back. */
export class Undo {
  readonly #steps: { what: string; step: () => Promise<void> }[] = [];

  add(what: string, step: () => Promise<void>): void {
    this.#steps.push({ what, step });
  }

  /** Takes all back, the latest first. What can't be taken back is logged: the next call finds it in the kernel's tables. */
  async run(log: Log): Promise<void> {
    for (const { what, step } of this.#steps.splice(0).reverse()) {
      try {
        await step();
      } catch (error) {
        log.warn({ step: what, reason: messageOf(error) }, 'a failed call could not be taken back in full');
      }
    }
  }
}
