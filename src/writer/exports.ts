import { HoldfastError } from '../base/errors.js';
import type { Log } from '../base/log.js';
import type { Meters } from '../base/meters.js';
import { KeyedMutex } from '../base/mutex.js';
import type { VolumeId } from '../model/ids.js';
import { ClientRequests } from '../nbd/request-meter.js';
import type { Export, ExportClient, Exports } from '../nbd/stage.js';
import type { Writer } from './writer.js';

/** The name under which the block device of a volume opens its writer. */
export function deviceExportName(volume: VolumeId): string {
  return `${volume}/device`;
}

/**
 * The exports of the writers of one data thread: by the volume id for any client, and by deviceExportName for the block
 * device, which is one client over all its connections: R11, before a new connection of it is served, every request of
 * the one before has been carried out or thrown away.
 */
export class WriterExports implements Exports {
  readonly #devices = new Map<VolumeId, ExportClient>();
  readonly #turns = new KeyedMutex<VolumeId>();

  constructor(
    private readonly writers: ReadonlyMap<VolumeId, Writer>,
    private readonly log: Log,
    private readonly meters: Meters,
  ) {}

  list(): string[] {
    return [...this.writers].filter(([, writer]) => !writer.maintenance).map(([volume]) => volume);
  }

  async describe(name: string): Promise<{ sizeBytes: number; readOnly: boolean }> {
    return Promise.resolve({ sizeBytes: this.#find(name).sizeBytes, readOnly: false });
  }

  async open(name: string, client: ExportClient): Promise<Export> {
    const volume = volumeOf(name);
    if (name === deviceExportName(volume)) await this.#replaceDevice(volume, client);
    const writer = this.#find(name);
    const meter = new ClientRequests(this.meters, volume, () => {
      const { epoch, session } = writer;
      this.log.warn({ volume, epoch, session }, 'requests of a fenced writer are refused');
    });
    return { stage: writer, readOnly: false, meter };
  }

  #replaceDevice(volume: VolumeId, client: ExportClient): Promise<void> {
    return this.#turns.run(volume, async () => {
      const before = this.#devices.get(volume);
      before?.close();
      await before?.drained;
      this.#devices.set(volume, client);
      void client.drained.then(() => {
        if (this.#devices.get(volume) === client) this.#devices.delete(volume);
      });
    });
  }

  #find(name: string): Writer {
    const writer = this.writers.get(volumeOf(name));
    // The device waits for a writer: the volume may be taken over again at any moment. One without a device serves none.
    if (!writer || writer.maintenance)
      throw new HoldfastError('not-found', `no writer of ${JSON.stringify(name)} serves here`);
    return writer;
  }
}

function volumeOf(name: string): VolumeId {
  return name.replace(/\/device$/, '');
}
