import { readdir, rmdir, unlink } from 'node:fs/promises';
import { errnoOf } from './node-errors.js';

/**
 * Removes a file or a whole directory; no error where it is missing. One call after the other: Node's own `rm` begins
 * one for each name of a directory at once, and on a disk that hangs they would keep all threads of the pool.
 */
export async function removeTree(path: string): Promise<void> {
  if (await gone(unlink(path))) return;
  const names = await readdir(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  });
  for (const name of names) await removeTree(`${path}/${name}`);
  await gone(rmdir(path));
}

/** False: it is a directory. */
async function gone(removal: Promise<void>): Promise<boolean> {
  try {
    await removal;
    return true;
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'EISDIR') return false;
    if (errno === 'ENOENT') return true;
    throw error;
  }
}
