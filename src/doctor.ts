import { constants } from 'node:fs';
import { access, readFile, statfs } from 'node:fs/promises';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import { delimiter, join } from 'node:path';
import { HoldfastError } from './base/errors.js';
import { postgresDirectory } from './demo/postgres-directory.js';

/** What one check of the machine found. */
export interface Finding {
  readonly name: string;
  /** Without a required one no node runs here; the others are for what stands in `purpose`. */
  readonly required: boolean;
  readonly ok: boolean;
  /** What is there, in words. */
  readonly found: string;
  readonly purpose: string;
  /** What to do where it is missing. */
  readonly remedy: string;
}

interface Tool {
  readonly tool: string;
  readonly debianPackage: string;
  readonly required: boolean;
  readonly purpose: string;
}

const NODE_PURPOSE = 'a node';
const DEV_PURPOSE = 'holdfast dev';

const TOOLS: readonly Tool[] = [
  { tool: 'mount', debianPackage: 'mount', required: true, purpose: NODE_PURPOSE },
  { tool: 'umount', debianPackage: 'mount', required: true, purpose: NODE_PURPOSE },
  { tool: 'losetup', debianPackage: 'mount', required: true, purpose: NODE_PURPOSE },
  { tool: 'blkid', debianPackage: 'util-linux', required: true, purpose: NODE_PURPOSE },
  { tool: 'mkfs.xfs', debianPackage: 'xfsprogs', required: true, purpose: 'disks, volumes with xfs' },
  { tool: 'xfs_growfs', debianPackage: 'xfsprogs', required: true, purpose: 'growing volumes with xfs' },
  { tool: 'mkfs.ext4', debianPackage: 'e2fsprogs', required: true, purpose: 'volumes with ext4' },
  { tool: 'e2fsck', debianPackage: 'e2fsprogs', required: true, purpose: 'volumes with ext4' },
  { tool: 'resize2fs', debianPackage: 'e2fsprogs', required: true, purpose: 'growing volumes with ext4' },
  { tool: 'ip', debianPackage: 'iproute2', required: false, purpose: DEV_PURPOSE },
  { tool: 'nsenter', debianPackage: 'util-linux', required: false, purpose: DEV_PURPOSE },
  { tool: 'xfs_io', debianPackage: 'xfsprogs', required: false, purpose: DEV_PURPOSE },
  { tool: 'nbdcopy', debianPackage: 'libnbd-bin', required: false, purpose: 'demo and tests' },
  { tool: 'nbdinfo', debianPackage: 'libnbd-bin', required: false, purpose: 'demo and tests' },
  { tool: 'setpriv', debianPackage: 'util-linux', required: false, purpose: 'demo' },
  { tool: 'fio', debianPackage: 'fio', required: false, purpose: 'tests' },
  { tool: 'qemu-img', debianPackage: 'qemu-utils', required: false, purpose: 'tests' },
  { tool: 'nbdkit', debianPackage: 'nbdkit', required: false, purpose: 'tests' },
  { tool: 'go', debianPackage: 'golang-go', required: false, purpose: 'tests (builds csi-sanity)' },
];

interface Capability {
  readonly name: string;
  /** Its bit in the sets of /proc/self/status (capabilities(7), linux/capability.h). */
  readonly bit: bigint;
  readonly required: boolean;
  readonly purpose: string;
}

const CAPABILITIES: readonly Capability[] = [
  { name: 'CAP_SYS_ADMIN', bit: 21n, required: true, purpose: 'mounts, loop devices' },
  { name: 'CAP_DAC_OVERRIDE', bit: 1n, required: true, purpose: "pods' directories" },
  { name: 'CAP_NET_ADMIN', bit: 12n, required: false, purpose: DEV_PURPOSE },
  { name: 'CAP_SYS_RESOURCE', bit: 24n, required: false, purpose: 'growing a mounted ext4' },
  { name: 'CAP_KILL', bit: 5n, required: false, purpose: DEV_PURPOSE },
];

const GIB = 1024 ** 3;
const NODE_MAJOR = 20;
const NODE_MINOR = 19;
const LEAST_MEMORY_BYTES = GIB;
const LEAST_FREE_BYTES = 4 * GIB;

/** Looks at the machine; changes nothing. */
export async function examineMachine(): Promise<Finding[]> {
  const looked = await Promise.all([
    ...CAPABILITIES.map(capability),
    deviceFile('FUSE', '/dev/fuse', 'fuse', 'block devices where the kernel has no nbd'),
    deviceFile('loop devices', '/dev/loop-control', 'loop', 'block devices, disks from files'),
    filesystem('xfs', 'disks, volumes with xfs'),
    filesystem('ext4', 'volumes with ext4'),
    kernelNbd(),
    ioUring(),
    ...TOOLS.map(tool),
    postgres(),
    freeSpace(),
  ]);
  return [nodeVersion(), root(), memory(), ...looked];
}

/** `failed-precondition`, in one line, where this machine can't run a dev cluster. */
export async function requireMachine(): Promise<void> {
  const needed = (finding: Finding): boolean => finding.required || finding.purpose === DEV_PURPOSE;
  const missing = (await examineMachine()).filter((finding) => needed(finding) && !finding.ok);
  if (missing.length === 0) return;
  const told = missing.map((finding) => `${finding.name}: ${finding.remedy}`).join('; ');
  throw new HoldfastError('failed-precondition', `this machine lacks ${told} (more: holdfast doctor)`);
}

