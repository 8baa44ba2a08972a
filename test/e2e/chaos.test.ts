import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.js';
import { Scene, type Way } from '../support/attached-volume.js';
import { RunningDev } from '../support/dev-cluster.js';
import { ControllerProcess } from '../support/node-processes.js';

/** How long each round lasts; set HOLDFAST_CHAOS_SECONDS for more. */
const ROUND_MS = Number(process.env['HOLDFAST_CHAOS_SECONDS'] ?? '12') * 1_000;
/** Long enough that a replica is dropped, and shorter than a lease. */
const LONGEST_PAUSE_MS = 6_000;

describe('processes killed and halted at random, in mid-write', () => {
  let dev: RunningDev;
  let controller: ControllerProcess;
  let scene: Scene;

  beforeAll(async () => {
    dev = await RunningDev.start('--disk-size', '2GiB');
    controller = await ControllerProcess.of(await dev.description());
  });
  afterEach(async () => {
    await controller.ensure();
    for (const node of scene.replicas) await dev.control(node, 'start');
    await scene.end();
  });
  afterAll(async () => {
    await dev.remove();
    expect(await dev.leftovers()).toEqual([]);
  });

  it.each<{ way: Way; what: string }>([
    { way: 'endpoint', what: 'at the NBD endpoint' },
    { way: 'device', what: 'through the block device' },
  ])('$what: no error, nothing lost, and equal replicas at the end', async ({ way }) => {
    scene = await Scene.create(dev, way, 3);
    const [writer = '', ...peers] = scene.replicas;
    const client = await scene.attach(writer, { way });
    const told: string[] = [];
    for (const end = Date.now() + ROUND_MS; Date.now() < end;) {
      await sleep(Math.random() * 2_000);
      const fault = oneOf([killPlugin, haltPlugin, cutPower, killController]);
      const node = oneOf(fault === cutPower ? peers : scene.replicas);
      told.push(`${fault.name} ${node}`);
      await fault(node);
    }
    await scene.untilAcknowledged(client, 100);
    await scene.untilInSync(scene.replicas);
    expect(client.failed, told.join(', ')).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge(told.join(', '));
  });

  it('and the power of all nodes cut at once: what was flushed is there', async () => {
    scene = await Scene.create(dev, 'blackout', 3);
    const [writer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await scene.untilAcknowledged(client, 300);
    await Promise.all(scene.replicas.map((node) => dev.control(node, 'kill')));
    await client.close();
    await Promise.all(scene.replicas.map((node) => dev.control(node, 'start')));
    const again = await scene.attach(writer, { lossAllowed: true });
    await again.readAll();
    await scene.untilAcknowledged(again, 100);
    await scene.untilInSync(scene.replicas);
    await again.readAll();
    await scene.detach(writer, again);
    await scene.judge();
  });

  async function killPlugin(node: string): Promise<void> {
    process.kill(await scene.plugin(node), 'SIGKILL');
    await sleep(Math.random() * LONGEST_PAUSE_MS);
    await dev.control(node, 'start');
  }

  /** What its disks had not written is lost; of the writer's node that would be the client's end as well. */
  async function cutPower(node: string): Promise<void> {
    await dev.control(node, 'kill');
    await dev.control(node, 'start');
  }

  async function haltPlugin(node: string): Promise<void> {
    const plugin = await scene.plugin(node);
    process.kill(plugin, 'SIGSTOP');
    await sleep(Math.random() * LONGEST_PAUSE_MS);
    process.kill(plugin, 'SIGCONT');
  }

  async function killController(): Promise<void> {
    await controller.kill();
    await sleep(Math.random() * 2_000);
    await controller.start();
  }
});

function oneOf<T>(choices: readonly T[]): T {
  return present(choices[Math.floor(Math.random() * choices.length)], 'there is a choice');
}
