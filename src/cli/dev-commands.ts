import { resolve } from 'node:path';
import { Option, type Command } from 'commander';
import { HoldfastError } from '../base/errors.js';
import { createLog } from '../base/log.js';
import { duration, integer, logLevel, named, segments, size } from '../config-values.js';
import { TOPOLOGY_NODE, TOPOLOGY_ZONE } from '../config.js';
import { DevCluster } from '../dev.js';
import { controlNode, DEV_VERBS, type DevVerb } from '../dev/control.js';
import { devLayout, MOST_DEV_NODES } from '../dev/layout.js';
import { untilSignal } from './signals.js';

interface DevCommandOptions {
  readonly dir?: string;
  readonly nodes?: string;
  readonly diskSize: string;
  readonly zones: string;
  readonly logLevel: string;
  readonly rebuildGrace?: string;
}

const VERB_TEXT: Readonly<Record<DevVerb, string>> = {
  start: 'start the node plugin again',
  stop: 'stop the node plugin in good order; mounts stay and wait',
  kill: 'power cut: all processes, mounts and loop devices of the node',
  cut: "pull the node's network plug",
  heal: "put the node's network plug in again",
};

/** `holdfast dev` and, below it, what can be done to the nodes of a running one. */
export function addDevCommands(program: Command): void {
  const dev = program
    .command('dev')
    .enablePositionalOptions()
    .description('a whole cluster on this machine, in the foreground; its disks are files')
    .option('--dir <path>', 'where everything of it lies; started again there, it comes back with its volumes')
    .option('--nodes <count>', `nodes, at most ${MOST_DEV_NODES} (default: as many as there were, else 3)`)
    .option('--disk-size <size>', 'size of the (sparse) disk of a new node', '40GiB')
    .option('--zones <names>', 'zones of the nodes in turn', 'zone-1,zone-2,zone-3')
    .option('--rebuild-grace <time>', 'how long a dead node is waited for before its replicas are rebuilt elsewhere')
    .addOption(new Option('--log-level <level>', 'of the controller and the nodes').default('info'))
    .action(runDev);
  const node = dev.command('node').description('do something to a node of a running dev cluster');
  for (const verb of DEV_VERBS) {
    node
      .command(verb)
      .description(VERB_TEXT[verb])
      .argument('<name>', 'node')
      .requiredOption('--dir <path>', 'directory of the dev cluster')
      .action(async (name: string, options: { dir: string }) => {
        await controlNode(devLayout(resolve(options.dir)), name, verb);
      });
  }
}

async function runDev(options: DevCommandOptions): Promise<void> {
  const log = createLog('dev', 'info');
  // Not commander's requiredOption: that would be asked of `dev node …` too.
  if (options.dir === undefined) {
    throw new HoldfastError('invalid-argument', '--dir is not given; give a directory, new or of an earlier run');
  }
  const settings = {
    directory: resolve(options.dir),
    nodes:
      options.nodes === undefined ? undefined : named('--nodes', () => integer(options.nodes ?? '', 1, MOST_DEV_NODES)),
    diskBytes: named('--disk-size', () => size(options.diskSize, '512MiB', '16TiB')),
    zones: named('--zones', () => zoneNames(options.zones)),
    logLevel: named('--log-level', () => logLevel(options.logLevel)),
    rebuildGrace: options.rebuildGrace,
  };
  named('--rebuild-grace', () => duration(options.rebuildGrace ?? '10min', '1s', '240h'));
  await untilSignal(async (signal) => {
    const cluster = await DevCluster.start({ ...settings, signal }, log);
    const { nodes } = cluster.describe();
    const lines = nodes.map((node) => `  node ${node.name}  ${node.zone}  ${node.address}  ${node.csiSocket}`);
    process.stdout.write(
      [`ready: ${settings.directory}/dev.json`, ...lines, `try: holdfast status --dir ${settings.directory}`, ''].join(
        '\n',
      ),
    );
    return () => cluster.stop();
  });
}

function zoneNames(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  if (names.includes('')) {
    throw new HoldfastError('invalid-argument', `is "${text}"; give names of zones, separated by commas`);
  }
  for (const name of names) segments([`${TOPOLOGY_ZONE}=${name}`], TOPOLOGY_NODE);
  return names;
}
