import { volumeKey } from '../../src/model/ids.js';
import { checkHistory } from '../history/history.js';
import { Nemesis } from './nemesis.js';
import { Pod } from './pod.js';
import { Prng } from './prng.js';
import { checkEqual, checkNothingLeft, checkStamps, hasReplica } from './replicas-on-disk.js';
import { stillRotten } from './rot.js';
import { drawScenario, type Scenario } from './scenario.js';
import { takeMemoryBack } from './slab-memory.js';
import { SimCluster } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';
import type { Tell } from './sim-log.js';

/** All must be well so long after the last fault. */
const REST_LIMIT_MS = 240_000;
const STAMPS_EVERY_MS = 2_500;
/** What has happened in silence is noticed by then, through confirmations. */
const NOTICED_AFTER_MS = 3_000;
/** I/O must have gone on by half of it. */
const AWAY_MS = 40_000;
/** An operation that is older must be explained by the volume's condition. */
const NAMED_AFTER_MS = 25_000;
/** In so many looks in a row: its client may be about to connect. */
const UNNAMED_LOOKS = 4;

export interface Outcome {
  readonly seed: number;
  /** None: the run was clean. */
  readonly problems: readonly string[];
  readonly virtualMs: number;
  readonly events: number;
  readonly operations: number;
  /** The same for two runs that went the same way. */
  readonly trace: number;
}

