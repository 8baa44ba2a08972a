/**
 * Device names for AttachVolume. EC2 takes the name as a key within the instance's block device mappings and refuses one
 * that it still thinks in use; a Nitro instance shows the volume as an NVMe device whatever the name, a Xen instance by
 * it. So a name is only asked for, and never used to find a disk.
 */

/**
 * All names, in the order in which they are chosen. Both kinds of instance take them: EC2 user guide, "Device names for
 * volumes on Amazon EC2 instances", HVM. None of them can be a root volume's (`/dev/sda1`, `/dev/xvda`); those that users
 * commonly give to their own volumes (`/dev/sdf` to `p`) come last.
 */
export const DEVICE_NAMES: readonly string[] = [...names('xvd', 'ba', 'dx'), ...names('sd', 'f', 'p')];

/**
 * The device name to ask for next; undefined where none is left.
 *
 * `inUse`: the names in the instance's block device mappings, in any state, the root volume's among them. `avoided`:
 * names that were let go a short while ago or that EC2 has refused, though it doesn't show them as in use.
 */
export function chooseDeviceName(inUse: Iterable<string>, avoided: Iterable<string> = []): string | undefined {
  const taken = new Set([...inUse, ...avoided].map(deviceKey));
  return DEVICE_NAMES.find((name) => !taken.has(deviceKey(name)));
}

/**
 * What EC2 compares: `/dev/sdf`, `/dev/xvdf`, `xvdf` and the partition `/dev/sdf1` are one device. Names of another form
 * stand for themselves.
 */
export function deviceKey(name: string): string {
  const [, letters] = /^(?:\/dev\/)?(?:sd|xvd|hd)([a-z]{1,2})[0-9]*$/.exec(name) ?? [];
  return letters ?? name;
}

function names(prefix: string, first: string, last: string): string[] {
  const found: string[] = [];
  for (let letters = first; letters !== last; letters = following(letters)) found.push(`/dev/${prefix}${letters}`);
  return [...found, `/dev/${prefix}${last}`];
}

/** `ba` → `bb`, `bz` → `ca`. */
function following(letters: string): string {
  const [rest, last] = [letters.slice(0, -1), letters.slice(-1)];
  return last === 'z' ? `${following(rest)}a` : rest + String.fromCharCode(last.charCodeAt(0) + 1);
}
