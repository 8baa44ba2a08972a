import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { HoldfastError, messageOf } from './base/errors.js';
import { silentLog } from './base/log.js';
import { formatBytes, formatTable } from './cli/table.js';
import { parseSize } from './config-values.js';
import { exportChecksum } from './demo/checksums.js';
import { Ledger } from './demo/ledger.js';
import { Orchestrator, pause, type ProvisionedVolume } from './dev/orchestrator.js';
import { Postgres } from './demo/postgres.js';
import { postgresDirectory } from './demo/postgres-directory.js';
import { Screen } from './demo/screen.js';
import { DevCluster } from './dev.js';

/*
 * The demo: PostgreSQL runs on a replicated volume; its node loses power in mid-write; the volume is mounted on another
 * node, and nothing that was acknowledged is missing.
 */

interface DemoOptions {
  readonly fast?: true;
  readonly size: string;
  readonly sessions: string;
}

type Progress = (text: string) => void;

const REPLICAS = 2;
const DISK_BYTES = 20 * 1024 ** 3;

class Demo {
  readonly #screen = new Screen();
  /** What is to be undone at the end, the last one first. */
  readonly #undo: (() => Promise<void>)[] = [];

  constructor(
    private readonly loadMs: number,
    private readonly sizeBytes: number,
    private readonly sessions: number,
    private readonly signal: AbortSignal,
  ) {}

