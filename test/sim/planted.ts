import { spawn } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { PLANTED_FAULTS, type PlantedFault } from './planted-faults.js';

/*
 * A check that cannot fail is worth nothing: plants each known error in a copy of the build, and runs the simulator on
 * it until it finds a violation. Names on the command line: only those.
 */

const BUILD = fileURLToPath(new URL('../..', import.meta.url));
const ROOT = join(BUILD, '..');

interface Found {
  readonly fault: PlantedFault;
  /** Seeds that it took; undefined: it was not found. */
  readonly seeds: number | undefined;
  readonly how: string;
}

async function main(names: readonly string[]): Promise<number> {
  const faults = PLANTED_FAULTS.filter(({ name }) => names.length === 0 || names.includes(name));
  const queue = [...faults];
  const found: Found[] = [];
  const directory = await mkdtemp(join(tmpdir(), 'planted-'));
  try {
    const worker = async (): Promise<void> => {
      for (let fault = queue.shift(); fault; fault = queue.shift()) {
        const outcome = await find(fault, join(directory, fault.name));
        found.push(outcome);
        process.stdout.write(`${lineOf(outcome)}\n`);
      }
    };
    await Promise.all(Array.from({ length: availableParallelism() }, worker));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  const missed = found.filter(({ seeds }) => seeds === undefined);
  process.stdout.write(`${found.length - missed.length} of ${found.length} planted faults found\n`);
  return missed.length === 0 ? 0 : 1;
}

async function find(fault: PlantedFault, directory: string): Promise<Found> {
  await cp(BUILD, directory, { recursive: true });
  await writeFile(join(directory, 'package.json'), '{ "type": "module" }');
  await plant(fault, directory);
  const { output, code } = await run(join(directory, 'test/sim/main.js'), fault.withinSeeds);
  const seed = /^FAILED seed (\d+): (.*)$/m.exec(output);
  if (seed) return { fault, seeds: Number(seed[1]), how: seed[2] ?? '' };
  if (code !== 0) throw new Error(`${fault.name}: the simulator does not run: ${output}`);
  return { fault, seeds: undefined, how: output.trim().split('\n').at(-1) ?? '' };
}

async function plant({ name, file, and, ...first }: PlantedFault, directory: string): Promise<void> {
  let source = await readFile(join(ROOT, file), 'utf8');
  for (const { find, replace } of and ? [first, and] : [first]) {
    if (source.split(find).length !== 2) throw new Error(`${name}: its text must occur once in ${file}: ${find}`);
    source = source.replace(find, () => replace);
  }
  const { compilerOptions } = ts.readConfigFile(join(ROOT, 'tsconfig.json'), (path) => ts.sys.readFile(path))
    .config as {
    compilerOptions: ts.CompilerOptions;
  };
  const { outputText } = ts.transpileModule(source, {
    compilerOptions: { ...compilerOptions, module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023 },
  });
  await writeFile(join(directory, file.replace(/\.ts$/, '.js')), outputText);
}

function run(main: string, seeds: number): Promise<{ output: string; code: number | null }> {
  const child = spawn(
    process.execPath,
    [main, '--seeds', String(seeds), '--first-seed', '1', '--workers', '1', '--first-failure'],
    {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  let output = '';
  child.stdout.setEncoding('utf8');
  child.stdout.on('data', (text: string) => (output += text));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => resolve({ output, code }));
  });
}

function lineOf({ fault, seeds, how }: Found): string {
  const count = seeds === undefined ? `MISSED in ${fault.withinSeeds}` : String(seeds);
  return `${fault.name.padEnd(30)} ${fault.rule.padEnd(5)} ${count.padStart(8)}  ${how.slice(0, 120)}`;
}

process.exitCode = await main(process.argv.slice(2));
