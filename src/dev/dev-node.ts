import { stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError, messageOf } from '../base/errors.js';
import type { Log } from '../base/log.js';
import { readMountTable } from '../base/mount-table.js';
import { Mutex } from '../base/mutex.js';
import { run } from '../base/run.js';
import { identityClient } from '../cli/service-client.js';
import { TOPOLOGY_ZONE } from '../config.js';
import { endPodsIn, killAllIn, lastLogLine, startChild, stopChild, type Child } from './child.js';
import type { DevVerb } from './control.js';
import type { DevNodeDescription } from './description.js';
import {
  CONTROLLER_ADDRESS,
  METRICS_SETTINGS,
  metricsUrl,
  STORE_PORT,
  type DevLayout,
  type DevNodeLayout,
} from './layout.js';
import { clearHeld, isBelow, unmountBelow } from './leftovers.js';
import { setPlug } from './network.js';

const READY_TIMEOUT_MS = 60_000;
const READY_POLL_MS = 100;
const POD_GRACE_MS = 3_000;
const STOP_GRACE_MS = 15_000;
const KILL_TIMEOUT_MS = 20_000;
const DATA_THREADS = 2;
const SLAB = '64MiB';

export interface DevNodeOptions {
  readonly address: string;
  readonly zone: string;
  readonly logLevel: string;
  /** Aborted when the cluster is to end before it is ready. */
  readonly signal: AbortSignal;
  /** Called when the plugin has ended without having been told to. */
  readonly lost: () => void;
}

/** One node of a dev cluster: its plugin, its plug, and what the kernel holds for it. Actions run one by one. */
export class DevNode {
  readonly #mutex = new Mutex();
  #plugin: Child | undefined;
  #plugged = true;

  constructor(
    private readonly cluster: DevLayout,
    private readonly own: DevNodeLayout,
    private readonly options: DevNodeOptions,
    private readonly log: Log,
  ) {}

  get name(): string {
    return this.own.name;
  }

  act(verb: DevVerb): Promise<void> {
    const actions: Record<DevVerb, () => Promise<void>> = {
      start: () => this.#start(),
      stop: () => this.#stop(),
      kill: () => this.#cutPower(),
      cut: () => this.#plug(false),
      heal: () => this.#plug(true),
    };
    return this.#mutex.run(actions[verb]);
  }

