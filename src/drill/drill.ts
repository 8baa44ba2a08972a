import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { DevDescription } from '../dev/description.js';
import type { DevLayout } from '../dev/layout.js';
import { Orchestrator, pause, type ProvisionedVolume } from '../dev/orchestrator.js';
import { formatBytes } from '../cli/table.js';
import { faultOf } from './faults.js';
import { checkVolume, Load } from './load.js';
import { describeFault, type DrillPlan } from './plan.js';
import { BLOCK_BYTES } from './stamp.js';
import type { DrillFacts, NodeCheck } from './verdict.js';
import { Watch } from './watch.js';

const VOLUME_BYTES = 128 * 1024 ** 2;
/** Each load has an area of its own, so that what two of them wrote is never confused. */
const AREA_BLOCKS = VOLUME_BYTES / BLOCK_BYTES / 2;
const WRITERS = 4;
const WRITES_PER_SECOND = 1_000;
const WARM_UP_WRITES = 1_000;
const WARM_UP_MS = 30_000;
/** After the fault: for the move to come to its end, for errors to be told, for the volume to be healthy. */
const SETTLE_MS = 120_000;
const MORE_LOAD_MS = 1_000;
const CLEAN_UP_MS = 45_000;

export interface DrillSurroundings {
  readonly layout: DevLayout;
  readonly cluster: DevDescription;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
}

/**
 * Makes a real fault in a running dev cluster while a load writes to a volume of its own, ends the fault, and holds what
 * is there against what was acknowledged. However it ends, the fault is over and nothing of it stays.
 * `cancelled` by the signal; `already-exists`: there is a volume of that name; `failed-precondition`: the
 * cluster is not as the drill needs it, or something could not be cleared up, which is named.
 */
export async function runDrill(plan: DrillPlan, surroundings: DrillSurroundings): Promise<DrillFacts> {
  const drill = new Drill(plan, surroundings);
  const outcome = await drill.play().then(
    (facts) => ({ facts }),
    (error: unknown) => ({ error }),
  );
  const left = await drill.cleanUp();
  if (left.length > 0) {
    const before = 'error' in outcome ? `${messageOf(outcome.error)}; then ` : '';
    throw new HoldfastError('failed-precondition', `${before}the drill could not clear up: ${left.join('; ')}`);
  }
  if ('error' in outcome) throw outcome.error;
  return outcome.facts;
}

class Drill {
  readonly #kubernetes: Orchestrator;
  readonly #drill = randomInt(1, 2 ** 32);
  /** Where the volume is, or may be, mounted; in the order of mounting. */
  readonly #mounted = new Set<string>();
  readonly #loads: Load[] = [];
  readonly #ledgers: string[] = [];
  #volume: ProvisionedVolume | undefined;
  #watch: Watch | undefined;
  #endFault: (() => Promise<void>) | undefined;
  /** To the node that the volume moves to, if it moves. */
  #moved: Promise<Load | undefined> = Promise.resolve(undefined);
  /** What could not be cleared up, and why. */
  readonly #left: string[] = [];
  readonly #over = new AbortController();
  /** Aborts when the drill is to end, or has. */
  readonly #signal: AbortSignal;

  constructor(
    private readonly plan: DrillPlan,
    private readonly surroundings: DrillSurroundings,
  ) {
    this.#kubernetes = new Orchestrator(surroundings.cluster);
    this.#signal = AbortSignal.any([surroundings.signal, this.#over.signal]);
  }

