// What checksums cost: the same work on a replica with and without them, in turns, so that both meet the same machine.
//
//   npm run build && node test/bench/checksums.mjs [DIRECTORY [ROUNDS [WHAT]]]
//
// DIRECTORY (default: a new one in the system's temporary directory) needs 6 GiB. HOLDFAST_DIST names another build;
// WHAT is a part of the names of what is measured.
// For each kind of work: the time for one operation without checksums, and as ratios of it, the median over the rounds
// of time and of CPU time (all threads of the process).
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const dist = process.env.HOLDFAST_DIST ?? new URL('../../dist', import.meta.url).pathname;
const load = (path) => import(pathToFileURL(join(dist, path)));
const { createNodeIo } = await load('io/node-io.js');
const { silentLog } = await load('base/log.js');
const { LAYOUT } = await load('model/layout.js');
const { Replica } = await load('replica/replica.js');
const { RowCache } = await load('replica/row-cache.js');

const KIB = 1024;
const MIB = 1024 * KIB;
const REGIONS = 512;
const REGION = LAYOUT.regionBytes;
const CAPACITY = REGIONS * REGION;
const rounds = Number(process.argv[3] ?? 15);
const only = process.argv[4] ?? '';
const base = await mkdtemp(join(process.argv[2] ?? tmpdir(), 'holdfast-bench-'));
const io = createNodeIo();
const slab = io.slab(64 * MIB);
let stamp = 1;

async function open(name, rows) {
  const directory = join(base, name);
  await Replica.create(io, LAYOUT, directory, { volume: name, capacityBytes: CAPACITY, incarnation: 'bench' }).catch(
    () => undefined,
  );
  return Replica.open(io, silentLog(), LAYOUT, directory, 'bench', { rows });
}

/** Runs `count` operations, `depth` at once. */
async function run(count, depth, operation) {
  let next = 0;
  const worker = async () => {
    while (next < count) await operation(next++);
  };
  const cpu = process.cpuUsage();
  const began = performance.now();
  await Promise.all(Array.from({ length: depth }, worker));
  const ms = performance.now() - began;
  const used = process.cpuUsage(cpu);
  return { us: (ms * 1_000) / count, cpuUs: (used.user + used.system) / count };
}

const place = (unit) => Math.floor(Math.random() * (CAPACITY / unit)) * unit;

async function write(replica, offset, length) {
  const lease = await slab.take(length);
  await replica.write(offset, lease, false);
  lease.release();
}

async function read(replica, offset, length) {
  (await replica.read(offset, length, slab)).release();
}

async function openAll(replica) {
  for (let region = 0; region < REGIONS; region++) await write(replica, region * REGION, 4 * KIB);
}

async function closeAll(replica) {
  await replica.flush();
  stamp++;
  const named = Array.from({ length: REGIONS }, (_, region) => ({ region, stamp }));
  return run(1, 1, () => replica.closeRegions(named));
}

const random = (operation, depth, count) => (replica) =>
  run(count, depth, () => operation(replica, place(4 * KIB), 4 * KIB));
const sequential = (operation, count) => (replica) => {
  const start = place(MIB);
  return run(count, 1, (index) => operation(replica, (start + index * MIB) % CAPACITY, MIB));
};

/** [what, the work, what comes before each round of it] */
const WORK = [
  ['random read 4 KiB, depth 1', random(read, 1, 400)],
  ['random read 4 KiB, depth 32', random(read, 32, 3_000)],
  ['random write 4 KiB, depth 1', random(write, 1, 400), openAll],
  ['random write 4 KiB, depth 32', random(write, 32, 3_000), openAll],
  ['sequential read 1 MiB', sequential(read, 60)],
  ['sequential write 1 MiB', sequential(write, 60), openAll],
  ['close of 512 regions', closeAll, openAll],
];

const median = (list) => [...list].sort((one, other) => one - other)[Math.floor(list.length / 2)];
const ratio = (list, key) => median(list.map(({ on, off }) => on[key] / off[key])).toFixed(2);

async function measure(what, work, before, on, off) {
  const pairs = [];
  for (let round = 0; round <= rounds; round++) {
    const result = {};
    // Who comes first takes turns.
    for (const [name, replica] of round % 2
      ? [
          ['on', on],
          ['off', off],
        ]
      : [
          ['off', off],
          ['on', on],
        ]) {
      await before?.(replica);
      result[name] = await work(replica);
    }
    if (round > 0) pairs.push(result);
  }
  const time = `${median(pairs.map(({ off: { us } }) => us)).toFixed(0)} us`.padStart(10);
  console.log(`${what.padEnd(44)}${time}   time x ${ratio(pairs, 'us')}   cpu x ${ratio(pairs, 'cpuUs')}`);
}

try {
  const off = await open('off', 'off');
  let on = await open('on', new RowCache(io, LAYOUT));
  for (const replica of [off, on]) {
    for (let at = 0; at < CAPACITY; at += MIB) await write(replica, at, MIB);
    await closeAll(replica);
  }
  const wanted = WORK.filter(([what]) => what.includes(only));
  for (const [what, work, before] of wanted) await measure(what, work, before, on, off);
  await closeAll(on);
  await on.close();
  // Hardly any read finds its row in memory.
  on = await open('on', new RowCache(io, LAYOUT, 8));
  const missing = wanted.filter(([what]) => what.startsWith('random'));
  for (const [what, work, before] of missing) await measure(`${what}, rows missing`, work, before, on, off);
  await on.close();
  await off.close();
} finally {
  await rm(base, { recursive: true, force: true });
}
