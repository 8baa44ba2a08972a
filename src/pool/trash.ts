import { readFile, readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { removeTree } from '../io/remove-tree.js';
import { DELETED_PREFIX } from './trash-names.js';

const AGES_FILE = '.ages.json';

/**
 * A disk's trash. What was thrown away because no record names it stays for a grace period, in case the record is what
 * got lost; what was asked to be deleted goes at once.
 *
 * Ages are counted, not read off a clock: each sweep adds the time since the sweep before to what it finds, and keeps
 * the sums in a note beside. A wall clock that jumps can't empty the trash early; a plugin that was away, or a lost
 * note, only lets it stay longer.
 */
export class Trash {
  #sweptAt: number | undefined;
  /** As in the note, which a full disk may refuse. */
  #ages: Partial<Record<string, unknown>> | undefined;

  constructor(
    /** The disk's trash directory; it need not be there. */
    private readonly directory: string,
    private readonly graceMs: number,
    private readonly log: Log,
    /** Own monotonic clock, in milliseconds. */
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Removes what is old enough, one after the other; resolves to the names. One sweep at a time. */
  async sweep(signal?: AbortSignal): Promise<string[]> {
    const names = await this.#names();
    const at = this.now();
    const elapsedMs = this.#sweptAt === undefined ? 0 : at - this.#sweptAt;
    this.#sweptAt = at;
    const before = this.#ages ?? (await this.#readAges());
    const ages = new Map(names.map((name) => [name, age(before, name, elapsedMs)]));
    const removed: string[] = [];
    for (const name of names) {
      if (signal?.aborted === true) break;
      const graceMs = name.startsWith(DELETED_PREFIX) ? 0 : this.graceMs;
      if ((ages.get(name) ?? 0) < graceMs) continue;
      if (await this.#remove(name)) {
        removed.push(name);
        ages.delete(name);
      }
    }
    this.#ages = Object.fromEntries(ages);
    if (names.length > 0) await this.#writeAges(ages);
    return removed;
  }

  async #names(): Promise<string[]> {
    const names = await readdir(this.directory).catch((error: unknown) => {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
      throw error;
    });
    return names.filter((name) => !name.startsWith(AGES_FILE));
  }

  /** What is half removed stays in the trash and is removed the next time. */
  async #remove(name: string): Promise<boolean> {
    try {
      await removeTree(join(this.directory, name));
      this.log.info({ trash: this.directory, name }, 'removed for good');
      return true;
    } catch (error) {
      this.log.warn({ trash: this.directory, name, reason: messageOf(error) }, 'could not be removed from the trash');
      return false;
    }
  }

  async #readAges(): Promise<Partial<Record<string, unknown>>> {
    try {
      const value: unknown = JSON.parse(await readFile(join(this.directory, AGES_FILE), 'utf8'));
      return typeof value === 'object' && value !== null ? { ...value } : {};
    } catch {
      // Missing or spoilt: everything counts as thrown away just now.
      return {};
    }
  }

  async #writeAges(ages: ReadonlyMap<string, number>): Promise<void> {
    const path = join(this.directory, AGES_FILE);
    try {
      await writeFile(`${path}.new`, JSON.stringify(Object.fromEntries(ages)));
      await rename(`${path}.new`, path);
    } catch (error) {
      // On a full disk the sums live in memory; a restart begins them anew.
      this.log.warn({ trash: this.directory, reason: messageOf(error) }, 'ages of the trash can not be noted');
    }
  }
}

function age(before: Partial<Record<string, unknown>>, name: string, elapsedMs: number): number {
  const known = before[name];
  // What came since the last sweep is not known to be any older than now.
  return typeof known === 'number' && known >= 0 ? known + elapsedMs : 0;
}
