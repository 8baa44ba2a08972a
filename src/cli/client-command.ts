import { resolve } from 'node:path';
import type { Command } from 'commander';
import { HoldfastError } from '../base/errors.js';
import { socketPath } from '../config-values.js';
import { devLayout } from '../dev/layout.js';
import { adminClient, type AdminClient } from './service-client.js';

export interface ClientOptions {
  readonly socket?: string;
  readonly dir?: string;
  readonly json?: true;
}

export const CALL_TIMEOUT_MS = 15_000;
const SOCKET_VARIABLE = 'HOLDFAST_SOCKET';

/** A command that asks the controller. */
export function clientCommand(parent: Command, name: string, what: string): Command {
  return parent
    .command(name)
    .description(what)
    .option('--socket <path>', `the controller's socket (or ${SOCKET_VARIABLE})`)
    .option('--dir <path>', 'directory of a dev cluster, in place of --socket')
    .option('--json', 'for machines');
}

/** Asks the controller of the options, and lets go of it. */
export async function ask<T>(options: ClientOptions, question: (admin: AdminClient) => Promise<T>): Promise<T> {
  const admin = adminClient(controllerSocket(options));
  try {
    return await question(admin);
  } finally {
    admin.close();
  }
}

function controllerSocket(options: ClientOptions): string {
  const { socket, dir } = options;
  if (socket !== undefined && dir !== undefined) {
    throw new HoldfastError('invalid-argument', '--socket and --dir are both given; give one of them');
  }
  if (dir !== undefined) return devLayout(resolve(dir)).controllerSocket;
  const path = socket ?? process.env[SOCKET_VARIABLE];
  if (path !== undefined && path !== '') return socketPath(resolve(path));
  throw new HoldfastError(
    'invalid-argument',
    `which controller? give --socket PATH, or --dir DIR of a dev cluster, or set ${SOCKET_VARIABLE}`,
  );
}

/** For a machine or for a person. */
export function print(options: ClientOptions, value: unknown, text: () => string): void {
  process.stdout.write(`${options.json === true ? JSON.stringify(value, null, 2) : text()}\n`);
}
