import { mkdir, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf, HoldfastError } from '../base/errors.js';
import { readMountTable } from '../base/mount-table.js';
import { run } from '../base/run.js';
import { controlNode } from '../dev/control.js';
import { readDescription, type DevNodeDescription } from '../dev/description.js';
import { CONTROLLER_ADDRESS, type DevLayout } from '../dev/layout.js';
import { isBelow } from '../dev/leftovers.js';
import { hear, lose } from '../dev/network.js';
import type { DrillFault } from './plan.js';

/** A fault of a running dev cluster. Both may be repeated; `end` also where `begin` failed half-way. */
export interface Fault {
  begin(): Promise<void>;
  end(): Promise<void>;
}

const FILL_TIMEOUT_MS = 60_000;
const BLOCK_BYTES = 4096;

export function faultOf(layout: DevLayout, nodes: readonly DevNodeDescription[], fault: DrillFault): Fault {
  switch (fault.kind) {
    case 'kill':
      return {
        begin: async () => signalPlugin(layout, fault.node, 'SIGKILL'),
        end: () => controlNode(layout, fault.node, 'start'),
      };
    case 'pause':
      return pauseOf(layout, fault.node);
    case 'cut':
      if (fault.oneWay) return lossOf(layout, nodes, [[fault.node, undefined]]);
      return {
        begin: () => controlNode(layout, fault.node, 'cut'),
        end: () => controlNode(layout, fault.node, 'heal'),
      };
    case 'split': {
      const there: Direction = [fault.from, fault.to];
      return lossOf(layout, nodes, fault.oneWay ? [there] : [there, [fault.to, fault.from]]);
    }
    case 'fill':
      return fillOf(layout, fault.node);
  }
}

/** One that was stopped and ended all the same is started again. */
function pauseOf(layout: DevLayout, node: string): Fault {
  return {
    begin: () => signalPlugin(layout, node, 'SIGSTOP'),
    end: async () => {
      await signalPlugin(layout, node, 'SIGCONT').catch((error: unknown) => {
        if (codeOf(error) !== 'failed-precondition') throw error;
      });
      await controlNode(layout, node, 'start');
    },
  };
}

async function signalPlugin(layout: DevLayout, name: string, signal: NodeJS.Signals): Promise<void> {
  const { nodes } = await readDescription(layout);
  const pid = nodes.find((node) => node.name === name)?.pid ?? 0;
  try {
    if (pid > 0) process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
  if (pid > 0) return;
  throw new HoldfastError('failed-precondition', `the plugin of node ${name} does not run; start it first`);
}

/** Packets from a node, to another one or (undefined) to all others and the controller. */
type Direction = readonly [from: string, to: string | undefined];

function lossOf(layout: DevLayout, nodes: readonly DevNodeDescription[], directions: readonly Direction[]): Fault {
  const addressOf = (name: string): string => nodes.find((node) => node.name === name)?.address ?? '';
  const lost = directions.flatMap(([from, to]) => {
    const others = nodes.filter((node) => node.name !== from).map((node) => node.address);
    const targets = to === undefined ? [CONTROLLER_ADDRESS, ...others] : [addressOf(to)];
    return targets.map((address) => ({ namespace: layout.node(from).namespace, address }));
  });
  return {
    begin: async () => {
      for (const { namespace, address } of lost) await lose(namespace, address);
    },
    end: async () => {
      for (const { namespace, address } of lost) await hear(namespace, address);
    },
  };
}

function fillOf(layout: DevLayout, node: string): Fault {
  const directories = async (): Promise<string[]> => {
    const { poolDirectory } = layout.node(node);
    const table = await readMountTable();
    return table
      .filter((entry) => entry.fsType === 'xfs' && isBelow(entry.mountPoint, poolDirectory))
      .map((entry) => join(entry.mountPoint, 'drill'));
  };
  return {
    begin: async () => {
      for (const directory of await directories()) await fill(directory);
    },
    end: async () => {
      for (const directory of await directories()) await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Allocates all that is free, in ever smaller pieces; nothing is written, so that the disk's file stays as small as it is. */
async function fill(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  const { bsize, bavail } = await statfs(directory);
  let size = wholeBlocks(bsize * bavail);
  for (let piece = 0; size >= BLOCK_BYTES; piece++) {
    try {
      await run('fallocate', ['--length', String(size), join(directory, String(piece))], {
        timeoutMs: FILL_TIMEOUT_MS,
      });
    } catch (error) {
      if (codeOf(error) !== 'io-error') throw error;
      size = wholeBlocks(size / 2);
    }
  }
}

function wholeBlocks(bytes: number): number {
  return Math.floor(bytes / BLOCK_BYTES) * BLOCK_BYTES;
}
