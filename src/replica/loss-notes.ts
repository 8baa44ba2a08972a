import { codeOf } from '../base/errors.js';
import type { Files } from '../io/io.js';
import type { VolumeId } from '../model/ids.js';

/**
 * Notes, on another disk than the replicas' own, of replicas whose flush failed (R10).
 *
 * A disk that fails a flush may fail the crash mark too. The process knows of the loss, and refuses the replica; but if
 * it is killed then, the next one finds the disk mounted as before and nothing amiss. The note tells it. It need not
 * survive the machine: after a reboot the disk has another incarnation, and open regions are reason enough for a mark.
 */
export class LossNotes {
  constructor(
    private readonly files: Files,
    private readonly directory: string,
  ) {}

  async has(volume: VolumeId): Promise<boolean> {
    try {
      return (await this.files.list(this.directory)).includes(volume);
    } catch (error) {
      if (codeOf(error) === 'not-found') return false;
      throw error;
    }
  }

  /** Repeats do nothing. */
  async make(volume: VolumeId): Promise<void> {
    await this.files.makeDirectory(this.directory);
    const file = await this.files.open(this.#path(volume), { write: true, create: true, direct: false });
    await file.close();
  }

  /** The mark is durable now. */
  async remove(volume: VolumeId): Promise<void> {
    await this.files.remove(this.#path(volume));
  }

  #path(volume: VolumeId): string {
    return `${this.directory}/${volume}`;
  }
}
