import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { boundDevice, readAllMountTables, showsDevice, type MountEntry } from '../base/mount-table.js';
import type { LoopDevice } from './loop.js';

/*
 * Where a loop device can still be seen. Whoever opens its node that is bound to a pod's path reaches whatever device has
 * that number then, so a number is given up, or taken, only when no mount shows it any more. The kernel does not help:
 * a node that is bound but not open holds nothing.
 *
 * A container may have a node of its own with the number, made by its runtime, which no mount shows. The target that the
 * volume is published at, and the kubelet's own binding of it, outlive the container: they are what is watched.
 */

/** Where the device's filesystem is mounted or its node is bound, in all mount namespaces that this process sees. */
export async function placesOf(loop: string): Promise<string[]> {
  const name = basename(loop);
  const number = (await readFile(`/sys/block/${name}/dev`, 'utf8')).trim();
  const shown = (await readAllMountTables()).filter((entry) => showsDevice(entry, name, number));
  return [...new Set(shown.map(({ mountPoint }) => mountPoint))];
}

/** Those of the devices whose node is bound somewhere. */
export async function boundAmong(loops: readonly LoopDevice[]): Promise<LoopDevice[]> {
  if (loops.length === 0) return [];
  const bound = boundNames(await readAllMountTables());
  return loops.filter(({ path }) => bound.has(basename(path)));
}

/** Paths of devices whose node is bound somewhere, whether they have a file or not. */
export async function boundDevices(): Promise<string[]> {
  return [...boundNames(await readAllMountTables())].map((name) => `/dev/${name}`);
}

function boundNames(table: readonly MountEntry[]): Set<string> {
  return new Set(table.map(boundDevice).filter((name) => name !== undefined));
}
