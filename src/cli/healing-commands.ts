import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { HoldfastError } from '../base/errors.js';
import { duration, integer, named } from '../config-values.js';
import { ask, CALL_TIMEOUT_MS, clientCommand, print, type ClientOptions } from './client-command.js';
import { explanationText, explanationValue } from './explanation-view.js';
import type { AdminClient } from './service-client.js';

const POLL_MS = 500;

interface SetReplicasOptions extends ClientOptions {
  readonly wait?: true;
  readonly timeout: string;
}

/** Adds, below `volume`, what tells why a volume is as it is, and what changes that. */
export function addHealingCommands(volume: Command): void {
  clientCommand(volume, 'why', 'why a volume is as it is: what happened, what it waits for, what comes next')
    .argument('<volume>', 'id or CSI name')
    .action(async (name: string, options: ClientOptions) => {
      const told = await ask(options, (admin) => admin.call('ExplainVolume', { volume: name }, CALL_TIMEOUT_MS));
      print(options, explanationValue(told), () => explanationText(told, Date.now()));
    });
  clientCommand(volume, 'set-replicas', 'how many replicas a volume is to have; works while it is in use')
    .argument('<volume>', 'id or CSI name')
    .argument('<count>', '1 to 3')
    .option('--wait', 'until as many are there and in sync')
    .option('--timeout <time>', 'how long to wait', '1h')
    .action(setReplicas);
  clientCommand(
    volume,
    'force-stale',
    'with no in-sync replica left, choose a stale one; acknowledged writes that it lacks are lost',
  )
    .argument('<volume>', 'id or CSI name')
    .requiredOption('--replica <node>', 'the node of the replica to go on with')
    .option('--accept-loss', 'go on; without it only what may be lost is told')
    .action(async (name: string, options: ClientOptions & { replica: string; acceptLoss?: true }) => {
      const request = { volume: name, node: options.replica, accept_loss: options.acceptLoss ?? false };
      const { loss } = await ask(options, (admin) => admin.call('ForceStale', request, CALL_TIMEOUT_MS));
      print(options, { volume: name, replica: options.replica, loss }, () =>
        [`the replica on ${options.replica} is in sync now`, ...loss.map((line) => `  ${line}`)].join('\n'),
      );
    });
}

/** Adds `remove` below `node`. */
export function addNodeRemoval(node: Command): void {
  clientCommand(node, 'remove', 'a node that is gone for good leaves the cluster; what it held is rebuilt elsewhere')
    .argument('<name>', 'node')
    .action(async (name: string, options: ClientOptions) => {
      const { disks, volumes } = await ask(options, (admin) =>
        admin.call('RemoveNode', { node: name }, CALL_TIMEOUT_MS),
      );
      print(options, { removed: name, disks, volumes }, () => {
        const held = disks.length === 0 ? 'it had no disks' : `with its disks ${disks.join(', ')}`;
        return `removed node ${name}, ${held}; volumes with a replica there: ${volumes}`;
      });
    });
}

async function setReplicas(name: string, text: string, options: SetReplicasOptions): Promise<void> {
  const replicas = countOf(text);
  const timeoutMs = named('--timeout', () => duration(options.timeout, '1s', '240h'));
  await ask(options, async (admin) => {
    const { next } = await admin.call('SetReplicas', { volume: name, replicas }, CALL_TIMEOUT_MS);
    if (options.wait === true) await untilSettled(admin, name, replicas, timeoutMs);
    print(options, { volume: name, replicas, next, settled: options.wait ?? false }, () =>
      (options.wait === true
        ? [`${name} has ${replicas} ${replicas === 1 ? 'replica' : 'replicas'}, in sync`]
        : [...next, `follow it with: holdfast volume why ${name}`]
      ).join('\n'),
    );
  });
}

function countOf(text: string): number {
  try {
    return integer(text, 1, 3);
  } catch (error) {
    if (error instanceof HoldfastError) throw new HoldfastError(error.code, `<count> ${error.message}`);
    throw error;
  }
}

/** `deadline-exceeded`: not in this time; it goes on all the same. */
async function untilSettled(admin: AdminClient, volume: string, replicas: number, timeoutMs: number): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const view = await admin.call('GetVolume', { volume }, CALL_TIMEOUT_MS);
    if (view.replicas.length === replicas && view.replicas.every((replica) => replica.in_sync)) return;
    if (Date.now() > end) {
      throw new HoldfastError(
        'deadline-exceeded',
        `${volume} does not have ${replicas} replicas in sync yet; it goes on; see: holdfast volume why ${volume}`,
      );
    }
    await sleep(POLL_MS);
  }
}
