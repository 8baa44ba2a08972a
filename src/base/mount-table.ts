import { readFile, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';

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

/** The mounts of all mount namespaces that this process can see, its own among them. */
export async function readAllMountTables(): Promise<MountEntry[]> {
  const tables = await Promise.all([readMountTable(), ...(await otherNamespaces()).map(readAnyTable)]);
  return tables.flat();
}

/** The processes of each mount namespace but this one's own. */
async function otherNamespaces(): Promise<string[][]> {
  const own = await readlink('/proc/self/ns/mnt');
  const found = new Map<string, string[]>();
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const namespace = await readlink(join('/proc', pid, 'ns/mnt')).catch(() => own);
    if (namespace !== own) found.set(namespace, [...(found.get(namespace) ?? []), pid]);
  }
  return [...found.values()];
}

/** Read through the first process that still lives; empty where none does, and the namespace has ended with them. */
async function readAnyTable(pids: readonly string[]): Promise<MountEntry[]> {
  for (const pid of pids) {
    const table = await readMountTable(join('/proc', pid, 'mountinfo')).catch(() => undefined);
    if (table !== undefined) return table;
  }
  return [];
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

/** Filesystem types that a device node can lie on. */
const DEVICE_NODE_FILESYSTEMS: readonly string[] = ['devtmpfs', 'tmpfs'];

/** The name of the block device whose node is bound to a file here, e.g. `loop3`; undefined for any other mount. */
export function boundDevice(entry: MountEntry): string | undefined {
  if (!DEVICE_NODE_FILESYSTEMS.includes(entry.fsType)) return undefined;
  // The kernel adds a mark where the bound file has been unlinked since.
  return /^\/((?:loop|nbd)[0-9]+)(?:\/\/deleted)?$/.exec(entry.root)?.[1];
}

/** Whether the device is seen there: its filesystem, or its node bound to a file. `majorMinor`: undefined if not known. */
export function showsDevice(entry: MountEntry, name: string, majorMinor: string | undefined): boolean {
  return entry.majorMinor === majorMinor || boundDevice(entry) === name;
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
