import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { HoldfastError } from '../base/errors.js';
import type { DevLayout } from './layout.js';

/** What stands in DIR/dev.json while a dev cluster is ready. */
export interface DevDescription {
  /** The process `holdfast dev` itself. */
  readonly pid: number;
  readonly controllerSocket: string;
  readonly controllerPid: number;
  /** The controller's, reached in switchNamespace. */
  readonly metrics: string;
  readonly switchNamespace: string;
  readonly nodes: readonly DevNodeDescription[];
}

export interface DevNodeDescription {
  readonly name: string;
  readonly csiSocket: string;
  readonly kubeletDir: string;
  /** For `nsenter --net=/run/netns/…`. */
  readonly networkNamespace: string;
  /** The node plugin; 0 while it does not run. */
  readonly pid: number;
  readonly address: string;
  /** URL of the plugin's metrics, reached in networkNamespace. */
  readonly metrics: string;
  readonly zone: string;
  readonly stateDirectory: string;
  readonly disks: readonly string[];
  readonly log: string;
}

export async function writeDescription(layout: DevLayout, description: DevDescription): Promise<void> {
  const draft = `${layout.description}.new`;
  await writeFile(draft, `${JSON.stringify(description, null, 2)}\n`);
  await rename(draft, layout.description);
}

export async function removeDescription(layout: DevLayout): Promise<void> {
  await rm(layout.description, { force: true });
}

/** `failed-precondition` where no dev cluster is ready on the directory. */
export async function readDescription(layout: DevLayout): Promise<DevDescription> {
  const text = await readFile(layout.description, 'utf8').catch(() => undefined);
  if (text === undefined) {
    throw new HoldfastError(
      'failed-precondition',
      `no dev cluster is ready on ${layout.directory}; start one with: holdfast dev --dir ${layout.directory}`,
    );
  }
  return JSON.parse(text) as DevDescription;
}