  /** Plays it all. Resolves when everything held; otherwise it fails with what did not. Nothing stays behind. */
  async run(): Promise<void> {
    try {
      await this.#play();
    } finally {
      await this.#screen.step('clean up', undefined, async () => {
        for (const undo of this.#undo.reverse()) {
          await undo().catch((error: unknown) => this.#screen.note(`clean-up: ${messageOf(error)}`));
        }
      });
    }
    this.#screen.summary();
  }

  async #play(): Promise<void> {
    const programs = await postgresDirectory();
    if (programs === undefined) {
      throw new HoldfastError('failed-precondition', 'PostgreSQL is not installed; apt-get install postgresql');
    }
    const directory = await this.#makeDirectory();
    // It sees the signal itself, and is not to be left before it has taken itself down.
    const cluster = await this.#screen.step('start a cluster: one controller, three nodes', undefined, () =>
      this.#startCluster(directory),
    );
    const description = cluster.describe();
    const kubernetes = new Orchestrator(description);
    this.#undo.push(() => {
      kubernetes.close();
      return Promise.resolve();
    });
    const volume = await this.#step(`create a volume of ${formatBytes(this.sizeBytes)} with ${REPLICAS} replicas`, () =>
      this.#createVolume(kubernetes),
    );
    const [first, second] = (await kubernetes.view(volume)).replicas.map((replica) => replica.node);
    if (first === undefined || second === undefined) throw new HoldfastError('internal', 'the volume has no replicas');

    const ledger = new Ledger();
    this.#undo.push(() => ledger.kill());
    const database = (node: string, mounted: string): Postgres =>
      new Postgres({
        programs,
        dataDirectory: join(mounted, 'pgdata'),
        socketDirectory: join(directory, 'pg'),
        log: join(directory, 'logs', 'postgres.log'),
        networkNamespace: kubernetes.node(node).networkNamespace,
      });

    const mounted = await this.#step(`stage and publish on node ${first}`, () =>
      kubernetes.mountFor(first, volume, this.signal),
    );
    const old = database(first, mounted);
    this.#undo.push(() => old.stop());
    await this.#step('make a database on it', async () => {
      await old.create();
      await old.start(this.signal);
      await Ledger.createTable(old);
    });
    await this.#load(ledger, old, 'write, and note each commit that was acknowledged');

    const before = ledger.acknowledged;
    const cutAt = Date.now();
    await this.#step(`power cut of node ${first} in mid-write: SIGKILL to everything, network plug out`, async () => {
      await cluster.act(first, 'kill');
      await cluster.act(first, 'cut');
      await ledger.stop();
    });
    this.#screen.note(
      `${ledger.acknowledged} commits were acknowledged, ${ledger.acknowledged - before} of them meanwhile`,
    );

    const again = await this.#step(`stage and publish on node ${second}, as its kubelet would`, () =>
      kubernetes.mountFor(second, volume, this.signal),
    );
    const current = database(second, again);
    this.#undo.push(() => current.stop());
    await this.#step('start the database there; it recovers', () => current.start(this.signal));
    this.#screen.note(`the database answers again ${((Date.now() - cutAt) / 1000).toFixed(1)} s after the power cut`);
    await this.#step('every acknowledged commit is there', (progress) => this.#compare(ledger, current, progress));
    await this.#step('amcheck: tables and indexes are sound', () => current.amcheck());
    await this.#load(ledger, current, `write on, while node ${first} is away`);

    await this.#step(`node ${first} comes back`, async () => {
      await cluster.act(first, 'heal');
      await cluster.act(first, 'start');
    });
    await this.#step('its replica is brought back in sync', (progress) =>
      kubernetes.untilInSync(volume, REPLICAS, this.signal, progress),
    );
    await ledger.stop();
    await this.#step('every acknowledged commit is there', (progress) => this.#compare(ledger, current, progress));
    await this.#step('stop writing: database down, volume unmounted', async () => {
      await current.stop();
      await kubernetes.unmountFor(second, volume);
    });
    await this.#step('both replicas are equal, byte for byte', (progress) =>
      this.#compareReplicas(kubernetes, volume, progress),
    );
    await this.#step('no attach, no detach', (progress) => this.#noAttach(kubernetes, progress));
    await this.#step('delete the volume', () => kubernetes.deleteVolume(volume));
  }

  async #makeDirectory(): Promise<string> {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-demo-'));
    this.#undo.push(() => rm(directory, { recursive: true, force: true }));
    // The database's user must get through to the volume.
    await chmod(directory, 0o755);
    return directory;
  }

  async #startCluster(directory: string): Promise<DevCluster> {
    const cluster = await DevCluster.start(
      {
        directory,
        nodes: 3,
        diskBytes: DISK_BYTES,
        zones: ['zone-1', 'zone-2', 'zone-3'],
        logLevel: 'info',
        signal: this.signal,
      },
      silentLog(),
    );
    this.#undo.push(() => cluster.stop());
    return cluster;
  }

  #createVolume(kubernetes: Orchestrator): Promise<ProvisionedVolume> {
    return kubernetes.createVolume({
      name: 'demo',
      capacityBytes: this.sizeBytes,
      filesystem: 'ext4',
      parameters: { replicas: String(REPLICAS) },
    });
  }

  async #load(ledger: Ledger, postgres: Postgres, what: string): Promise<void> {
    await this.#step(what, async (progress) => {
      const before = ledger.acknowledged;
      ledger.start(postgres, this.sessions);
      for (const end = Date.now() + this.loadMs; Date.now() < end;) {
        await pause(250, this.signal);
        progress(`${ledger.acknowledged - before} commits`);
      }
      if (ledger.acknowledged === before) throw new HoldfastError('internal', 'no commit was acknowledged');
    });
  }

  async #compare(ledger: Ledger, postgres: Postgres, progress: Progress): Promise<void> {
    const { missing } = await ledger.compare(postgres);
    if (missing.length > 0) {
      throw new HoldfastError(
        'corrupt',
        `${missing.length} acknowledged commits are missing: ${missing.slice(0, 5).join('; ')}`,
      );
    }
    progress(`${ledger.acknowledged} of ${ledger.acknowledged}`);
  }

  async #compareReplicas(kubernetes: Orchestrator, volume: ProvisionedVolume, progress: Progress): Promise<void> {
    const { replicas } = await kubernetes.view(volume);
    const sums: string[] = [];
    for (const replica of replicas) {
      const { sha256, bytes } = await exportChecksum(kubernetes.node(replica.node).networkNamespace, replica.nbd_uri);
      if (bytes !== volume.capacityBytes) throw new HoldfastError('corrupt', `node ${replica.node} has ${bytes} bytes`);
      this.#screen.note(`node ${replica.node}: SHA-256 ${sha256}`);
      sums.push(sha256);
    }
    if (sums.length !== REPLICAS || new Set(sums).size !== 1) throw new HoldfastError('corrupt', 'the replicas differ');
    progress(formatBytes(volume.capacityBytes));
  }

  async #noAttach(kubernetes: Orchestrator, progress: Progress): Promise<void> {
    if (await kubernetes.wantsAttach()) throw new HoldfastError('internal', 'the driver asks for attach calls');
    const rows = [...kubernetes.calls].map(([rpc, count]) => [rpc, String(count)]);
    const attach = [...kubernetes.calls.keys()].filter((rpc) => /^Controller(Unp|P)ublishVolume$/.test(rpc));
    if (attach.length > 0) throw new HoldfastError('internal', `${attach.join(', ')} was called`);
    this.#screen.note(
      formatTable(
        ['CSI CALL', 'TIMES'],
        [...rows, ['ControllerPublishVolume', '0'], ['ControllerUnpublishVolume', '0']],
        ['TIMES'],
      ),
    );
    progress('the driver does not even offer it');
  }

  /** One step; a signal ends it at once, and what it has begun is cleared by the clean-up. */
  #step<T>(what: string, action: (progress: Progress) => Promise<T>): Promise<T> {
    return this.#screen.step(what, this.signal, action);
  }
}

async function main(): Promise<void> {
  const program = new Command('demo')
    .description('a database on a Holdfast volume survives the power cut of its node')
    .option('--fast', 'write for 3 s instead of 10 s at a time')
    .option('--size <size>', 'of the volume', '1GiB')
    .option('--sessions <count>', 'database sessions that write at once', '4')
    .parse();
  const options = program.opts<DemoOptions>();
  const sizeBytes = parseSize(options.size);
  if (sizeBytes === undefined) throw new HoldfastError('invalid-argument', `--size ${options.size}: give e.g. 1GiB`);
  const sessions = Number(options.sessions);
  if (!Number.isInteger(sessions) || sessions < 1 || sessions > 32) {
    throw new HoldfastError('invalid-argument', `--sessions ${options.sessions}: give a number from 1 to 32`);
  }
  const abort = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => abort.abort());
  await new Demo(options.fast === true ? 3_000 : 10_000, sizeBytes, sessions, abort.signal).run();
}

try {
  await main();
} catch (error) {
  process.stderr.write(`demo: ${messageOf(error)}\n`);
  process.exitCode = 1;
}
