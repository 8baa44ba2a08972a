import { volumeKey } from '../../src/model/ids.js';
import { findRottable, rot } from './rot.js';
import type { DiskImage } from './sim-disk.js';
import type { Prng } from './prng.js';
import type { FaultKind } from './scenario.js';
import type { SimCluster } from './sim-cluster.js';
import type { SimNode } from './sim-node.js';
import { CONTROLLER_HOST } from './sim-controller.js';
import { STORE_HOST } from './sim-store.js';

/** How long a writer is away at most, where nobody takes its volume over. */
const LONGEST_LOSS_MS = 40_000;
const LOOK_MS = 200;

/** What one fault does; it plans its own end, where it has one. */
type Fault = (nemesis: Nemesis) => void;

/** Befalls a cluster with faults until it is told to stop; then all is made whole. */
export class Nemesis {
  #stopped = false;
  readonly #images = new Map<string, DiskImage>();

  constructor(
    readonly cluster: SimCluster,
    readonly random: Prng,
  ) {}

  async run(): Promise<void> {
    const { faults, faultEveryMs } = this.cluster.scenario;
    for (;;) {
      await this.cluster.sleep(-Math.log(1 - this.random.fraction()) * faultEveryMs);
      if (this.#stopped) return;
      const kind = this.random.pick(faults);
      FAULTS[kind](this);
    }
  }

  stop(): void {
    this.#stopped = true;
    const { network, store, nodes } = this.cluster;
    network.healAll();
    for (const one of this.places) for (const other of this.places) if (one !== other) network.slow(one, other, 0);
    store.down = false;
    store.lossy = 0;
    this.cluster.controller.start();
    for (const node of nodes.values()) {
      this.#healDisk(node);
      node.plugin.process.resume();
      node.start();
    }
    this.say('all faults end');
  }

  /** Of nodes, and of the store. */
  get places(): string[] {
    return [...this.cluster.nodes.keys(), STORE_HOST, CONTROLLER_HOST];
  }

  say(line: string): void {
    this.cluster.tell?.('NEMESIS', line);
  }

  /** Mostly a node that matters: one with a writer or a replica. */
  node(): SimNode {
    const writers = [...this.cluster.nodes.values()].filter((node) => node.devices.size > 0);
    if (writers.length > 0 && this.random.chance(0.4)) return this.random.pick(writers);
    const plan = this.random.pick(this.cluster.scenario.volumes);
    return this.cluster.node(this.random.pick(plan.replicas));
  }

  pair(): [string, string] {
    const [one = '', other = ''] = this.random.shuffled([...this.cluster.nodes.keys()]);
    return [one, other];
  }

  /** Mostly a writer's node and one of its replicas. */
  talkers(): [string, string] {
    const { random, cluster } = this;
    const volume = random.pick(cluster.volumes);
    const { writer, replicas = [] } = cluster.store.volume(volumeKey(volume)) ?? {};
    const peers = replicas.map(({ node }) => node).filter((node) => node !== writer?.node);
    return writer && peers.length > 0 && random.chance(0.8) ? [writer.node, random.pick(peers)] : this.pair();
  }

  /** A time that is now short, now longer than the rules' own. */
  span(): number {
    return this.random.between(10, this.random.pick(this.cluster.scenario.spansMs));
  }

  later(ms: number, act: () => void): void {
    this.cluster.schedule.after(ms, () => {
      if (!this.#stopped) act();
    });
  }

  takeImage(node: SimNode): void {
    if (!this.#images.has(node.name)) this.#images.set(node.name, node.machine.disk.snapshot());
  }

  forgetImage(node: SimNode): void {
    this.#images.delete(node.name);
  }

  imageOf(node: SimNode): DiskImage | undefined {
    return this.#images.get(node.name);
  }

  /** SIGSTOP of its plugin. What is returned ends it. */
  pause(node: SimNode): () => void {
    const { process } = node.plugin;
    this.say(`SIGSTOP on ${node.name}`);
    process.pause();
    return () => {
      this.say(`SIGCONT on ${node.name}`);
      process.resume();
    };
  }

  /** Off the store, and off none, some or all of the others. What is returned ends it. */
  cutOff({ name }: SimNode): () => void {
    const { network } = this.cluster;
    const share = this.random.pick([0, 0.5, 1]);
    const others = this.places.filter((place) => place !== name && (place === STORE_HOST || this.random.chance(share)));
    this.say(`${name} is cut off from ${others.join(', ')}`);
    for (const other of others) {
      network.cut(name, other);
      network.cut(other, name);
    }
    return () => {
      this.say(`${name} is no longer cut off`);
      for (const other of others) {
        network.heal(name, other);
        network.heal(other, name);
      }
    };
  }

  /** The record, and this or a stronger reason, let the node's disk be lost: others hold all. */
  isSpare(node: SimNode): boolean {
    return this.cluster.volumes.every((volume) => {
      const record = this.cluster.store.volume(volumeKey(volume));
      return record?.replicas.every((replica) => replica.node !== node.name || !replica.inSync) ?? true;
    });
  }

  #healDisk(node: SimNode): void {
    node.endSyncErrors();
    Object.assign(node.machine.disk.faults, {
      readErrors: 0,
      writeErrors: 0,
      tornWriteOnError: false,
      full: false,
      hung: false,
      slowFactor: 1,
      dead: false,
    });
    node.machine.disk.queue.hurry();
  }
}

/** One row for each kind. */
const FAULTS: { readonly [K in FaultKind]: Fault } = {
  crash: (nemesis) => {
    const node = nemesis.node();
    nemesis.say(`power cut on ${node.name}`);
    node.crash();
    nemesis.later(nemesis.span(), () => node.start());
  },
  kill: (nemesis) => {
    const node = nemesis.node();
    nemesis.say(`SIGKILL on ${node.name}`);
    node.kill();
    nemesis.later(nemesis.span(), () => node.start());
  },
  pause: (nemesis) => {
    nemesis.later(
      nemesis.random.chance(0.5) ? nemesis.random.between(8_000, 25_000) : nemesis.span(),
      nemesis.pause(nemesis.node()),
    );
  },
  'lost-writer': (nemesis) => {
    const { cluster, random } = nemesis;
    const volume = random.pick(cluster.volumes);
    const node = [...cluster.nodes.values()].find(({ devices }) => devices.has(volume));
    if (!node || node.plugin.process.paused) return;
    const comesBack = random.chance(0.5) ? nemesis.pause(node) : nemesis.cutOff(node);
    const until = cluster.schedule.now + LONGEST_LOSS_MS;
    const look = (): void => {
      const { writer } = cluster.store.volume(volumeKey(volume)) ?? {};
      const replaced = writer && writer.node !== node.name;
      if (replaced || cluster.schedule.now > until) nemesis.later(random.between(0, 12_000), comesBack);
      else nemesis.later(LOOK_MS, look);
    };
    look();
  },
  cut: (nemesis) => {
    const [one, other] = nemesis.pair();
    nemesis.say(`${one} and ${other} are cut off from each other`);
    nemesis.cluster.network.cut(one, other);
    nemesis.cluster.network.cut(other, one);
    nemesis.later(nemesis.span(), () => {
      nemesis.cluster.network.heal(one, other);
      nemesis.cluster.network.heal(other, one);
    });
  },
  'cut-one-way': (nemesis) => {
    const [one, other] = nemesis.pair();
    nemesis.say(`nothing from ${one} reaches ${other}`);
    nemesis.cluster.network.cut(one, other);
    nemesis.later(nemesis.span(), () => nemesis.cluster.network.heal(one, other));
  },
  'cut-from-store': (nemesis) => {
    nemesis.later(nemesis.span() + 5_000, nemesis.cutOff(nemesis.node()));
  },
  'slow-link': (nemesis) => {
    const [one, other] = nemesis.pair();
    const ms = nemesis.random.pick([20, 500, 3_000]);
    nemesis.say(`what ${one} sends to ${other} takes ${ms} ms longer`);
    nemesis.cluster.network.slow(one, other, ms);
    nemesis.later(nemesis.span(), () => nemesis.cluster.network.slow(one, other, 0));
  },
  reset: (nemesis) => {
    const [one, other] = nemesis.talkers();
    nemesis.say(`connections between ${one} and ${other} break`);
    nemesis.cluster.network.reset(one, other);
  },
  'late-write': (nemesis) => {
    const { cluster, random } = nemesis;
    const [writer, peer] = nemesis.talkers();
    cluster.node(peer).machine.disk.queue.delayNextWrite(random.between(200, 4_000), () => {
      nemesis.later(0, () => {
        nemesis.say(`a write on ${peer} is late; connections between ${writer} and ${peer} break`);
        cluster.network.reset(writer, peer);
      });
    });
  },
  'slow-disk': (nemesis) => {
    const { faults } = nemesis.node().machine.disk;
    nemesis.say('a disk is slow');
    faults.slowFactor = nemesis.random.pick([10, 100, 1_000]);
    nemesis.later(nemesis.span(), () => (faults.slowFactor = 1));
  },
  'hung-disk': (nemesis) => {
    const node = nemesis.node();
    const { faults } = node.machine.disk;
    nemesis.say(`the disk of ${node.name} hangs`);
    faults.hung = true;
    nemesis.later(nemesis.span(), () => (faults.hung = false));
  },
  'read-errors': (nemesis) => {
    const node = nemesis.node();
    const { faults } = node.machine.disk;
    nemesis.say(`reads fail on ${node.name}`);
    faults.readErrors = nemesis.random.pick([0.1, 1]);
    nemesis.later(nemesis.span(), () => (faults.readErrors = 0));
  },
  'write-errors': (nemesis) => {
    const node = nemesis.node();
    const { faults } = node.machine.disk;
    nemesis.say(`writes fail on ${node.name}`);
    faults.writeErrors = nemesis.random.pick([0.1, 1]);
    faults.tornWriteOnError = true;
    nemesis.later(nemesis.span(), () => (faults.writeErrors = 0));
  },
  'sync-errors': (nemesis) => {
    const node = nemesis.node();
    const { faults } = node.machine.disk;
    nemesis.say(`flushes fail on ${node.name}`);
    faults.syncErrors = nemesis.random.pick([0.3, 1]);
    nemesis.later(nemesis.span(), () => node.endSyncErrors());
  },
  'full-disk': (nemesis) => {
    const node = nemesis.node();
    const { faults } = node.machine.disk;
    nemesis.say(`the disk of ${node.name} is full`);
    faults.full = true;
    nemesis.later(nemesis.span(), () => (faults.full = false));
  },
  'bit-flip': (nemesis) => {
    const place = findRottable(nemesis.cluster, nemesis.random);
    if (!place) return;
    nemesis.say(`a bit flips on ${place.node.name} in block ${place.block} of ${place.volume.slice(-1)}`);
    rot(nemesis.cluster, place, nemesis.random.below(4096 * 8));
  },
  'lost-disk': (nemesis) => {
    const node = nemesis.node();
    if (!nemesis.isSpare(node)) return;
    nemesis.say(`the disk of ${node.name} is lost for good`);
    node.loseDisk();
    nemesis.forgetImage(node);
    nemesis.later(nemesis.span(), () => node.start());
  },
  'controller-kill': (nemesis) => {
    nemesis.say('SIGKILL on the controller');
    nemesis.cluster.controller.kill();
    nemesis.later(nemesis.span(), () => nemesis.cluster.controller.start());
  },
  'stale-disk': (nemesis) => {
    // As it was while it was behind: a disk that is put back within the epoch in which it was in sync can't be told.
    const node = nemesis.node();
    if (!nemesis.isSpare(node)) return;
    const image = nemesis.imageOf(node);
    if (!image) {
      nemesis.takeImage(node);
      return;
    }
    nemesis.say(`an old disk comes back to ${node.name}`);
    node.crash();
    node.machine.disk.restore(image);
    nemesis.later(nemesis.span(), () => node.start());
  },
  'store-outage': (nemesis) => {
    const { store } = nemesis.cluster;
    nemesis.say('the store is away');
    store.down = true;
    nemesis.later(nemesis.span(), () => (store.down = false));
  },
  'lossy-store': (nemesis) => {
    const { store } = nemesis.cluster;
    nemesis.say('the store loses calls and answers');
    store.lossy = nemesis.random.pick([0.1, 0.5]);
    nemesis.later(nemesis.span(), () => (store.lossy = 0));
  },
  'clock-jump': (nemesis) => {
    const node = nemesis.node();
    const ms = nemesis.random.pick([500, 5_000, 60_000]);
    nemesis.say(`the clock of ${node.name} jumps ${ms} ms`);
    node.machine.jumpClock(ms);
  },
  'reboot-all': (nemesis) => {
    nemesis.say('power cut everywhere');
    for (const node of nemesis.cluster.nodes.values()) {
      node.crash();
      nemesis.later(nemesis.span(), () => node.start());
    }
  },
};
