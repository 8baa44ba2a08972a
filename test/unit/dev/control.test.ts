import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { controlNode, devIsAlive, serveControl } from '../../../src/dev/control.js';
import { devLayout, type DevLayout } from '../../../src/dev/layout.js';

describe('the control of a dev cluster', () => {
  let layout: DevLayout;

  beforeEach(async () => {
    layout = devLayout(await mkdtemp(join(tmpdir(), 'dev-control-')));
  });
  afterEach(() => rm(layout.directory, { recursive: true, force: true }));

  it('carries out what it is told and passes refusals on with their code', async () => {
    const done: string[] = [];
    const server = await serveControl(layout, (node, verb) => {
      if (node !== 'a') return Promise.reject(new HoldfastError('not-found', `no node ${node}`));
      done.push(verb);
      return Promise.resolve();
    });
    try {
      await controlNode(layout, 'a', 'kill');
      await controlNode(layout, 'a', 'start');
      expect(done).toEqual(['kill', 'start']);
      await expect(controlNode(layout, 'x/y', 'cut')).rejects.toMatchObject({
        code: 'not-found',
        message: 'no node x/y',
      });
    } finally {
      await server.stop();
    }
  });

  it('tells a live dev from a dead one', async () => {
    expect(await devIsAlive(layout)).toBe(false);
    const server = await serveControl(layout, () => Promise.resolve());
    expect(await devIsAlive(layout)).toBe(true);
    await server.stop();
    expect(await devIsAlive(layout)).toBe(false);
    await expect(controlNode(layout, 'a', 'kill')).rejects.toMatchObject({ code: 'failed-precondition' });
  });
});

describe('the layout of a dev cluster', () => {
  it('gives two directories different namespaces, and one the same each time', () => {
    expect(devLayout('/tmp/a').switchNamespace).not.toBe(devLayout('/tmp/b').switchNamespace);
    expect(devLayout('/tmp/a').node('a').namespace).toBe(devLayout('/tmp/a').node('a').namespace);
  });

  it('refuses a directory whose sockets would have too long paths', () => {
    expect(() => devLayout(`/tmp/${'x'.repeat(100)}`)).toThrow(/give a path of at most/);
  });
});