  async play(): Promise<DrillFacts> {
    const { plan } = this;
    const { say } = this.surroundings;
    const volume = await this.#createVolume();
    const sites = await this.#replicaNodes(volume);
    const first = await this.#startLoad(plan.user, volume);
    await this.#warmUp(first);

    const watch = (this.#watch = new Watch(this.#kubernetes, volume, say));
    watch.add(first);
    watch.start();
    await this.#beginFault(volume, sites);
    await pause(plan.seconds * 1_000, this.#signal);
    const endedAt = Date.now();
    say(describeFault(plan.fault).ends);
    await this.#endFaultNow();

    const second = await this.#moved;
    if (second) await this.#leave(first, volume);
    const current = second ?? first;
    const healthyAfterMs = await this.#untilHealthy(watch, current, endedAt, sites.length);
    if (healthyAfterMs !== undefined) await pause(MORE_LOAD_MS, this.#signal);
    await watch.stop();
    this.#ledgers.push(await current.stop());
    const checks = await this.#check(volume, current.node, sites, healthyAfterMs !== undefined);
    return {
      checks,
      healthyAfterMs,
      acknowledged: this.#loads.reduce((sum, load) => sum + load.state.acknowledged, 0),
      longestPauseMs: longestPause(this.#loads),
      unexcusedErrors: this.#loads.flatMap((load) => this.#unexcused(load, second)),
    };
  }

  /** Ends the fault and takes away all that the drill made; resolves to what could not be, and why. */
  async cleanUp(): Promise<readonly string[]> {
    this.#over.abort();
    await this.#attempt('the fault', () => this.#endFaultNow());
    await this.#watch?.stop();
    for (const load of this.#loads) await load.kill(CLEAN_UP_MS);
    const volume = this.#volume;
    if (volume !== undefined) {
      const unmount = (node: string): Promise<void> =>
        this.#attempt(`node ${node}`, () => this.#kubernetes.unmountFor(node, volume));
      const [first, ...others] = this.#mounted;
      if (first !== undefined) await unmount(first);
      // A call that is under way may still mount the volume elsewhere, now that it is free.
      await this.#moved.catch(() => undefined);
      for (const node of others) await unmount(node);
      await this.#attempt(`volume ${volume.name}`, () => this.#kubernetes.deleteVolume(volume));
    }
    this.#kubernetes.close();
    return this.#left;
  }

  async #createVolume(): Promise<ProvisionedVolume> {
    const { volumeName: name, user, replicas } = this.plan;
    if (await this.#kubernetes.has(name)) {
      throw new HoldfastError(
        'already-exists',
        `there is a volume ${name} already; a drill makes one of its own and touches no other: give another --volume`,
      );
    }
    const parameters = { replicas: String(replicas) };
    const volume = await this.#kubernetes.createVolume({ name, capacityBytes: VOLUME_BYTES, parameters, near: user });
    this.#volume = volume;
    return volume;
  }

  /** `failed-precondition` where the fault would not touch the volume. */
  async #replicaNodes(volume: ProvisionedVolume): Promise<string[]> {
    const { touched, user } = this.plan;
    const nodes = (await this.#kubernetes.view(volume)).replicas.map((replica) => replica.node);
    this.surroundings.say(
      `volume ${volume.name}: ${formatBytes(volume.capacityBytes)}, replicas on ${nodes.join(', ')}, used on ${user}`,
    );
    const spared = touched.filter((node) => !nodes.includes(node) && node !== user);
    if (spared.length > 0) {
      throw new HoldfastError(
        'failed-precondition',
        `the volume got no replica on node ${spared.join(', ')}, so the fault would show nothing; name other nodes`,
      );
    }
    return nodes;
  }

  /** Stages and publishes as a kubelet does, and lets a pod write. */
  async #startLoad(node: string, volume: ProvisionedVolume): Promise<Load> {
    this.#mounted.add(node);
    const path = await this.#kubernetes.mountFor(node, volume, this.#signal);
    if (this.#signal.aborted) throw new HoldfastError('cancelled', 'given up');
    const load = new Load(node, this.#namespaceOf(node), {
      kind: 'write',
      path,
      drill: this.#drill,
      first: this.#loads.length * AREA_BLOCKS,
      blocks: AREA_BLOCKS,
      writers: WRITERS,
      writesPerSecond: WRITES_PER_SECOND,
    });
    this.#loads.push(load);
    return load;
  }

  async #warmUp(load: Load): Promise<void> {
    const end = Date.now() + WARM_UP_MS;
    while (load.state.acknowledged < WARM_UP_WRITES) {
      if (load.error !== undefined) throw new HoldfastError('io-error', `no load: ${load.error.message}`);
      if (Date.now() > end) throw new HoldfastError('deadline-exceeded', 'the load gets no answers');
      await pause(50, this.#signal);
    }
    this.surroundings.say(`the load runs on node ${load.node}: ${WRITES_PER_SECOND} writes a second at most`);
  }

  /** Resolves when the fault has begun, and the volume has begun to move. */
  async #beginFault(volume: ProvisionedVolume, sites: readonly string[]): Promise<void> {
    const { plan } = this;
    const { layout, cluster, say } = this.surroundings;
    const fault = faultOf(layout, cluster.nodes, plan.fault);
    this.#endFault = () => fault.end();
    say(describeFault(plan.fault).begins);
    await fault.begin();
    const other = sites.find((node) => node !== plan.user);
    if (!plan.moves || other === undefined) return;
    say(`the pod moves to node ${other}: staged there, as its kubelet would`);
    this.#moved = this.#move(other, volume);
    // Its failure is met where it is waited for, if the drill gets there.
    this.#moved.catch(() => undefined);
  }

  async #move(node: string, volume: ProvisionedVolume): Promise<Load> {
    const load = await this.#startLoad(node, volume);
    this.surroundings.say(`the volume is mounted on node ${node}, and the load writes there`);
    this.#watch?.add(load);
    return load;
  }

  /** The load of the node that lost the volume gets errors; its pod is cleared up there. */
  async #leave(load: Load, volume: ProvisionedVolume): Promise<void> {
    const end = Date.now() + SETTLE_MS;
    while (load.error === undefined) {
      if (Date.now() > end) {
        throw new HoldfastError('deadline-exceeded', `I/O on node ${load.node} neither ends nor fails`);
      }
      await pause(50, this.#signal);
    }
    this.#ledgers.push(await load.stop());
    await this.#unmount(load.node, volume);
  }

  /** How long after the end of the fault; undefined: not in time. */
  async #untilHealthy(watch: Watch, load: Load, endedAt: number, replicas: number): Promise<number | undefined> {
    while (Date.now() < endedAt + SETTLE_MS) {
      const sight = watch.sightSince(endedAt);
      const flows = load.state.lastAt >= endedAt && Date.now() - load.state.lastAt < 1_000;
      if (sight?.health === 'healthy' && sight.inSync.length >= replicas && flows) {
        const afterMs = Date.now() - endedAt;
        this.surroundings.say(`all ${replicas} replicas are in sync, and I/O flows`);
        return afterMs;
      }
      if (load.error !== undefined) return undefined;
      await pause(50, this.#signal);
    }
    return undefined;
  }

  /** Reads everything where it is used now and, where all are in sync, on each other replica's node in turn. */
  async #check(volume: ProvisionedVolume, at: string, sites: readonly string[], all: boolean): Promise<NodeCheck[]> {
    const others = all ? sites.filter((node) => node !== at) : [];
    const checks: NodeCheck[] = [];
    let before: string | undefined;
    for (const node of [at, ...others]) {
      if (before !== undefined) {
        await this.#unmount(before, volume);
        this.#mounted.add(node);
        await this.#kubernetes.mountFor(node, volume, this.#signal);
      }
      before = node;
      const path = this.#kubernetes.targetPath(node, volume);
      const order = { kind: 'read', path, drill: this.#drill, ledgers: this.#ledgers } as const;
      const { blocks, lost, damaged, examples } = await checkVolume(this.#namespaceOf(node), order);
      this.surroundings.say(`read back on node ${node}: ${blocks} blocks, ${lost} lost, ${damaged} damaged`);
      checks.push({ node, blocks, lost, damaged, examples });
    }
    return checks;
  }

  /** An error is excused where the volume was taken over from the load's node. */
  #unexcused(load: Load, second: Load | undefined): string[] {
    if (load.error === undefined || (second !== undefined && load !== second)) return [];
    return [`I/O on node ${load.node} failed: ${load.error.message}`];
  }

  async #unmount(node: string, volume: ProvisionedVolume): Promise<void> {
    await this.#attempt(`node ${node}`, () => this.#kubernetes.unmountFor(node, volume));
    this.#mounted.delete(node);
  }

  async #endFaultNow(): Promise<void> {
    await this.#endFault?.();
    this.#endFault = undefined;
  }

  /** Again and again for a while: a plugin that was just started may not answer yet. */
  async #attempt(what: string, action: () => Promise<void>): Promise<void> {
    for (const end = Date.now() + CLEAN_UP_MS; ;) {
      try {
        await action();
        return;
      } catch (error) {
        if (Date.now() > end) {
          this.#left.push(`${what}: ${messageOf(error)}`);
          return;
        }
      }
      await sleep(500);
    }
  }

  #namespaceOf(node: string): string {
    return this.#kubernetes.node(node).networkNamespace;
  }
}

/** The longest time without an answer: of one load, or from the last answer of one to the first of the next. */
export function longestPause(loads: readonly Pick<Load, 'state'>[]): number {
  const [first, second] = loads;
  const own = loads.map(({ state }) => state.longestPauseMs);
  const between = first && second && second.state.firstAt > 0 ? second.state.firstAt - first.state.lastAt : 0;
  return Math.max(0, between, ...own);
}