function nodeVersion(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return {
    name: 'Node.js',
    required: true,
    ok: major > NODE_MAJOR || (major === NODE_MAJOR && minor >= NODE_MINOR),
    found: process.versions.node,
    purpose: 'everything',
    remedy: `install Node.js ${NODE_MAJOR}.${NODE_MINOR} or newer`,
  };
}

function root(): Finding {
  const uid = process.geteuid?.() ?? -1;
  return {
    name: 'root',
    required: true,
    ok: uid === 0,
    found: `user id ${uid}`,
    purpose: NODE_PURPOSE,
    remedy: 'run as root',
  };
}

async function capability({ name, bit, required, purpose }: Capability): Promise<Finding> {
  const status = await readFile('/proc/self/status', 'utf8');
  const [, mask = '0'] = /^CapEff:\s*([0-9a-f]+)$/m.exec(status) ?? [];
  const ok = ((BigInt(`0x${mask}`) >> bit) & 1n) === 1n;
  const remedy = `grant it; in a container: --privileged, or --cap-add ${name.replace('CAP_', '')}`;
  return { name, required, ok, found: ok ? 'there' : 'missing', purpose, remedy };
}

async function deviceFile(name: string, path: string, module: string, purpose: string): Promise<Finding> {
  const ok = await can(path, constants.R_OK | constants.W_OK);
  const remedy = `load the module: modprobe ${module}; in a container: pass ${path} in`;
  return { name, required: true, ok, found: ok ? path : `no ${path} that can be opened`, purpose, remedy };
}

async function filesystem(name: string, purpose: string): Promise<Finding> {
  const known = await readFile('/proc/filesystems', 'utf8');
  const loaded = known.split('\n').some((line) => line.trim() === name);
  const ok = loaded || (await moduleInstalled(name));
  const found = loaded ? 'in the kernel' : ok ? 'module installed' : 'unknown to the kernel';
  return {
    name: `${name} in the kernel`,
    required: true,
    ok,
    found,
    purpose,
    remedy: `load the module: modprobe ${name}`,
  };
}

async function kernelNbd(): Promise<Finding> {
  const loaded = await can('/sys/module/nbd', constants.R_OK);
  const ok = loaded || (await moduleInstalled('nbd'));
  return {
    name: 'nbd in the kernel',
    required: false,
    ok,
    found: loaded ? 'loaded' : ok ? 'module installed' : 'none',
    purpose: 'nothing yet; FUSE and loop devices serve instead',
    remedy: 'none needed',
  };
}

async function ioUring(): Promise<Finding> {
  // 0: allowed, 1: for members of a group, 2: for nobody (kernel documentation, admin-guide/sysctl/kernel).
  const text = await readFile('/proc/sys/kernel/io_uring_disabled', 'utf8').catch(() => undefined);
  return {
    name: 'io_uring',
    required: false,
    ok: text?.trim() === '0',
    found: text === undefined ? 'unknown to the kernel' : `kernel.io_uring_disabled is ${text.trim()}`,
    purpose: 'nothing yet; ordinary file and socket calls serve instead',
    remedy: 'none needed',
  };
}

async function tool({ tool: name, debianPackage, required, purpose }: Tool): Promise<Finding> {
  const path = await which(name);
  const remedy = `apt-get install ${debianPackage}`;
  return { name, required, ok: path !== undefined, found: path ?? 'not installed', purpose, remedy };
}

async function postgres(): Promise<Finding> {
  const path = await postgresDirectory();
  return {
    name: 'PostgreSQL',
    required: false,
    ok: path !== undefined,
    found: path ?? 'not installed',
    purpose: 'demo',
    remedy: 'apt-get install postgresql',
  };
}

function memory(): Finding {
  return {
    name: 'memory',
    required: false,
    ok: totalmem() >= LEAST_MEMORY_BYTES,
    found: `${(totalmem() / GIB).toFixed(1)} GiB, ${cpus().length} processors, Linux ${release()}`,
    purpose: `${DEV_PURPOSE} with three nodes`,
    remedy: `give it ${LEAST_MEMORY_BYTES / GIB} GiB or more`,
  };
}

async function freeSpace(): Promise<Finding> {
  const { bavail, bsize } = await statfs(tmpdir());
  const free = bavail * bsize;
  return {
    name: `space in ${tmpdir()}`,
    required: false,
    ok: free >= LEAST_FREE_BYTES,
    found: `${(free / GIB).toFixed(1)} GiB`,
    purpose: 'demo and tests',
    remedy: `free ${LEAST_FREE_BYTES / GIB} GiB, or set TMPDIR`,
  };
}

async function moduleInstalled(name: string): Promise<boolean> {
  const directory = join('/lib/modules', release());
  const lists = await Promise.all(
    ['modules.dep', 'modules.builtin'].map((file) => readFile(join(directory, file), 'utf8').catch(() => '')),
  );
  return lists.some((list) => new RegExp(`/${name}\\.ko`).test(list));
}

async function which(name: string): Promise<string | undefined> {
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'].filter(
    (one) => one !== '',
  );
  for (const directory of directories) {
    const path = join(directory, name);
    if (await can(path, constants.X_OK)) return path;
  }
  return undefined;
}

async function can(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
