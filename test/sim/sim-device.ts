import { SteadyStage } from '../../src/device/steady-stage.js';
import type { Slab } from '../../src/io/io.js';
import { NbdClient } from '../../src/nbd/client.js';
import type { Attachment } from '../../src/writer/attachments.js';
import type { Tell } from './sim-log.js';
import { simLog } from './sim-log.js';
import type { SimMachine, SimProcess } from './sim-machine.js';

const CONNECT_MS = 5_000;
const SLAB_BYTES = 256 * 1024;

/**
 * A block device: the production stage of the device process, which outlives the node plugin and sends what was
 * unanswered again (R11), in a process of its own.
 */
export class SimDevice {
  readonly process: SimProcess;
  readonly stage: SteadyStage;
  readonly slab: Slab;
  #failed = false;

  constructor(
    machine: SimMachine,
    readonly volume: string,
    attachment: Attachment,
    tell: Tell,
  ) {
    this.process = machine.startProcess(`device-${volume}`);
    const { io } = this.process;
    const { socketPath, exportName } = attachment.address;
    this.slab = io.slab(SLAB_BYTES);
    this.stage = new SteadyStage({
      connect: () =>
        NbdClient.connect({ io, address: { kind: 'unix', path: socketPath }, exportName, timeoutMs: CONNECT_MS }),
      clock: io.clock,
      log: simLog(tell, `${machine.name}/device`),
      sizeBytes: attachment.sizeBytes,
    });
  }

  get failed(): boolean {
    return this.#failed;
  }

  /** All its I/O fails from now on. */
  fail(reason: string): void {
    this.#failed = true;
    this.stage.fail(reason);
  }

  remove(): void {
    this.fail('the device is removed');
    this.process.kill();
  }
}
