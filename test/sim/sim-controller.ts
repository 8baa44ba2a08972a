import type { NodeRecord } from '../../src/model/records.js';
import type { RebuildAgent } from '../../src/control/rebuild-agents.js';
import { Rebuilder } from '../../src/control/rebuilder.js';
import { LeaseObserver } from '../../src/store/lease.js';
import type { SimCluster } from './sim-cluster.js';
import { SimDisk } from './sim-disk.js';
import { simLog } from './sim-log.js';
import { SimMachine, type SimProcess } from './sim-machine.js';

export const CONTROLLER_HOST = 'ctl';

const HEAL_EVERY_MS = 3_000;
const CALL_MS = 10_000;

/** The controller: failure detector and rebuilder, in a process on a machine of its own. */
export class SimController {
  readonly machine: SimMachine;
  process: SimProcess;

  constructor(private readonly cluster: SimCluster) {
    const { schedule, network, random } = cluster;
    const disk = new SimDisk(schedule, random.fork());
    this.machine = new SimMachine({ schedule, network, random: random.fork(), name: CONTROLLER_HOST, disk });
    this.process = this.machine.startProcess('controller');
  }

  begin(): void {
    void this.#run(this.process);
  }

  kill(): void {
    this.process.kill();
  }

  start(): void {
    if (this.process.alive) return;
    this.process = this.machine.startProcess('controller');
    this.begin();
  }

  async #run(process: SimProcess): Promise<void> {
    const { cluster } = this;
    const { clock } = process.io;
    const log = simLog(cluster.tell, CONTROLLER_HOST);
    const store = cluster.store.client(process, CONTROLLER_HOST);
    const liveness = new LeaseObserver({ store, clock, log });
    void liveness.run(new AbortController().signal);
    const { graceMs } = cluster.scenario;
    const rebuilder = new Rebuilder({
      store,
      liveness,
      agents: { of: (node) => this.#agent(process, node) },
      clock,
      log,
      limits: { overcommit: 100, graceMs, diskGraceMs: 5_000, rebuildsPerNode: 2, inspectEveryMs: 5_000 },
      wallClock: () => '',
    });
    for (;;) {
      await clock.sleep(HEAL_EVERY_MS);
      await rebuilder.round().catch(() => undefined);
    }
  }

  #agent(process: SimProcess, { name }: NodeRecord): RebuildAgent {
    const { cluster } = this;
    const ask = <T>(work: (node: ReturnType<SimCluster['node']>) => Promise<T>): Promise<T> => {
      const node = cluster.node(name);
      return cluster.rpc({ process, host: CONTROLLER_HOST }, node, CALL_MS, () => work(node));
    };
    return {
      createReplica: (volume, disk, capacityBytes) =>
        ask((node) => node.plugin.createReplica(volume, disk, capacityBytes)),
      removeReplica: (volume) => ask((node) => node.plugin.removeUnnamed(volume)),
      listReplicas: () => ask((node) => Promise.resolve(node.plugin.path.listReplicas())),
      refreshVolume: (volume) => ask((node) => node.plugin.path.refresh(volume)),
      dropReplica: (volume, from, why) => ask((node) => node.plugin.path.dropReplica(volume, from, why)),
      maintainVolume: (volume, drop) =>
        ask((node) => {
          node.plugin.path.maintain(volume, drop);
          return Promise.resolve();
        }),
    };
  }
}
