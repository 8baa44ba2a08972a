// What two outages cost, on a dev cluster of three nodes and a volume with two replicas:
//
//   - the power of the writer's node is cut: the time until the volume takes writes on another node, in its parts;
//   - a replica's node is away for ten seconds under 1,000 writes a second: the bytes copied when it is back.
//
//   npm run build && node test/bench/outages.mjs [ROUNDS]
//
// Needs root and fio. The times are of this machine, the first of a round mostly the lease's; each line gives the median.
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';

const dist = new URL('../../dist/', import.meta.url);
const { Orchestrator } = await import(new URL('dev/orchestrator.js', dist).href);
const { controlNode } = await import(new URL('dev/control.js', dist).href);
const { devLayout } = await import(new URL('dev/layout.js', dist).href);
const run = promisify(execFile);

const MIB = 1024 * 1024;
const AWAY_S = 10;
const IOPS = 1_000;
const PARTS = ['record', 'fencing', 'tables', 'outwait'];
const FETCH = 'fetch(process.argv[1]).then((answer) => answer.text()).then((text) => process.stdout.write(text))';
const rounds = Number(process.argv[2] ?? 5);
const forever = new AbortController().signal;

const directory = await mkdtemp(join(tmpdir(), 'dev-'));
const dev = spawn(
  process.execPath,
  [new URL('main.js', dist).pathname, 'dev', '--dir', directory, '--disk-size', '20GiB'],
  {
    stdio: ['ignore', 'pipe', 'inherit'],
  },
);
const ended = new Promise((resolve) => dev.once('exit', resolve));
try {
  await untilReady();
  const description = JSON.parse(await readFile(join(directory, 'dev.json'), 'utf8'));
  const kubernetes = new Orchestrator(description);
  await failover(kubernetes);
  await absence(kubernetes);
  kubernetes.close();
} finally {
  dev.kill('SIGTERM');
  await ended;
  await rm(directory, { recursive: true, force: true });
}

async function untilReady() {
  let said = '';
  dev.stdout.setEncoding('utf8').on('data', (text) => (said += text));
  while (!said.includes('ready: ')) {
    if (dev.exitCode !== null) throw new Error(`holdfast dev ended: ${said}`);
    await sleep(50);
  }
}

/** Sums of the metrics of a node whose line begins so. */
async function metric(kubernetes, node, beginning) {
  const { networkNamespace, metrics } = kubernetes.node(node);
  const { stdout } = await run('nsenter', [
    `--net=/run/netns/${networkNamespace}`,
    process.execPath,
    '-e',
    FETCH,
    metrics,
  ]);
  const lines = stdout.split('\n').filter((line) => line.startsWith(beginning));
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

async function failover(kubernetes) {
  const volume = await kubernetes.createVolume({ name: 'failover', capacityBytes: 1024 * MIB, filesystem: 'ext4' });
  const nodes = (await kubernetes.view(volume)).replicas.map(({ node }) => node);
  const found = [];
  for (let round = 0; round < rounds; round++) {
    const [one, other] = round % 2 === 0 ? nodes : [...nodes].reverse();
    const path = await kubernetes.mountFor(one, volume, forever);
    await writeOnce(`${path}/before`);
    const before = await takeOverTimes(kubernetes, other);
    const began = performance.now();
    await controlNode(devLayout(directory), one, 'kill');
    const killed = performance.now();
    const again = await kubernetes.mountFor(other, volume, forever);
    const mounted = performance.now();
    await writeOnce(`${again}/after`);
    const wrote = performance.now();
    const after = await takeOverTimes(kubernetes, other);
    const parts = Object.fromEntries(PARTS.map((part) => [part, (after[part] - before[part]) * 1_000]));
    const takeOver = PARTS.reduce((sum, part) => sum + parts[part], 0);
    found.push({
      'the power goes (processes end, mounts go)': killed - began,
      'the lease of the dead node expires, the record names the new writer': parts.record,
      'the replicas that are there are fenced': parts.fencing,
      'their region tables are read': parts.tables,
      'older readers are waited out': parts.outwait,
      'device, journal, mount, calls and their pauses': mounted - killed - takeOver,
      'the first write with fsync': wrote - mounted,
      'in all, from the cut to the first write': wrote - began,
    });
    await controlNode(devLayout(directory), one, 'start');
    await kubernetes.untilInSync(volume, 2, forever);
    await kubernetes.unmountFor(other, volume);
  }
  process.stdout.write(`power cut of the writer's node, median of ${rounds}, ms\n`);
  for (const part of Object.keys(found[0])) {
    const times = found.map((one) => one[part]).sort((a, b) => a - b);
    process.stdout.write(`  ${part.padEnd(70)} ${times[Math.floor(times.length / 2)].toFixed(0).padStart(7)}\n`);
  }
  await kubernetes.deleteVolume(volume);
}

async function takeOverTimes(kubernetes, node) {
  const times = {};
  for (const part of PARTS) {
    times[part] = await metric(kubernetes, node, `holdfast_takeover_seconds_sum{part="${part}"`);
  }
  return times;
}

async function writeOnce(path) {
  const file = await open(path, 'w');
  await file.write(Buffer.alloc(4096, 1));
  await file.sync();
  await file.close();
}

async function absence(kubernetes) {
  const volume = await kubernetes.createVolume({ name: 'absence', capacityBytes: 4096 * MIB });
  const [writer, peer] = (await kubernetes.view(volume)).replicas.map(({ node }) => node);
  const device = await kubernetes.mountFor(writer, volume, forever);
  // Every block has data, so that nothing is skipped for being empty.
  await fio(device, ['--rw=write', '--bs=1M', '--iodepth=8']);
  const copied = () => metric(kubernetes, writer, 'holdfast_resync_copied_bytes_total');
  const before = await copied();
  const load = fio(device, [
    '--rw=randwrite',
    '--bs=4k',
    '--iodepth=16',
    `--rate_iops=${IOPS}`,
    '--time_based',
    '--runtime=40',
  ]);
  await sleep(5_000);
  await controlNode(devLayout(directory), peer, 'cut');
  await sleep(AWAY_S * 1_000);
  await controlNode(devLayout(directory), peer, 'heal');
  const healed = performance.now();
  await kubernetes.untilInSync(volume, 2, forever);
  const took = performance.now() - healed;
  await load;
  const bytes = (await copied()) - before;
  process.stdout.write(
    `a replica away for ${AWAY_S} s under ${IOPS} random writes of 4 KiB a second, on 4 GiB full of data\n` +
      `  written meanwhile ${((AWAY_S * IOPS * 4096) / MIB).toFixed(0)} MiB, copied ${(bytes / MIB).toFixed(0)} MiB; ` +
      `in sync ${(took / 1_000).toFixed(1)} s after it was back\n`,
  );
  await kubernetes.unmountFor(writer, volume);
  await kubernetes.deleteVolume(volume);
}

function fio(device, options) {
  return run('fio', ['--name=load', `--filename=${device}`, '--ioengine=libaio', '--direct=1', ...options]);
}
