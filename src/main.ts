#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import { codeOf, messageOf } from './base/errors.js';
import { createLog } from './base/log.js';
import { holdfastVersion } from './base/version.js';
import { addDoctorCommand, addNodeCommands, addStatusCommand, addVolumeCommands } from './cli/commands.js';
import { addDevCommands } from './cli/dev-commands.js';
import { addDrillCommands } from './cli/drill-commands.js';
import { untilSignal } from './cli/signals.js';
import { controllerConfig, deviceConfig, nodeConfig, type GivenSettings } from './read-config.js';
import { CONTROLLER_SETTINGS, DEVICE_SETTINGS, NODE_SETTINGS, settingEntries, type Settings } from './settings.js';

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

function buildProgram(): Command {
  const program = new Command('holdfast')
    .description('replicated block storage; a CSI driver whose disks never move')
    .version(holdfastVersion())
    .enablePositionalOptions()
    .exitOverride();
  addController(program);
  addNode(program);
  addDevice(program);
  addDevCommands(program);
  addDrillCommands(program);
  addStatusCommand(program);
  addVolumeCommands(program);
  addDoctorCommand(program);
  return program;
}

// The parts are loaded only where they run, so that a client command starts fast and on any machine.

function addController(program: Command): void {
  const command = program.command('controller').description('run the controller');
  withSettings(command, CONTROLLER_SETTINGS).action(async (given: Record<string, unknown>) => {
    const config = controllerConfig(textsOf(CONTROLLER_SETTINGS, given), process.env);
    const { runController } = await import('./controller.js');
    await untilSignal(async () => {
      const running = await runController(config, createLog('controller', config.logLevel));
      return () => running.stop();
    });
  });
}

function addNode(program: Command): void {
  const command = program.command('node').enablePositionalOptions().description('run the node plugin');
  addNodeCommands(command);
  withSettings(command, NODE_SETTINGS).action(async (given: Record<string, unknown>) => {
    const config = nodeConfig(textsOf(NODE_SETTINGS, given), process.env);
    const { runNode } = await import('./node.js');
    await untilSignal(async (signal) => {
      const log = createLog('node', config.logLevel);
      if (process.env['UV_THREADPOOL_SIZE'] === undefined) {
        log.warn('UV_THREADPOOL_SIZE is not set: at most 4 requests to disks run at once; set it to 128 or so');
      }
      const running = await runNode(config, log, signal);
      return () => running.stop();
    });
  });
}

/** Started by the node plugin, not by people. */
function addDevice(program: Command): void {
  const command = program.command('device', { hidden: true }).description('run the device process of a node');
  withSettings(command, DEVICE_SETTINGS).action(async (given: Record<string, unknown>) => {
    const config = deviceConfig(textsOf(DEVICE_SETTINGS, given), process.env);
    const { runDeviceProcess } = await import('./device-process.js');
    await runDeviceProcess(config);
  });
}

function withSettings<C>(command: Command, settings: Settings<C>): Command {
  for (const [, setting] of settingEntries(settings)) {
    const standard = setting.standard === undefined || setting.standard === '' ? '' : `; default ${setting.standard}`;
    const what = `${setting.what} (${setting.environment}${standard})`;
    // Every flag is gathered, so that one given twice is seen and not silently overruled.
    command.option(`--${setting.flag} <${setting.placeholder}>`, what, (text: string, before: string[] | undefined) => [
      ...(before ?? []),
      text,
    ]);
  }
  return command;
}

/** Commander names values after the flag in camel case; a Config has names of its own. */
function textsOf<C>(settings: Settings<C>, given: Record<string, unknown>): GivenSettings<C> {
  const texts = settingEntries(settings).map(([key, { flag }]) => {
    const name = flag.replace(/-([a-z])/g, (_dash, letter: string) => letter.toUpperCase());
    return [key, given[name]] as const;
  });
  return Object.fromEntries(texts) as GivenSettings<C>;
}

try {
  await buildProgram().parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
  } else {
    process.stderr.write(`holdfast: ${messageOf(error)}\n`);
    if (codeOf(error) === 'internal' && error instanceof Error) process.stderr.write(`${error.stack ?? ''}\n`);
    process.exitCode = codeOf(error) === 'invalid-argument' ? EXIT_USAGE : EXIT_FAILED;
  }
}
