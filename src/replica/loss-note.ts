import { codeOf } from '../base/errors.js';
import type { Files } from '../io/io.js';

/**
 * A note, on another disk than the replica's own, that a flush of the replica failed (R10).
 *
 * A disk that fails a flush may fail the crash mark too. The process knows of the loss, and refuses the replica; but if
 * it is killed then, the next one finds the disk mounted as before and nothing amiss. The note tells it. It need not
 * survive the machine: after a reboot the disk has another incarnation, and open regions are reason enough for a mark.
 */
export class LossNote {
  /** `name`: of the replica, not of its volume alone: an old replica of that may lie on another disk of the node. */
  constructor(
    private readonly files: Files,
    private readonly directory: string,
    private readonly name: string,
  ) {}

  async exists(): Promise<boolean> {
    try {
      return (await this.files.list(this.directory)).includes(this.name);
    } catch (error) {
      if (codeOf(error) === 'not-found') return false;
      throw error;
    }
  }

  /** Repeats do nothing. */
  async make(): Promise<void> {
    await this.files.makeDirectory(this.directory);
    const file = await this.files.open(this.#path, { write: true, create: true, direct: false });
    await file.close();
  }

  /** The mark is durable now. */
  async remove(): Promise<void> {
    await this.files.remove(this.#path);
  }

  get #path(): string {
    return `${this.directory}/${this.name}`;
  }
}
