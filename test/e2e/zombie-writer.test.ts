import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Scene } from '../support/attached-volume.js';
import { RunningDev } from '../support/dev-cluster.js';
import { figureOf } from '../support/figures.js';
import { Links } from '../support/links.js';
import type { VolumeClient } from '../support/volume-client.js';

const BETWEEN_MS = 1_000;

/**
 * An old writer that is not dead, only away, while another node takes over: its process stands still in mid-write, as
 * on a host that is suspended, or it can't be heard. Then it is back and believes that it is the writer.
 */
describe('a writer that another node has taken over from', () => {
  let dev: RunningDev;
  let links: Links;
  let scenes: Scene[] = [];

  beforeAll(async () => {
    dev = await RunningDev.start('--disk-size', '2GiB');
    links = new Links(await dev.description());
  });
  afterEach(async () => {
    await links.heal();
    for (const scene of scenes) await scene.end();
    scenes = [];
  });
  afterAll(async () => {
    await dev.remove();
    expect(await dev.leftovers()).toEqual([]);
  });

  it('changes nothing and acknowledges nothing once its process goes on', async () => {
    const busy = await create('busy');
    const idle = await create('idle');
    const busyOld = await attach(busy, 'a');
    const idleOld = await attach(idle, 'a');
    // Of this one nothing is under way that would tell the writer, by its age, that something is wrong.
    await idleOld.stop();
    const plugin = await busy.plugin('a');
    process.kill(plugin, 'SIGSTOP');
    try {
      const [busyNew, idleNew] = await Promise.all([attach(busy, 'b'), attach(idle, 'b')]);
      // These reach the sockets of the process that stands still, on top of all that was under way.
      const late = Promise.all([busyOld.writeAll(), idleOld.writeAll()]);
      await sleep(BETWEEN_MS);
      process.kill(plugin, 'SIGCONT');
      expect(await late).toEqual([0, 0]);
      for (const node of ['b', 'c']) {
        const fenced = await figureOf(busy.kubernetes.node(node), 'holdfast_replica_sessions_fenced_total');
        expect(fenced, `sessions that replicas on ${node} ended`).toBeGreaterThanOrEqual(2);
      }
      await Promise.all([
        expectTakenOver(busy, 'a', { old: busyOld, client: busyNew }),
        expectTakenOver(idle, 'a', { old: idleOld, client: idleNew }),
      ]);
    } finally {
      process.kill(plugin, 'SIGCONT');
    }
  });

  it('acknowledges nothing more while nobody hears it, or it hears nobody, nor after', async () => {
    const silent = await create('silent');
    const deaf = await create('deaf');
    const silentOld = await attach(silent, 'a');
    const deafOld = await attach(deaf, 'c');
    await links.silence('a');
    await links.deafen('c');
    const [silentNew, deafNew] = await Promise.all([attach(silent, 'b'), attach(deaf, 'b')]);
    const late = Promise.all([silentOld.writeAll(), deafOld.writeAll()]);
    await sleep(BETWEEN_MS);
    await links.heal();
    expect(await late).toEqual([0, 0]);
    await Promise.all([
      expectTakenOver(silent, 'a', { old: silentOld, client: silentNew }),
      expectTakenOver(deaf, 'c', { old: deafOld, client: deafNew }),
    ]);
  });

  async function create(name: string): Promise<Scene> {
    const scene = await Scene.create(dev, name, 3);
    scenes.push(scene);
    return scene;
  }

  async function attach(scene: Scene, node: string): Promise<VolumeClient> {
    const client = await scene.attach(node);
    await scene.untilAcknowledged(client, 200);
    return client;
  }

  /** The new writer, on b, goes on; the old one's kubelet clears up, and its replica comes back by a resync. */
  async function expectTakenOver(
    scene: Scene,
    node: string,
    { old, client }: Record<'old' | 'client', VolumeClient>,
  ): Promise<void> {
    await old.stop();
    await scene.untilAcknowledged(client, 200);
    expect((await scene.view()).attachment?.state).toBe('serving');
    expect((await scene.decisions()).join('; ')).toMatch(new RegExp(`took over: from node ${node}`));
    expect(await figureOf(scene.kubernetes.node(node), 'holdfast_writers_fenced_total')).toBeGreaterThan(0);
    await scene.kubernetes.unmountFor(node, scene.volume);
    await scene.untilInSync(scene.replicas);
    await client.readAll();
    await scene.detach('b', client);
    await scene.judge();
  }
});
