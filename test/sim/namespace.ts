import { HoldfastError } from '../../src/base/errors.js';
import type { FileContent } from './file-content.js';

export class Directory {
  readonly entries = new Map<string, Directory | FileContent>();
  /** The last entry of the journal that concerns this directory. */
  lastEntry = 0;
}

/** A change of names or sizes, by paths, so that it can be repeated on a copy of the tree. */
export type NameChange =
  | { readonly kind: 'file'; readonly path: string; readonly content: FileContent }
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'remove'; readonly path: string }
  | { readonly kind: 'rename'; readonly from: string; readonly to: string }
  | { readonly kind: 'size'; readonly content: FileContent; readonly sizeBytes: number };

/** What stands at the path; undefined where nothing does. */
export function lookUp(root: Directory, path: string): Directory | FileContent | undefined {
  let found: Directory | FileContent | undefined = root;
  for (const name of namesOf(path)) {
    if (!(found instanceof Directory)) return undefined;
    found = found.entries.get(name);
  }
  return found;
}

/** The directory that the path's last name stands in. */
export function parentOf(root: Directory, path: string): Directory {
  const names = namesOf(path);
  names.pop();
  const found = lookUp(root, names.join('/'));
  if (found instanceof Directory) return found;
  if (found === undefined) throw new HoldfastError('not-found', `${path}: the directory is missing`);
  throw new HoldfastError('io-error', `${path}: not within a directory`);
}

/** Carries out a change that is known to be possible. */
export function apply(root: Directory, change: NameChange): void {
  switch (change.kind) {
    case 'file':
      parentOf(root, change.path).entries.set(nameOf(change.path), change.content);
      return;
    case 'directory':
      parentOf(root, change.path).entries.set(nameOf(change.path), new Directory());
      return;
    case 'remove':
      parentOf(root, change.path).entries.delete(nameOf(change.path));
      return;
    case 'rename': {
      const source = parentOf(root, change.from);
      const moved = source.entries.get(nameOf(change.from));
      source.entries.delete(nameOf(change.from));
      if (moved) parentOf(root, change.to).entries.set(nameOf(change.to), moved);
      return;
    }
    case 'size':
      change.content.durableSizeBytes = change.sizeBytes;
  }
}

/** Every file below with its path. */
export function* filesIn(root: Directory, path = ''): Generator<[string, FileContent]> {
  for (const [name, entry] of root.entries) {
    if (entry instanceof Directory) yield* filesIn(entry, `${path}/${name}`);
    else yield [`${path}/${name}`, entry];
  }
}

/** A tree with the same names; each file is what `copy` makes of it. */
export function copyTree(root: Directory, copy: (content: FileContent) => FileContent): Directory {
  const result = new Directory();
  for (const [name, entry] of root.entries) {
    result.entries.set(name, entry instanceof Directory ? copyTree(entry, copy) : copy(entry));
  }
  return result;
}

/** The paths of everything at and below `path`, what is within a directory before it. */
export function pathsBelow(path: string, entry: Directory | FileContent): string[] {
  const paths: string[] = [];
  if (entry instanceof Directory) {
    for (const [name, inner] of entry.entries) paths.push(...pathsBelow(`${path}/${name}`, inner));
  }
  paths.push(path);
  return paths;
}

export function namesOf(path: string): string[] {
  return path.split('/').filter((name) => name !== '');
}

export function nameOf(path: string): string {
  return namesOf(path).at(-1) ?? '';
}
