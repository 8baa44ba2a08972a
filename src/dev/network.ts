import { readdir, readlink, stat } from 'node:fs/promises';
import { run } from '../base/run.js';
import { CONTROLLER_ADDRESS, type DevLayout, type DevNodeLayout } from './layout.js';

/*
 *        switch namespace                       node namespace
 *   controller ── switch0 (bridge) ── port-a ═══════ eth0 ── node a
 *                        └─────────── port-b ═══════ eth0 ── node b
 *
 * Nothing is added to the network of the machine itself.
 */

const RUN_NETNS = '/run/netns';
const BRIDGE = 'switch0';
const TIMEOUT_MS = 10_000;

/** Makes the switch with the controller's address on it. */
export async function makeSwitch(layout: DevLayout): Promise<void> {
  await makeNamespace(layout.switchNamespace);
  await ip('-n', layout.switchNamespace, 'link', 'add', BRIDGE, 'type', 'bridge');
  await ip('-n', layout.switchNamespace, 'addr', 'add', `${CONTROLLER_ADDRESS}/24`, 'dev', BRIDGE);
  await ip('-n', layout.switchNamespace, 'link', 'set', BRIDGE, 'up');
}

/** Makes a node's namespace and plugs it into the switch. */
export async function connectNode(layout: DevLayout, node: DevNodeLayout, address: string): Promise<void> {
  const hub = layout.switchNamespace;
  await makeNamespace(node.namespace);
  const peer = ['type', 'veth', 'peer', 'name', 'eth0', 'netns', node.namespace];
  await ip('-n', hub, 'link', 'add', 'name', node.switchPort, ...peer);
  await ip('-n', hub, 'link', 'set', node.switchPort, 'master', BRIDGE, 'up');
  await ip('-n', node.namespace, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
  await ip('-n', node.namespace, 'link', 'set', 'eth0', 'up');
}

/** Pulls the node's plug (`up` false), or puts it in again. Repeats do nothing. */
export async function setPlug(layout: DevLayout, node: DevNodeLayout, up: boolean): Promise<void> {
  await ip('-n', layout.switchNamespace, 'link', 'set', node.switchPort, up ? 'up' : 'down');
}

/** No port of the switch has this (locally administered) address. */
const NOBODY = '02:00:00:00:00:01';

/**
 * From now on what is sent in a namespace to an address gets lost, without a word to the sender, as in a partition that
 * works one way: what comes from there still arrives. Repeats do nothing.
 */
export async function lose(namespace: string, address: string): Promise<void> {
  await ip('-n', namespace, 'neigh', 'replace', address, 'lladdr', NOBODY, 'dev', 'eth0', 'nud', 'permanent');
}

/** Takes `lose` back; without it nothing happens. */
export async function hear(namespace: string, address: string): Promise<void> {
  const { stdout } = await run('ip', ['-n', namespace, 'neigh', 'show', address, 'dev', 'eth0', 'nud', 'permanent'], {
    timeoutMs: TIMEOUT_MS,
  });
  if (stdout.includes(NOBODY)) await ip('-n', namespace, 'neigh', 'del', address, 'dev', 'eth0');
}

/** Names of the network namespaces that belong to a dev cluster. */
export async function namespacesOf(layout: DevLayout): Promise<string[]> {
  const names = await readdir(RUN_NETNS).catch((): string[] => []);
  const own = layout.switchNamespace;
  return names.filter((name) => name === own || name.startsWith(`${own}-`));
}

/** Removes a namespace; a missing one is no error. No process should be in it any more. */
export async function removeNamespace(name: string): Promise<void> {
  const names = await readdir(RUN_NETNS).catch((): string[] => []);
  if (names.includes(name)) await ip('netns', 'del', name);
}

/** Ids of the processes that live in a network namespace; none where there is no such namespace. */
export async function processesIn(namespace: string): Promise<number[]> {
  const wanted = await stat(`${RUN_NETNS}/${namespace}`).catch(() => undefined);
  if (wanted === undefined) return [];
  const link = `net:[${wanted.ino}]`;
  const ids = (await readdir('/proc')).filter((name) => /^[0-9]+$/.test(name));
  const inside = await Promise.all(
    // A process that ends meanwhile, or a zombie, has no namespace.
    ids.map(async (id) => (await readlink(`/proc/${id}/ns/net`).catch(() => '')) === link),
  );
  return ids.filter((_, index) => inside[index] === true).map(Number);
}

/**
 * The command line that runs a program in a network namespace, and changes nothing else: `ip netns exec` would also
 * make a mount namespace, and mounts made in there are not seen by anyone else.
 */
export function inNamespace(namespace: string, command: readonly string[]): [string, string[]] {
  return ['nsenter', [`--net=${RUN_NETNS}/${namespace}`, '--', ...command]];
}

async function makeNamespace(name: string): Promise<void> {
  await ip('netns', 'add', name);
  await ip('-n', name, 'link', 'set', 'lo', 'up');
}

async function ip(...args: string[]): Promise<void> {
  await run('ip', args, { timeoutMs: TIMEOUT_MS });
}