/** Runs one seed from beginning to end. `tell`: whoever reads the story. */
export async function runSeed(seed: number, tell?: (line: string) => void): Promise<Outcome> {
  const scenario = drawScenario(seed);
  const story: Tell =
    tell && ((who, line) => tell(`${cluster.schedule.now.toFixed(2).padStart(10)} ${who.padEnd(10)} ${line}`));
  const cluster: SimCluster = new SimCluster(scenario, story);
  if (tell) tell(describe(scenario));
  const random = new Prng(seed ^ 0x10ad);
  const pods: Pod[] = [];
  const state = { ended: false };
  play(cluster, random, pods)
    .catch((error: unknown) => cluster.schedule.fail(error))
    .finally(() => (state.ended = true));
  // Stacks of errors that are expected cost more than what they are about.
  const { stackTraceLimit } = Error;
  if (!tell) Error.stackTraceLimit = 0;
  try {
    await cluster.schedule.run({
      untilMs: scenario.activeMs + 2 * REST_LIMIT_MS,
      done: () => state.ended || cluster.problems.length > 0,
    });
  } catch (error) {
    cluster.problem(`the run broke off: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  }
  Error.stackTraceLimit = stackTraceLimit;
  takeMemoryBack();
  if (!state.ended && cluster.problems.length === 0) cluster.problem('I7: the run did not come to its end');
  for (const pod of pods) {
    for (const { rule, text } of checkHistory(pod.history)) cluster.problem(`${rule}: ${text}`);
  }
  return {
    seed,
    problems: cluster.problems,
    virtualMs: cluster.schedule.now,
    events: cluster.schedule.events,
    operations: pods.reduce((count, pod) => count + pod.history.operations.length, 0),
    trace: cluster.schedule.trace,
  };
}

async function play(cluster: SimCluster, random: Prng, pods: Pod[]): Promise<void> {
  const { scenario } = cluster;
  await cluster.setUp();
  for (const [index, plan] of scenario.volumes.entries()) {
    const volume = cluster.volumes[index];
    if (volume === undefined) throw new Error('every plan has its volume');
    const pod = new Pod(cluster, volume, plan, random.fork());
    pods.push(pod);
    void pod.run().catch((error: unknown) => cluster.schedule.fail(error));
  }
  void watch(cluster, pods);
  const nemesis = new Nemesis(cluster, random.fork());
  void nemesis.run().catch((error: unknown) => cluster.schedule.fail(error));
  await cluster.sleep(scenario.activeMs);
  nemesis.stop();
  if (scenario.restsUnattached) {
    for (const pod of pods) pod.retire();
    await comeToRest(cluster, pods);
  }
  for (const pod of pods) pod.settle();
  await comeToRest(cluster, pods);
  if (scenario.losesPeer) await losePeer(cluster, pods);
  for (const pod of pods) pod.end();
  for (const pod of pods) await finish(cluster, pod);
  checkStamps(cluster);
  await tidyUp(cluster);
}

/** What must hold at any time. */
async function watch(cluster: SimCluster, pods: readonly Pod[]): Promise<void> {
  const unnamed = new Map<Pod, number>();
  for (;;) {
    await cluster.sleep(STAMPS_EVERY_MS);
    checkStamps(cluster);
    for (const pod of pods) {
      const looks = isUnnamed(pod) ? (unnamed.get(pod) ?? 0) + 1 : 0;
      unnamed.set(pod, looks);
      if (looks < UNNAMED_LOOKS) continue;
      cluster.problem(
        `I7: an operation is ${Math.round(pod.client?.oldestMs ?? 0)} ms old; the condition does not say why`,
      );
    }
  }
}

/** I7: every operation ends or is waiting for something named in the volume's condition. */
function isUnnamed({ client, node, volume }: Pod): boolean {
  if (!client || !node || client.oldestMs < NAMED_AFTER_MS || !client.device.process.alive) return false;
  const { plugin } = node;
  if (!plugin.process.alive || plugin.process.paused || !plugin.ready) return false;
  const status = plugin.path.status(volume);
  return status?.state === 'serving' && status.waitsFor.length === 0;
}

/** I7: after the faults have ended all is well within a stated time, without a hand. */
async function comeToRest(cluster: SimCluster, pods: readonly Pod[]): Promise<void> {
  const deadline = cluster.schedule.now + REST_LIMIT_MS;
  let wellSince = Infinity;
  for (;;) {
    const unwell = pods
      .map((pod) => whatIsUnwell(cluster, pod) ?? whatIsUnwellHere(cluster, pod))
      .find((reason) => reason !== undefined);
    if (unwell !== undefined) wellSince = Infinity;
    else wellSince = Math.min(wellSince, cluster.schedule.now);
    if (cluster.schedule.now - wellSince >= NOTICED_AFTER_MS) return;
    if (unwell !== undefined && cluster.schedule.now > deadline) {
      cluster.problem(`I7: ${REST_LIMIT_MS} ms after the last fault ${unwell}`);
      return;
    }
    await cluster.sleep(500);
  }
}

/** I7: I/O goes on without a node that has no writer, where that leaves replicas enough. */
async function losePeer(cluster: SimCluster, pods: readonly Pod[]): Promise<void> {
  const isSpare = (node: SimNode): boolean =>
    pods.every(({ node: at, volume, plan }) => {
      const inSync = cluster.store.volume(volumeKey(volume))?.replicas.filter((replica) => replica.inSync) ?? [];
      return node !== at && inSync.filter((replica) => replica.node !== node.name).length >= plan.minInSync;
    });
  const spare = [...cluster.nodes.values()].find((node) => hasReplica(node, pods[0]?.volume ?? '') && isSpare(node));
  if (!spare) return;
  cluster.tell?.('run', `${spare.name} goes, and is away for long`);
  spare.crash();
  await cluster.sleep(AWAY_MS);
  for (const { client, plan } of pods) {
    const oldestMs = client?.oldestMs ?? 0;
    if (oldestMs < AWAY_MS / 2) continue;
    cluster.problem(`I7: an operation on ${plan.name} is ${Math.round(oldestMs)} ms old, for ${spare.name} is away`);
  }
  spare.start();
  await comeToRest(cluster, pods);
}

/** Of the volume, whoever uses it. */
function whatIsUnwell(cluster: SimCluster, { plan, volume }: Pod): string | undefined {
  const record = cluster.store.volume(volumeKey(volume));
  if (!record) return `${plan.name} has no record`;
  const away = record.replicas.filter((replica) => !replica.inSync).map((replica) => replica.node);
  if (away.length > 0) return `replicas of ${plan.name} are not in sync: ${away.join(', ')}`;
  const rotten = stillRotten(cluster).find((place) => place.volume === volume);
  if (rotten) return `block ${rotten.block} of ${plan.name} is rotten on ${rotten.node.name}`;
  const { replicas } = record.parameters;
  if (record.replicas.length !== replicas)
    return `${plan.name} has ${record.replicas.length} replicas, not ${replicas}`;
  for (const node of cluster.nodes.values()) {
    const named = record.replicas.some((replica) => replica.node === node.name);
    if (!named && hasReplica(node, volume)) return `${node.name} still has a replica of ${plan.name}`;
  }
  return undefined;
}

/** Of its attachment; of one that is to be gone, that it is. */
function whatIsUnwellHere(cluster: SimCluster, pod: Pod): string | undefined {
  const { plan, volume, node, serving, client } = pod;
  if (pod.retired) {
    const writer = cluster.store.volume(volumeKey(volume))?.writer;
    return writer ? `${writer.node} is still the writer of ${plan.name}` : undefined;
  }
  const starting = [...cluster.nodes.values()].find(({ plugin }) => !plugin.ready);
  if (starting) return `${starting.name} is not ready`;
  if (pod.moving || !serving || !node || !client) return `${plan.name} is not attached`;
  if (client.oldestMs > 5_000) return `an operation on ${plan.name} is ${Math.round(client.oldestMs)} ms old`;
  const status = node.plugin.path.status(volume);
  if (status?.state !== 'serving') return `the attachment of ${plan.name} is ${status?.state ?? 'not there'}`;
  if (status.waitsFor.length > 0) return `${plan.name} waits for ${status.waitsFor.join('; ')}`;
  if (status.regionsToReconcile > 0) return `${plan.name} is not reconciled`;
  for (const other of cluster.nodes.values()) {
    if (other !== node && other.devices.has(volume)) return `${other.name} still has a device of ${plan.name}`;
  }
  return undefined;
}

/** For a volume whose attachment has ended before its last word. */
async function placeForTheEnd(cluster: SimCluster, pod: Pod): Promise<void> {
  await pod.placeAgain();
  await comeToRest(cluster, [pod]);
  await finish(cluster, pod);
}

/** The last word of a volume: all of it is read and judged, its replicas are compared, and it is let go. */
async function finish(cluster: SimCluster, pod: Pod): Promise<void> {
  const { client, volume, plan } = pod;
  if (!client) return;
  await client.stop();
  await client.readAll();
  if (client.ended) {
    // It had ended without anybody's notice, as one may that has no I/O.
    await placeForTheEnd(cluster, pod);
    return;
  }
  checkEqual(cluster, volume);
  const served = cluster.store.volume(volumeKey(volume))?.writer?.node === pod.node?.name;
  await cluster.within(60_000, pod.leave());
  if (!served) {
    // A take-over that was given up had put it out of the record, and no replica had learnt of that.
    await placeForTheEnd(cluster, pod);
    return;
  }
  checkEqual(cluster, volume);
  const record = cluster.store.volume(volumeKey(volume));
  if (record?.writer !== null || !record.quiet) cluster.problem(`${plan.name} was not released in order`);
}

/** Nothing is kept that nobody needs: memory, connections, files. */
async function tidyUp(cluster: SimCluster): Promise<void> {
  // It would make anew what is taken away.
  cluster.controller.kill();
  for (const node of cluster.nodes.values()) {
    const usedBytes = (): number => node.plugin.slabs.reduce((bytes, slab) => bytes + slab.usedBytes, 0);
    // A scrub may be at work.
    for (let tries = 0; tries < 50 && usedBytes() > 0; tries++) await cluster.sleep(100);
    const used = usedBytes();
    if (used > 0) cluster.problem(`space: ${used} bytes of I/O memory on ${node.name} were not given back`);
    for (const volume of cluster.volumes) await node.plugin.path.removeReplica(volume, 'deleted');
  }
  checkNothingLeft(cluster);
  for (const node of cluster.nodes.values()) await node.plugin.stop();
  await cluster.sleep(2_000);
  if (cluster.network.connections() > 0) {
    cluster.problem(`space: ${cluster.network.connections()} connections are left after all have stopped`);
  }
}

function describe({ seed, nodes, volumes, layout, timing, activeMs, faults, faultEveryMs, drift }: Scenario): string {
  const lines = [
    `seed ${seed}: nodes ${nodes.join(' ')}; ${Math.round(activeMs)} ms; faults ${faults.join(' ')} every ${faultEveryMs} ms; clocks ±${drift}`,
    `regions of ${layout.regionBytes}, slices of ${layout.sliceBytes}, compared by ${layout.compareBytes} bytes; closed after ${timing.idleCloseMs} ms or ${timing.maxOpenRegions} open`,
    ...volumes.map((volume) => JSON.stringify(volume)),
  ];
  return lines.join('\n');
}