  /** Ends what runs on the node beside Holdfast and unmounts what it used, so that their filesystems are flushed while the plugin still serves them. */
  unmountPods(): Promise<void> {
    return this.#mutex.run(async () => {
      await endPodsIn(this.own.namespace, POD_GRACE_MS);
      const busy = await unmountBelow(this.own.kubeletDirectory, this.log);
      for (const mount of busy) this.log.warn({ mountPoint: mount.mountPoint }, 'still in use');
    });
  }

  /** Ends all processes of the node in good order and clears what the kernel holds for it. */
  takeDown(): Promise<void> {
    return this.#mutex.run(async () => {
      await this.#stop();
      // The device process lives on without the plugin; it ends when its devices are gone, or here.
      await this.#clear();
    });
  }

  describe(): DevNodeDescription {
    return {
      name: this.own.name,
      csiSocket: this.own.csiSocket,
      kubeletDir: this.own.kubeletDirectory,
      networkNamespace: this.own.namespace,
      pid: this.#plugin?.running() === true ? this.#plugin.pid : 0,
      address: this.options.address,
      metrics: metricsUrl(this.options.address),
      zone: this.options.zone,
      stateDirectory: this.own.stateDirectory,
      disks: [this.own.disk],
      log: this.own.log,
    };
  }

  async #start(): Promise<void> {
    if (this.#plugin?.running() === true) return;
    const plugin = await startChild(this.own.namespace, this.#arguments(), this.own.log);
    this.#plugin = plugin;
    void plugin.ended.then((how) => {
      if (this.#plugin !== plugin) return;
      this.log.warn({ node: this.own.name, how }, 'node plugin ended');
      this.options.lost();
    });
    // A node whose plug is pulled can't reach the store and is not ready before it can.
    if (this.#plugged) await this.#ready(plugin);
  }

  async #stop(): Promise<void> {
    const plugin = this.#plugin;
    this.#plugin = undefined;
    if (plugin?.running() === true) await stopChild(plugin, STOP_GRACE_MS);
  }

  async #cutPower(): Promise<void> {
    this.#plugin = undefined;
    await killAllIn(this.own.namespace, KILL_TIMEOUT_MS);
    await this.#forgetUnwritten();
    await this.#clear();
  }

  async #plug(up: boolean): Promise<void> {
    await setPlug(this.cluster, this.own, up);
    this.#plugged = up;
  }

  /** A power cut takes what the disks' filesystems have not written yet; an unmount would write it. */
  async #forgetUnwritten(): Promise<void> {
    const table = await readMountTable();
    const disks = table.filter((entry) => entry.fsType === 'xfs' && isBelow(entry.mountPoint, this.own.poolDirectory));
    for (const { mountPoint } of disks) {
      const command = ['-x', '-c', 'shutdown', mountPoint];
      const { code, stderr } = await run('xfs_io', command, { timeoutMs: KILL_TIMEOUT_MS, okCodes: [0, 1] });
      // A filesystem whose device has failed shut itself down, and is not even opened.
      if (code === 0 || (await isShutDown(mountPoint))) continue;
      throw new HoldfastError('io-error', `xfs_io can't shut down ${mountPoint}: ${stderr.trim()}`);
    }
  }

  async #clear(): Promise<void> {
    await killAllIn(this.own.namespace, KILL_TIMEOUT_MS);
    const rest = await clearHeld(this.own.directory, this.log);
    const names = [...rest.mounts.map((mount) => mount.mountPoint), ...rest.loops];
    if (names.length > 0) throw new HoldfastError('failed-precondition', `still in use: ${names.join(', ')}`);
  }

  async #ready(plugin: Child): Promise<void> {
    const client = identityClient(this.own.csiSocket);
    try {
      await waitReady(plugin, `node ${this.own.name}`, this.options.signal, async () => {
        const { ready } = await client.call('Probe', {}, 5_000);
        return ready?.value ?? true;
      });
    } finally {
      client.close();
    }
  }

  #arguments(): string[] {
    const settings: Record<string, string> = {
      'node-name': this.own.name,
      'csi-socket': this.own.csiSocket,
      'state-directory': this.own.stateDirectory,
      'pool-directory': this.own.poolDirectory,
      disk: this.own.disk,
      host: this.options.address,
      'data-threads': String(DATA_THREADS),
      slab: SLAB,
      'store-address': `${CONTROLLER_ADDRESS}:${STORE_PORT}`,
      topology: `${TOPOLOGY_ZONE}=${this.options.zone}`,
      ...METRICS_SETTINGS,
      'log-level': this.options.logLevel,
    };
    return ['node', ...Object.entries(settings).flatMap(([flag, value]) => [`--${flag}`, value])];
  }
}

async function isShutDown(mountPoint: string): Promise<boolean> {
  const failure = await stat(mountPoint).catch((error: unknown) => error);
  return failure instanceof Error && 'code' in failure && failure.code === 'EIO';
}

/**
 * Asks until the answer is yes. `unavailable` where the child ends first; `deadline-exceeded` where it takes too long;
 * `cancelled` by the signal.
 */
export async function waitReady(
  child: Child,
  what: string,
  signal: AbortSignal,
  ask: () => Promise<boolean>,
): Promise<void> {
  const end = Date.now() + READY_TIMEOUT_MS;
  let reason = 'not ready';
  while (child.running()) {
    if (signal.aborted) throw new HoldfastError('cancelled', `stopped before ${what} was ready`);
    try {
      if (await ask()) return;
    } catch (error) {
      reason = messageOf(error);
    }
    if (Date.now() > end) {
      const told = `${what} is not ready after ${READY_TIMEOUT_MS / 1000} s: ${reason}; its log is ${child.log}`;
      throw new HoldfastError('deadline-exceeded', told);
    }
    await sleep(READY_POLL_MS);
  }
  const line = await lastLogLine(child.log);
  throw new HoldfastError('unavailable', `${what} ${await child.ended}: ${line} (log: ${child.log})`);
}
