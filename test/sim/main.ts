import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { REGRESSION_SEEDS } from './regressions.js';
import { type Outcome, runSeed } from './run.js';

const USAGE = `Runs the replication engine in a simulated cluster, in virtual time, under faults; one seed is one run.

  npm run sim -- --seed N                  one run, with its story
  npm run sim -- --seeds COUNT             many, on all cores
                 [--first-seed N]          from this seed on (default: one of its own each time)
                 [--minutes M]             no new run begins after M minutes
                 [--workers W]             default: one for each core
                 [--first-failure]         the first failed run is the last

The exit code is 1 where any run failed.`;

/** What a worker takes a seed from, and is told to stop by: [the next seed, 1 to stop]. */
type Shared = BigInt64Array;

interface Totals {
  runs: number;
  virtualMs: number;
  events: number;
  operations: number;
  failed: Outcome[];
}

async function main(): Promise<number> {
  if (process.argv.slice(2).includes('--help')) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  const options = readOptions();
  if (typeof options === 'string') {
    process.stderr.write(`${options}\n\n${USAGE}\n`);
    return 2;
  }
  return options.seed === undefined ? runMany(options) : runOne(options.seed);
}

interface Options {
  readonly seed: number | undefined;
  readonly seeds: number;
  readonly firstSeed: number;
  readonly minutes: number;
  readonly workers: number;
  readonly firstFailure: boolean;
  readonly regressions: boolean;
}

/** A text: what is wrong with the command line. */
function readOptions(): Options | string {
  const text = { type: 'string' } as const;
  let values: Partial<Record<'seed' | 'seeds' | 'first-seed' | 'minutes' | 'workers', string>>;
  let firstFailure: boolean;
  try {
    const flag = { type: 'boolean', default: false } as const;
    const options = { seed: text, seeds: text, 'first-seed': text, minutes: text, workers: text };
    ({ 'first-failure': firstFailure, ...values } = parseArgs({
      options: { ...options, 'first-failure': flag },
    }).values);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  for (const [name, value] of Object.entries(values)) {
    const number = Number(value);
    if (!(number >= 0) || (name !== 'minutes' && !Number.isSafeInteger(number))) {
      return `--${name} ${value}: must be a number of 0 or more`;
    }
  }
  if (values.seed === undefined && values.seeds === undefined && values.minutes === undefined) {
    return 'one of --seed, --seeds and --minutes is needed';
  }
  return {
    seed: values.seed === undefined ? undefined : Number(values.seed),
    seeds: Number(values.seeds ?? Infinity),
    // Another part of the seeds each time.
    firstSeed: Number(values['first-seed'] ?? Math.floor(Date.now() / 1_000) * 1_000),
    minutes: Number(values.minutes ?? Infinity),
    workers: Number(values.workers ?? availableParallelism()),
    firstFailure,
    // Where neither seeds nor their number are named, those that failed once come first.
    regressions: values.seeds === undefined && values['first-seed'] === undefined,
  };
}

async function runOne(seed: number): Promise<number> {
  const outcome = await runSeed(seed, (line) => process.stdout.write(`${line}\n`));
  process.stdout.write(`${verdictOn(outcome)}\n`);
  return outcome.problems.length === 0 ? 0 : 1;
}

async function runMany({ seeds, firstSeed, minutes, workers, firstFailure, regressions }: Options): Promise<number> {
  const startedAt = performance.now();
  const shared: Shared = new BigInt64Array(new SharedArrayBuffer(16));
  shared[0] = BigInt(firstSeed);
  const totals: Totals = { runs: 0, virtualMs: 0, events: 0, operations: 0, failed: [] };
  process.stdout.write(`seeds from ${firstSeed} on, with ${workers} workers\n`);
  const note = (outcome: Outcome): void => {
    totals.runs++;
    totals.virtualMs += outcome.virtualMs;
    totals.events += outcome.events;
    totals.operations += outcome.operations;
    if (outcome.problems.length > 0) {
      totals.failed.push(outcome);
      if (firstFailure) Atomics.store(shared, 1, 1n);
      process.stdout.write(`${verdictOn(outcome)}\n`);
    }
  };
  const progress = setInterval(() => process.stdout.write(`  ${lineOf(totals, startedAt)}\n`), 10_000);
  const stop = setTimeout(() => Atomics.store(shared, 1, 1n), Math.min(minutes * 60_000, 0x7fffffff));
  if (regressions) for (const { seed } of REGRESSION_SEEDS) note(await runSeed(seed));
  const last = firstSeed + seeds;
  await Promise.all(Array.from({ length: workers }, () => runWorker({ shared, last }, note)));
  clearInterval(progress);
  clearTimeout(stop);
  process.stdout.write(`${lineOf(totals, startedAt)}\n`);
  for (const { seed, problems } of totals.failed) process.stdout.write(`FAILED seed ${seed}: ${problems[0] ?? ''}\n`);
  return totals.failed.length === 0 ? 0 : 1;
}

function runWorker(data: { shared: Shared; last: number }, note: (outcome: Outcome) => void): Promise<void> {
  const worker = new Worker(new URL(import.meta.url), { workerData: data });
  return new Promise((resolve, reject) => {
    worker.on('message', note);
    worker.on('error', reject);
    worker.on('exit', () => resolve());
  });
}

async function work({ shared, last }: { shared: Shared; last: number }): Promise<void> {
  while (Atomics.load(shared, 1) === 0n) {
    const seed = Number(Atomics.add(shared, 0, 1n));
    if (seed >= last) return;
    parentPort?.postMessage(await runSeed(seed));
  }
}

function lineOf({ runs, virtualMs, events, operations, failed }: Totals, startedAt: number): string {
  const seconds = (performance.now() - startedAt) / 1_000;
  const hours = virtualMs / 3_600_000;
  return (
    `${runs} runs, ${failed.length} failed; ${(runs / seconds).toFixed(1)} a second; ` +
    `${hours.toFixed(1)} virtual hours, ${operations} operations, ${events} events`
  );
}

function verdictOn({ seed, problems, virtualMs, events, operations, trace }: Outcome): string {
  const what = problems.length === 0 ? 'clean' : `FAILED\n  ${problems.join('\n  ')}`;
  const size = `${(virtualMs / 1_000).toFixed(1)} s, ${operations} operations, ${events} events, trace ${trace}`;
  return `seed ${seed} (${size}): ${what}`;
}

if (isMainThread) process.exitCode = await main();
else await work(workerData as { shared: Shared; last: number });
