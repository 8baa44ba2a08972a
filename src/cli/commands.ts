import type { Command } from 'commander';
import { examineMachine } from '../doctor.js';
import { ask, CALL_TIMEOUT_MS, clientCommand, print, type ClientOptions } from './client-command.js';
import { addHealingCommands, addNodeRemoval } from './healing-commands.js';
import { findingsText, nodesText, nodeValue, statusText, volumesText, volumeText, volumeValue } from './views.js';

/** A release waits until the node has ended the attachment in good order. */
const RELEASE_TIMEOUT_MS = 60_000;

export function addStatusCommand(program: Command): void {
  clientCommand(program, 'status', 'the cluster in a few lines').action(async (options: ClientOptions) => {
    const status = await ask(options, (admin) => admin.call('GetStatus', {}, CALL_TIMEOUT_MS));
    print(options, status, () => statusText(status));
  });
}

export function addVolumeCommands(program: Command): void {
  const volume = program.command('volume').description('volumes: what a PVC gets');
  clientCommand(volume, 'list', 'all volumes').action(async (options: ClientOptions) => {
    const { volumes } = await ask(options, (admin) => admin.call('ListVolumes', {}, CALL_TIMEOUT_MS));
    print(options, volumes.map(volumeValue), () => volumesText(volumes, Date.now()));
  });
  clientCommand(volume, 'show', 'one volume, its replicas and its attachment')
    .argument('<volume>', 'id or CSI name')
    .action(async (name: string, options: ClientOptions) => {
      const view = await ask(options, (admin) => admin.call('GetVolume', { volume: name }, CALL_TIMEOUT_MS));
      print(options, volumeValue(view), () => volumeText(view, Date.now()));
    });
  clientCommand(
    volume,
    'release',
    'take the writer away from its node; a pod that still uses the volume gets I/O errors',
  )
    .argument('<id>', 'volume id')
    .option('--force', 'a node that is dead and can not be asked is taken out of the record')
    .action(async (id: string, options: ClientOptions & { force?: true }) => {
      const request = { volume_id: id, force: options.force ?? false };
      await ask(options, (admin) => admin.call('ReleaseVolume', request, RELEASE_TIMEOUT_MS));
      print(options, { released: id }, () => `released ${id}`);
    });
  addHealingCommands(volume);
}

/** Adds `list` and `remove` below the command `node`, which without it runs the node plugin. */
export function addNodeCommands(node: Command): void {
  clientCommand(node, 'list', 'all nodes and their disks').action(async (options: ClientOptions) => {
    const { nodes } = await ask(options, (admin) => admin.call('ListNodes', {}, CALL_TIMEOUT_MS));
    print(options, nodes.map(nodeValue), () => nodesText(nodes));
  });
  addNodeRemoval(node);
}

export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('what this machine can and cannot do, and how to mend it')
    .option('--json', 'for machines')
    .action(async (options: ClientOptions) => {
      const findings = await examineMachine();
      print(options, findings, () => findingsText(findings));
      if (findings.some((finding) => finding.required && !finding.ok)) process.exitCode = 1;
    });
}
