import { describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import type { NodeConfig } from '../../../src/config.js';
import { controllerConfig, nodeConfig, type GivenSettings } from '../../../src/read-config.js';

const NODE: GivenSettings<NodeConfig> = {
  nodeName: ['a'],
  csiSocket: ['/run/holdfast/csi.sock'],
  stateDirectory: ['/var/lib/holdfast'],
  poolDirectory: ['/var/lib/holdfast-pool'],
  host: ['10.0.0.1'],
  storeAddress: ['10.0.0.9:7410'],
};

function refusal(given: Partial<GivenSettings<NodeConfig>>, environment: Record<string, string> = {}): string {
  try {
    nodeConfig({ ...NODE, ...given }, environment);
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    expect((error as HoldfastError).code).toBe('invalid-argument');
    return (error as HoldfastError).message;
  }
  throw new Error('was not refused');
}

describe('the settings of a node', () => {
  it('become a frozen Config, with standards for what is not given', () => {
    const config = nodeConfig(NODE, {});
    expect(config).toMatchObject({ nodeName: 'a', disks: [], agentPort: 7420, dataPort: 7430, dataThreads: 2 });
    expect(config.slabBytes).toBe(128 * 1024 ** 2);
    expect(Object.isFrozen(config)).toBe(true);
  });

  it('come from the environment where no flag gives them, and the flag wins', () => {
    const environment = { HOLDFAST_HOST: '10.0.0.2', HOLDFAST_LOG_LEVEL: 'debug', HOLDFAST_DISKS: '/dev/b, /dev/c' };
    const config = nodeConfig(NODE, environment);
    expect(config.host).toBe('10.0.0.1');
    expect(config.logLevel).toBe('debug');
    expect(config.disks).toEqual(['/dev/b', '/dev/c']);
  });

  it('take a topology apart into segments', () => {
    const topology = ['topology.kubernetes.io/zone=eu-1a', 'rack=7'];
    expect(nodeConfig({ ...NODE, topology }, {}).topology).toEqual({
      'topology.kubernetes.io/zone': 'eu-1a',
      rack: '7',
    });
  });

  it.each<[string, Partial<GivenSettings<NodeConfig>>, RegExp]>([
    ['a missing one', { storeAddress: undefined }, /--store-address \(HOLDFAST_STORE_ADDRESS\) is not given/],
    ['an empty one', { host: [''] }, /--host .* is empty/],
    ['one given twice', { host: ['a', 'b'] }, /--host .* is given twice/],
    ['a name with capitals', { nodeName: ['Node'] }, /--node-name .*"Node"; give a name of lower-case/],
    ['a relative path', { stateDirectory: ['state'] }, /--state-directory .*"state"; give an absolute path/],
    ['a socket path that no kernel takes', { csiSocket: [`/${'x'.repeat(120)}`] }, /--csi-socket .* at most 107/],
    ['a port that is none', { agentPort: ['70000'] }, /--agent-port .*"70000"; give a whole number from 1 to 65535/],
    ['a number with a tail', { dataThreads: ['2x'] }, /--data-threads .*"2x"/],
    ['too little memory', { slabBytes: ['1MiB'] }, /--slab .*from 64MiB to 4GiB/],
    ['a store without a port', { storeAddress: ['10.0.0.9'] }, /--store-address .*give HOST:PORT/],
    ['a segment without a value', { topology: ['zone'] }, /--topology .*give KEY=VALUE/],
    ["the node's own segment", { topology: ['topology.holdfast.dev/node=b'] }, /--topology .*sets that itself/],
    ['a segment set twice', { topology: ['r=1', 'r=2'] }, /--topology .*twice/],
    ['a disk named twice', { disks: ['/dev/b', '/dev/b'] }, /--disk .*names \/dev\/b twice/],
    ['an unknown level', { logLevel: ['loud'] }, /--log-level .*fatal, error/],
    ['ports that meet', { dataPort: ['7419'] }, /--agent-port .*7420 is one of the data ports 7419–7420/],
    ['ports without room', { dataPort: ['65535'] }, /--data-port .*leaves no room for 2 threads; give at most 65534/],
    [
      'metrics among the data ports',
      { metricsPort: ['7431'] },
      /--metrics-port .*7431 is one of the data ports 7430–7431/,
    ],
    ['metrics on the agent port', { metricsPort: ['7420'] }, /--metrics-port .*7420 is the agent port as well/],
    [
      'a metrics host that is none',
      { metricsHost: ['a b'] },
      /--metrics-host .*"a b"; give an IP address or a host name/,
    ],
    ['one directory for two things', { poolDirectory: ['/var/lib/holdfast/'] }, /--pool-directory .*each its own/],
  ])('refuse %s by its name', (_what, given, message) => {
    expect(refusal(given)).toMatch(message);
  });

  it('tell metrics on their own address unless told otherwise, and nowhere with port 0', () => {
    expect(nodeConfig(NODE, {})).toMatchObject({ metricsHost: '10.0.0.1', metricsPort: 7421 });
    const config = nodeConfig({ ...NODE, metricsHost: ['::'], metricsPort: ['0'] }, {});
    expect(config).toMatchObject({ host: '10.0.0.1', metricsHost: '::', metricsPort: 0 });
    expect(Object.isFrozen(nodeConfig(NODE, {}))).toBe(true);
  });

  it('refuse a variable that they do not know', () => {
    expect(refusal({}, { HOLDFAST_NODENAME: 'a' })).toMatch(/HOLDFAST_NODENAME; there are HOLDFAST_NODE_NAME/);
  });
});

describe('the settings of a controller', () => {
  const given = { csiSocket: ['/run/c.sock'], stateDirectory: ['/var/lib/c'], storeHost: ['::1'] };

  it('tell metrics beside the store', () => {
    expect(controllerConfig(given, {})).toMatchObject({ metricsHost: '::1', metricsPort: 7411 });
    expect(() => controllerConfig({ ...given, metricsPort: ['7410'] }, {})).toThrow(
      /--metrics-port .*7410 is the store's port as well/,
    );
  });

  it('become a frozen Config', () => {
    const config = controllerConfig({ ...given, overcommit: ['2.5'] }, {});
    expect(config).toEqual({
      csiSocket: '/run/c.sock',
      stateDirectory: '/var/lib/c',
      storeHost: '::1',
      storePort: 7410,
      overcommit: 2.5,
      rebuildGraceMs: 600_000,
      rebuildsPerNode: 2,
      metricsHost: '::1',
      metricsPort: 7411,
      logLevel: 'info',
    });
    expect(Object.isFrozen(config)).toBe(true);
  });

  it.each([
    ['90s', 90_000],
    ['10min', 600_000],
    ['2h', 7_200_000],
    ['1500ms', 1_500],
  ])('take %s as a time', (text, milliseconds) => {
    expect(controllerConfig({ ...given, rebuildGraceMs: [text] }, {}).rebuildGraceMs).toBe(milliseconds);
  });

  it.each(['0s', '10', 'min', '-5s', '1.5h', '241h', '1 h'])('refuse %s as a time', (text) => {
    expect(() => controllerConfig({ ...given, rebuildGraceMs: [text] }, {})).toThrow(
      /--rebuild-grace .*from 1s to 240h/,
    );
  });

  it.each(['0', '-1', 'much', '1e3', '101'])('refuse the over-commit %s', (text) => {
    expect(() => controllerConfig({ ...given, overcommit: [text] }, {})).toThrow(/--overcommit .*from 1 to 100/);
  });
});
