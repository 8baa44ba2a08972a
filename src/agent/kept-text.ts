import { readFile } from 'node:fs/promises';
import { HoldfastError, messageOf } from '../base/errors.js';

/** A line of text kept in a file; empty where there is none. An unreadable file is an error, and never none. */
export async function readKept(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw new HoldfastError('io-error', messageOf(error), { cause: error });
  }
}
