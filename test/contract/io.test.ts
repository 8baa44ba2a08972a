import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { createNodeIo } from '../../src/io/node-io.js';
import { SimWorld } from '../sim/sim-world.js';
import { filesContract } from './files.js';
import { networkContract } from './network.js';

const node = createNodeIo();

function temporary(): { directory: string; end: () => void } {
  const directory = mkdtempSync('/tmp/holdfast-io-');
  return { directory, end: () => rmSync(directory, { recursive: true, force: true }) };
}

filesContract('Node', () => ({
  ...temporary(),
  io: node,
  allocatedBytes: (path) => statSync(path).blocks * 512,
  run: (body) => body(),
}));

networkContract('Node', () => ({
  ...temporary(),
  client: node,
  server: node,
  serverHost: '127.0.0.1',
  run: (body) => body(),
}));

let seed = 1;

filesContract('simulated', () => {
  const world = new SimWorld(seed++);
  const machine = world.machine('a');
  return {
    io: machine.startProcess('tested').io,
    directory: '',
    allocatedBytes: (path) => machine.disk.allocatedPages(path).length * 4096,
    run: (body) => world.run(body),
    end: () => undefined,
  };
});

networkContract('simulated', (sameMachine) => {
  const world = new SimWorld(seed++);
  const near = world.machine('a');
  const far = sameMachine ? near : world.machine('b');
  return {
    client: near.startProcess('client').io,
    server: far.startProcess('server').io,
    serverHost: far.name,
    directory: '',
    run: (body) => world.run(body),
    end: () => undefined,
  };
});
