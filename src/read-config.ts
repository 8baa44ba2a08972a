import { HoldfastError } from './base/errors.js';
import type { ControllerConfig, DeviceConfig, NodeConfig } from './config.js';
import {
  CONTROLLER_SETTINGS,
  DEVICE_SETTINGS,
  NODE_SETTINGS,
  settingEntries,
  type Setting,
  type Settings,
} from './settings.js';

/** Texts as the command line and the environment gave them: by the setting's name in its Config. */
export type GivenSettings<C> = { readonly [K in keyof C]?: readonly string[] | undefined };

/** Makes the frozen Config of a node. Refusals (`invalid-argument`) name the flag and its variable. */
export function nodeConfig(
  given: GivenSettings<NodeConfig>,
  environment: Readonly<Record<string, string | undefined>>,
): NodeConfig {
  refuseUnknownVariables(NODE_SETTINGS, environment);
  const config = parseAll(NODE_SETTINGS, given, environment);
  const lastDataPort = config.dataPort + config.dataThreads - 1;
  if (lastDataPort > 65_535) {
    throw refusal(
      NODE_SETTINGS.dataPort,
      `${config.dataPort} leaves no room for ${config.dataThreads} threads; give at most ${65_536 - config.dataThreads}`,
    );
  }
  if (config.agentPort >= config.dataPort && config.agentPort <= lastDataPort) {
    throw refusal(
      NODE_SETTINGS.agentPort,
      `${config.agentPort} is one of the data ports ${config.dataPort}–${lastDataPort}; give one outside of them`,
    );
  }
  const { metricsPort } = config;
  if (metricsPort !== 0 && metricsPort >= config.dataPort && metricsPort <= lastDataPort) {
    throw refusal(
      NODE_SETTINGS.metricsPort,
      `${metricsPort} is one of the data ports ${config.dataPort}–${lastDataPort}; give one outside of them`,
    );
  }
  if (metricsPort === config.agentPort) {
    throw refusal(NODE_SETTINGS.metricsPort, `${metricsPort} is the agent port as well; give each its own`);
  }
  if (config.stateDirectory === config.poolDirectory) {
    throw refusal(NODE_SETTINGS.poolDirectory, `is the state directory as well; give each its own`);
  }
  return withMetricsHost(config, config.host);
}

/** Makes the frozen Config of a controller. Refusals (`invalid-argument`) name the flag and its variable. */
export function controllerConfig(
  given: GivenSettings<ControllerConfig>,
  environment: Readonly<Record<string, string | undefined>>,
): ControllerConfig {
  refuseUnknownVariables(CONTROLLER_SETTINGS, environment);
  const config = parseAll(CONTROLLER_SETTINGS, given, environment);
  if (config.metricsPort !== 0 && config.metricsPort === config.storePort) {
    throw refusal(
      CONTROLLER_SETTINGS.metricsPort,
      `${config.metricsPort} is the store's port as well; give each its own`,
    );
  }
  return withMetricsHost(config, config.storeHost);
}

/** Makes the frozen Config of a device process. Its environment is the node plugin's, whose variables it knows. */
export function deviceConfig(
  given: GivenSettings<DeviceConfig>,
  environment: Readonly<Record<string, string | undefined>>,
): DeviceConfig {
  return parseAll(DEVICE_SETTINGS, given, environment);
}

function withMetricsHost<C extends { readonly metricsHost: string }>(config: C, standard: string): C {
  return config.metricsHost === '' ? Object.freeze({ ...config, metricsHost: standard }) : config;
}

function parseAll<C>(
  settings: Settings<C>,
  given: GivenSettings<C>,
  environment: Readonly<Record<string, string | undefined>>,
): C {
  const values = settingEntries(settings).map(([key, setting]) => {
    const texts = given[key] ?? fromEnvironment(setting, environment) ?? standardOf(setting);
    if (texts === undefined) throw refusal(setting, 'is not given; it is needed');
    try {
      return [key, setting.parse(texts)];
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'invalid-argument') throw refusal(setting, error.message);
      throw error;
    }
  });
  return Object.freeze(Object.fromEntries(values) as C);
}

function fromEnvironment(
  setting: Setting<unknown>,
  environment: Readonly<Record<string, string | undefined>>,
): readonly string[] | undefined {
  const text = environment[setting.environment];
  if (text === undefined) return undefined;
  return setting.repeatable ? splitList(text) : [text];
}

function standardOf(setting: Setting<unknown>): readonly string[] | undefined {
  if (setting.standard === undefined) return undefined;
  return setting.repeatable ? splitList(setting.standard) : [setting.standard];
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

/** A mistyped variable would otherwise do nothing, unnoticed. */
function refuseUnknownVariables<C>(
  settings: Settings<C>,
  environment: Readonly<Record<string, string | undefined>>,
): void {
  const known = settingEntries(settings).map(([, setting]) => setting.environment);
  const unknown = Object.keys(environment).filter((name) => name.startsWith('HOLDFAST_') && !known.includes(name));
  if (unknown.length === 0) return;
  throw new HoldfastError(
    'invalid-argument',
    `unknown setting in the environment: ${unknown.join(', ')}; there are ${known.join(', ')}`,
  );
}

function refusal(setting: Setting<unknown>, message: string): HoldfastError {
  return new HoldfastError('invalid-argument', `--${setting.flag} (${setting.environment}) ${message}`);
}
