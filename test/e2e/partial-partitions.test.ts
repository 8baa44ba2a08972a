import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Scene } from '../support/attached-volume.js';
import { RunningDev } from '../support/dev-cluster.js';
import { CONTROLLER, Links } from '../support/links.js';

const POLL = { timeout: 30_000, interval: 200 };

describe('a network that is cut in part', () => {
  let dev: RunningDev;
  let links: Links;
  let scene: Scene;

  beforeAll(async () => {
    dev = await RunningDev.start('--disk-size', '2GiB');
    links = new Links(await dev.description());
  });
  afterEach(async () => {
    await links.heal();
    await scene.end();
  });
  afterAll(async () => {
    await dev.remove();
    expect(await dev.leftovers()).toEqual([]);
  });

  it('between the writer and one replica of three, both ways or one: that one is dropped, and comes back', async () => {
    scene = await Scene.create(dev, 'pair', 3);
    const [writer = '', peer = '', other = ''] = scene.replicas;
    const client = await scene.attach(writer);
    const cuts = [() => links.cutBothWays(writer, peer), () => links.cut(writer, other), () => links.cut(peer, writer)];
    for (const [index, cut] of cuts.entries()) {
      await scene.untilAcknowledged(client, 100);
      await cut();
      await scene.untilInSync(index === 1 ? [writer, peer] : [writer, other]);
      await scene.untilAcknowledged(client, 100);
      await links.heal();
      await scene.untilInSync(scene.replicas);
    }
    await scene.untilAcknowledged(client, 100);
    expect(client.failed).toBe(0);
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });

  it('between the writer and the controller alone stops nothing', async () => {
    scene = await Scene.create(dev, 'controller-away', 3);
    const [writer = ''] = scene.replicas;
    const client = await scene.attach(writer);
    await links.cutBothWays(writer, CONTROLLER);
    // Long enough that the controller takes the writer's node for dead.
    await expect.poll(async () => (await scene.view()).conditions.join(), POLL).toMatch(/writer, does not renew/);
    await scene.untilAcknowledged(client, 200);
    expect(client.failed).toBe(0);
    await links.heal();
    await client.readAll();
    await scene.detach(writer, client);
    await scene.judge();
  });
});
