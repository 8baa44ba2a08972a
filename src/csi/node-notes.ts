import { mkdir, readFile, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isVolumeId, type VolumeId } from '../model/ids.js';

/** How a volume was staged: what the kernel's tables can't tell. */
export interface StagingNote {
  readonly volume: VolumeId;
  /** Canonical. */
  readonly stagingPath: string;
  readonly kind: 'block' | 'mount';
  /** As they were asked for. */
  readonly mountFlags: readonly string[];
}

/**
 * One small file for each staged volume. The notes only sharpen what the kernel tells (which flags were asked for,
 * where a block volume is staged): all works without them, and an unreadable one counts as missing.
 */
export class StagingNotes {
  constructor(private readonly directory: string) {}

  async read(volume: VolumeId): Promise<StagingNote | undefined> {
    const text = await readFile(this.#file(volume), 'utf8').catch(() => undefined);
    return text === undefined ? undefined : parseNote(text);
  }

  async list(): Promise<StagingNote[]> {
    const names = await readdir(this.directory).catch(() => []);
    const volumes = names.map((name) => name.replace(/\.json$/, '')).filter(isVolumeId);
    const notes = await Promise.all(volumes.map((volume) => this.read(volume)));
    return notes.filter((note) => note !== undefined);
  }

  async write(note: StagingNote): Promise<void> {
    await mkdir(this.directory, { recursive: true });
    const file = this.#file(note.volume);
    await writeFile(`${file}.new`, JSON.stringify(note));
    await rename(`${file}.new`, file);
  }

  async remove(volume: VolumeId): Promise<void> {
    await rm(this.#file(volume), { force: true });
  }

  #file(volume: VolumeId): string {
    return join(this.directory, `${volume}.json`);
  }
}

function parseNote(text: string): StagingNote | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return isNote(value) ? value : undefined;
}

function isNote(value: unknown): value is StagingNote {
  if (typeof value !== 'object' || value === null) return false;
  const note: Partial<Record<keyof StagingNote, unknown>> = value;
  return (
    typeof note.volume === 'string' &&
    typeof note.stagingPath === 'string' &&
    (note.kind === 'block' || note.kind === 'mount') &&
    Array.isArray(note.mountFlags)
  );
}
