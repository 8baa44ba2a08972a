import { mkdir, open, readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { asHoldfastError, HoldfastError, messageOf } from './base/errors.js';
import type { Log } from './base/log.js';
import { Mutex } from './base/mutex.js';
import { adminClient } from './cli/service-client.js';
import { killAllIn, startChild, stopChild, type Child } from './dev/child.js';
import { devIsAlive, serveControl, type ControlServer, type DevVerb } from './dev/control.js';
import { removeDescription, writeDescription, type DevDescription } from './dev/description.js';
import { DevNode, waitReady } from './dev/dev-node.js';
import {
  CONTROLLER_ADDRESS,
  devLayout,
  devNodeName,
  METRICS_SETTINGS,
  metricsUrl,
  MOST_DEV_NODES,
  nodeAddress,
  STORE_PORT,
  type DevLayout,
  type DevNodeLayout,
} from './dev/layout.js';
import { clearHeld } from './dev/leftovers.js';
import { connectNode, makeSwitch, namespacesOf, removeNamespace } from './dev/network.js';
import { requireMachine } from './doctor.js';
import type { VolumeRecord } from './model/records.js';

export interface DevOptions {
  /** Absolute. */
  readonly directory: string;
  /** Absent: as many as the directory has from an earlier run, else 3. */
  readonly nodes?: number | undefined;
  /** Size of new disks; those of an earlier run stay as they are. */
  readonly diskBytes: number;
  /** Node i lies in zone i modulo their number. */
  readonly zones: readonly string[];
  readonly logLevel: string;
  /** As the controller's setting; absent: its standard. */
  readonly rebuildGrace?: string | undefined;
  /** Aborted while the cluster is still starting: it is taken down again, and start fails with `cancelled`. */
  readonly signal: AbortSignal;
}

const STANDARD_NODES = 3;
const STOP_GRACE_MS = 10_000;
const KILL_TIMEOUT_MS = 20_000;
const RELEASE_TIMEOUT_MS = 20_000;

/** A whole cluster on this machine: one controller and some nodes, each a process in a network namespace of its own. */
export class DevCluster {
  readonly #nodes: DevNode[] = [];
  #controller: Child | undefined;
  #control: ControlServer | undefined;
  #ready = false;
  readonly #describing = new Mutex();

  private constructor(
    private readonly layout: DevLayout,
    private readonly log: Log,
  ) {}

  /**
   * Starts the cluster and resolves when all of it is ready and described in DIR/dev.json. What a killed dev left on
   * the directory is cleared first. If it can't be started, nothing of it stays.
   * `already-exists`: a live dev runs on the directory. `failed-precondition`: the machine lacks something.
   */
  static async start(options: DevOptions, log: Log): Promise<DevCluster> {
    const layout = devLayout(options.directory);
    await requireMachine();
    await mkdir(layout.logsDirectory, { recursive: true }).catch((error: unknown) => {
      const { directory } = options;
      throw new HoldfastError(
        'invalid-argument',
        `${directory} can not be the --dir of a dev cluster: ${messageOf(error)}`,
      );
    });
    if (await devIsAlive(layout)) {
      throw new HoldfastError(
        'already-exists',
        `a dev cluster runs on ${layout.directory} already; stop that one first, or give another --dir`,
      );
    }
    const cluster = new DevCluster(layout, log);
    try {
      await cluster.#start(options);
      return cluster;
    } catch (error) {
      await cluster.stop().catch((second: unknown) => log.error({ err: second }, 'clean-up failed'));
      throw error;
    }
  }

  /** Does something to one node; see DEV_VERBS. `not-found` where there is no such node. */
  async act(name: string, verb: DevVerb): Promise<void> {
    const node = this.#nodes.find((one) => one.name === name);
    if (node === undefined) {
      const known = this.#nodes.map((one) => one.name).join(', ');
      throw new HoldfastError('not-found', `there is no node ${name} here; there are ${known}`);
    }
    await node.act(verb);
    await this.#describe();
    this.log.info({ node: name, verb }, 'done');
  }

  /**
   * Takes down all that the cluster made outside of its directory, the upper layers first: pods' mounts, attachments,
   * plugins, device processes, disks, controller, network. The files stay, and with them the volumes.
   */
  async stop(): Promise<void> {
    this.#ready = false;
    await removeDescription(this.layout);
    const failures: unknown[] = [];
    const step = (action: Promise<void>): Promise<void> => action.catch((error: unknown) => void failures.push(error));
    await step(Promise.all(this.#nodes.map((node) => node.unmountPods())).then(() => undefined));
    await step(this.#releaseVolumes());
    await Promise.all(this.#nodes.map((node) => step(node.takeDown())));
    if (this.#controller?.running() === true) await step(stopChild(this.#controller, STOP_GRACE_MS));
    await step(clearLeftovers(this.layout, this.log));
    await step(this.#control?.stop() ?? Promise.resolve());
    if (failures.length > 0) throw asHoldfastError(failures[0]);
  }

  describe(): DevDescription {
    return {
      pid: process.pid,
      controllerSocket: this.layout.controllerSocket,
      controllerPid: this.#controller?.running() === true ? this.#controller.pid : 0,
      metrics: metricsUrl(CONTROLLER_ADDRESS),
      switchNamespace: this.layout.switchNamespace,
      nodes: this.#nodes.map((node) => node.describe()),
    };
  }

  async #start(options: DevOptions): Promise<void> {
    this.#control = await serveControl(this.layout, (name, verb) => this.act(name, verb));
    await removeDescription(this.layout);
    await clearLeftovers(this.layout, this.log);
    const names = await nodeNames(this.layout, options.nodes);
    await makeSwitch(this.layout);
    this.#controller = await this.#startController(options);
    for (const [index, name] of names.entries()) {
      const own = this.layout.node(name);
      const address = nodeAddress(index);
      await prepareNode(own, options.diskBytes);
      await connectNode(this.layout, own, address);
      const zone = options.zones[index % options.zones.length] ?? 'local';
      const lost = (): void => void this.#describe();
      const { logLevel, signal } = options;
      this.#nodes.push(new DevNode(this.layout, own, { address, zone, logLevel, signal, lost }, this.log));
    }
    await Promise.all(this.#nodes.map((node) => node.act('start')));
    await this.#allReady(names.length, options.signal);
    this.#ready = true;
    await this.#describe();
  }

  async #startController(options: DevOptions): Promise<Child> {
    const settings = {
      'csi-socket': this.layout.controllerSocket,
      'state-directory': this.layout.controllerState,
      'store-host': CONTROLLER_ADDRESS,
      'store-port': String(STORE_PORT),
      ...METRICS_SETTINGS,
      'log-level': options.logLevel,
      ...(options.rebuildGrace === undefined ? {} : { 'rebuild-grace': options.rebuildGrace }),
    };
    const args = ['controller', ...Object.entries(settings).flatMap(([flag, value]) => [`--${flag}`, value])];
    const controller = await startChild(this.layout.switchNamespace, args, this.layout.controllerLog);
    void controller.ended.then((how) => {
      if (!this.#ready) return;
      this.log.error({ how }, 'controller ended; stop this dev and start it again');
      void this.#describe();
    });
    return controller;
  }

  /** The controller must have seen every node's lease and disk, or the first volume finds no room. */
  async #allReady(count: number, signal: AbortSignal): Promise<void> {
    const controller = this.#controller;
    if (controller === undefined) return;
    const client = adminClient(this.layout.controllerSocket);
    try {
      await waitReady(controller, 'controller', signal, async () => {
        const { nodes } = await client.call('ListNodes', {}, 5_000);
        return nodes.filter((node) => node.ready && node.disk_json.length > 0).length >= count;
      });
    } finally {
      client.close();
    }
  }

  /** The writers are taken out of the records, so that after the next start any node may take a volume at once. */
  async #releaseVolumes(): Promise<void> {
    if (this.#controller?.running() !== true) return;
    const client = adminClient(this.layout.controllerSocket);
    try {
      const { volumes } = await client.call('ListVolumes', {}, RELEASE_TIMEOUT_MS);
      // A node without its plugin has nobody to end the attachment; its lease will do.
      const running = new Set(this.#nodes.filter((node) => node.describe().pid !== 0).map((node) => node.name));
      const records = volumes.map((volume) => JSON.parse(volume.record_json) as VolumeRecord);
      const attached = records.filter((record) => record.writer !== null && running.has(record.writer.node));
      await Promise.all(
        attached.map(({ id }) =>
          client
            .call('ReleaseVolume', { volume_id: id }, RELEASE_TIMEOUT_MS)
            .catch((error: unknown) => this.log.warn({ volume: id, reason: messageOf(error) }, 'not released')),
        ),
      );
    } finally {
      client.close();
    }
  }

  /** One at a time: nodes are acted on at once. */
  #describe(): Promise<void> {
    return this.#describing.run(async () => {
      if (this.#ready) await writeDescription(this.layout, this.describe());
    });
  }
}

/** Ends and removes all that any earlier run made on the directory, but its files. */
async function clearLeftovers(layout: DevLayout, log: Log): Promise<void> {
  const namespaces = await namespacesOf(layout);
  for (const name of namespaces) await killAllIn(name, KILL_TIMEOUT_MS);
  const rest = await clearHeld(layout.directory, log);
  for (const name of namespaces) await removeNamespace(name);
  const names = [...rest.mounts.map((mount) => mount.mountPoint), ...rest.loops];
  if (names.length > 0) {
    throw new HoldfastError('failed-precondition', `still in use, end what uses it: ${names.join(', ')}`);
  }
}

async function nodeNames(layout: DevLayout, wanted: number | undefined): Promise<string[]> {
  const existing = await readdir(layout.nodesDirectory).catch((): string[] => []);
  const count = wanted ?? (existing.length > 0 ? Math.min(existing.length, MOST_DEV_NODES) : STANDARD_NODES);
  return Array.from({ length: count }, (_, index) => devNodeName(index));
}

async function prepareNode(own: DevNodeLayout, diskBytes: number): Promise<void> {
  for (const directory of [dirname(own.disk), own.kubeletDirectory, own.stateDirectory, own.poolDirectory]) {
    await mkdir(directory, { recursive: true });
  }
  const disk = await open(own.disk, 'a');
  try {
    // A disk of an earlier run stays as it is; an empty file is one that was begun only.
    if ((await disk.stat()).size === 0) await disk.truncate(diskBytes);
  } finally {
    await disk.close();
  }
}
