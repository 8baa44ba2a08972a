import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { codeOf, HoldfastError } from '../base/errors.js';
import { devIsAlive } from '../dev/control.js';
import { readDescription, type DevDescription } from '../dev/description.js';
import { devLayout, type DevLayout } from '../dev/layout.js';
import type { DrillFlags, DrillKind } from '../drill/plan.js';
import { abortOnSignal } from './signals.js';

interface DrillOptions extends DrillFlags {
  readonly dir?: string;
}

const KIND_TEXT: Readonly<Record<DrillKind, string>> = {
  kill: 'SIGKILL of a node plugin',
  pause: 'SIGSTOP of a node plugin: a writer that wakes up when another has taken over',
  partition: 'lost packets, between two nodes or between one and all others',
  fill: "a node's disks are full to the last byte",
};

const EXIT_FAILED = 1;
const EXIT_STOPPED = 130;

/** `holdfast drill …`: real faults in a running dev cluster, with a verdict. */
export function addDrillCommands(program: Command): void {
  const drill = program
    .command('drill')
    .enablePositionalOptions()
    .description(
      'make a real fault in a running dev cluster, under a load on a volume of its own, and judge what is left',
    )
    .option('--dir <path>', 'directory of the dev cluster');
  addKind(drill, 'kill').option('--node <name>', 'whose plugin (it is started again)');
  addKind(drill, 'pause').option('--node <name>', 'whose plugin');
  addKind(drill, 'partition')
    .option('--between <a,b>', 'two nodes that lose each other')
    .option('--node <name>', 'a node that loses all others and the controller')
    .option('--one-way', 'only what the (first) node sends is lost');
  addKind(drill, 'fill').option('--node <name>', 'whose disks');
}

function addKind(drill: Command, kind: DrillKind): Command {
  return drill
    .command(kind)
    .description(KIND_TEXT[kind])
    .option('--dir <path>', 'directory of the dev cluster')
    .option('--seconds <count>', 'how long the fault lasts')
    .option('--on <name>', 'node that uses the volume (default: the one that the fault befalls)')
    .option('--volume <name>', 'name of the volume that the drill makes and deletes')
    .action(async (_options: unknown, command: Command) => {
      await drillOnce(kind, command.optsWithGlobals<DrillOptions>());
    });
}

async function drillOnce(kind: DrillKind, flags: DrillOptions): Promise<void> {
  const { layout, cluster } = await runningDev(flags.dir);
  const { planDrill } = await import('../drill/plan.js');
  const names = cluster.nodes.map((node) => node.name);
  const plan = planDrill(kind, flags, names, randomBytes(3).toString('hex'));
  const began = Date.now();
  const say = (line: string): void => {
    process.stdout.write(`${((Date.now() - began) / 1_000).toFixed(1).padStart(6)} s  ${line}\n`);
  };
  const signal = abortOnSignal();
  const { runDrill } = await import('../drill/drill.js');
  const { judgeDrill, verdictText } = await import('../drill/verdict.js');
  try {
    const facts = await runDrill(plan, { layout, cluster, signal, say });
    const verdict = judgeDrill(facts);
    process.stdout.write(`\n${verdictText(facts, verdict)}\n`);
    if (!verdict.pass) process.exitCode = EXIT_FAILED;
  } catch (error) {
    if (!signal.aborted || codeOf(error) !== 'cancelled') throw error;
    say('stopped; the fault is over, and nothing of the drill is left');
    process.exitCode = EXIT_STOPPED;
  }
}

/** `failed-precondition`: none runs there. */
async function runningDev(dir: string | undefined): Promise<{ layout: DevLayout; cluster: DevDescription }> {
  if (dir === undefined) {
    throw new HoldfastError('invalid-argument', '--dir is not given; give the directory of a running dev cluster');
  }
  const layout = devLayout(resolve(dir));
  const cluster = await readDescription(layout);
  if (!(await devIsAlive(layout))) {
    throw new HoldfastError(
      'failed-precondition',
      `no dev cluster runs on ${layout.directory}; start one with: holdfast dev --dir ${layout.directory}`,
    );
  }
  return { layout, cluster };
}
