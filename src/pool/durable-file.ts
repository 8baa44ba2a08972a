import { open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Suffix of a file that is being written; what a crash leaves of it means nothing. */
export const UNFINISHED_SUFFIX = '.unfinished';

/** Writes a file so that after a crash it holds all of the text or what it held before, and is durable on return. */
export async function writeDurably(path: string, text: string): Promise<void> {
  const unfinished = path + UNFINISHED_SUFFIX;
  const file = await open(unfinished, 'w', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(unfinished, path);
  await syncDirectory(dirname(path));
}

/** Makes names created, renamed or removed in the directory durable. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
