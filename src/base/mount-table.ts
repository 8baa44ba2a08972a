import { readFile } from 'node:fs/promises';

/** One line of /proc/self/mountinfo (proc_pid_mountinfo(5)). */
export interface MountEntry {
  /** Unique among the mounts that exist now; the kernel gives the number of an ended mount out again. */
  readonly mountId: number;
  readonly parentId: number;
  /** Device number of the filesystem, e.g. `7:3`. */
  readonly majorMinor: string;
  /** The folder of the filesystem that is mounted; `/` but for bind mounts. A file for a bind-mounted file. */
  readonly root: string;
  readonly mountPoint: string;
  /** Options of this mount, e.g. `rw`, `noatime`. */
  readonly options: readonly string[];
  readonly fsType: string;
  /** What was given as device; for block devices its path. */
  readonly source: string;
  /** Options of the filesystem; `ro` here means that the filesystem itself takes no writes. */
  readonly superOptions: readonly string[];
}

/** The mounts that this process sees, in the order of mounting (a later one covers an earlier one at the same place). */
export async function readMountTable(path = '/proc/self/mountinfo'): Promise<MountEntry[]> {
  return parseMountTable(await readFile(path, 'utf8'));
}

/** Lines that are not as the kernel writes them are left out. */
export function parseMountTable(text: string): MountEntry[] {
  return text.split('\n').flatMap((line) => {
    const entry = parseMountLine(line);
    return entry === undefined ? [] : [entry];
  });
}

/** The mount that is seen at a path now: the last one there. */
export function mountAt(table: readonly MountEntry[], mountPoint: string): MountEntry | undefined {
  return table.findLast((entry) => entry.mountPoint === mountPoint);
}

function parseMountLine(line: string): MountEntry | undefined {
  const words = line.split(' ');
  const separator = words.indexOf('-', 6);
  const [mountId, parentId, majorMinor, root, mountPoint, options] = words;
  if (separator < 0 || mountId === undefined || parentId === undefined || majorMinor === undefined) return undefined;
  const [fsType, source, superOptions] = words.slice(separator + 1);
  if (root === undefined || mountPoint === undefined || options === undefined) return undefined;
  if (fsType === undefined || source === undefined || superOptions === undefined) return undefined;
  return {
    mountId: Number(mountId),
    parentId: Number(parentId),
    majorMinor,
    root: unescape(root),
    mountPoint: unescape(mountPoint),
    options: options.split(','),
    fsType,
    source: unescape(source),
    superOptions: superOptions.split(','),
  };
}

/**
 * Undoes the kernel's octal escapes (\040 is a space). Text outside of them is UTF-8 already; the escaped bytes are
 * ASCII alone (space, tab, newline, backslash, #).
 */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_whole, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
