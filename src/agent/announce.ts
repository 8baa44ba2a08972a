import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { codeOf, HoldfastError } from '../base/errors.js';
import type { NodeName } from '../model/ids.js';
import { SCHEMA_VERSION, type DiskRecord, type NodeRecord, type RecordTypes } from '../model/records.js';
import type { RecordStore } from '../store/store.js';
import { writeDurably } from '../pool/durable-file.js';
import { readKept } from './kept-text.js';

/*
 * What a node tells the cluster about itself: its own record, and one for each of its disks.
 */

/** A change of used bytes below this is not worth a write. */
const NOTICEABLE_BYTES = 64 * 1024 * 1024;

/** A disk as its node sees it now. */
export type DiskState = Omit<DiskRecord, 'schema' | 'node'>;

/** The node's uid: made once and kept in the (existing) directory, durable before anybody hears of it. */
export async function readNodeUid(stateDirectory: string): Promise<string> {
  const path = join(stateDirectory, 'node-uid');
  const known = await readKept(path);
  if (known !== '') return known;
  const made = randomUUID();
  await writeDurably(path, `${made}\n`);
  return made;
}

/**
 * Publishes where this node is. A record left by an earlier node of the same name is taken over, with its cordon; the
 * caller has made sure that that node is no longer alive.
 */
export async function publishNode(store: RecordStore, node: Omit<NodeRecord, 'schema' | 'cordoned'>): Promise<void> {
  await put(store, 'node', node.name, (before) => ({
    ...before,
    ...node,
    schema: SCHEMA_VERSION,
    cordoned: before?.cordoned ?? false,
  }));
}

/**
 * Given a node that lives and whose record is gone, because a person took it for dead and removed it, then it joins the
 * cluster again, with its disks.
 */
export async function rejoin(
  store: RecordStore,
  node: Omit<NodeRecord, 'schema' | 'cordoned'>,
  disks: { forget(): void },
): Promise<void> {
  if ((await store.get('node', node.name)) !== undefined) return;
  await publishNode(store, node);
  disks.forget();
}

/**
 * Given the disks of this node, then their records say what they hold. The store is asked only when something
 * noticeable has changed since the last time.
 */
export class DiskAnnouncer {
  #announced: readonly DiskState[] | undefined;

  constructor(
    private readonly store: RecordStore,
    private readonly node: NodeName,
  ) {}

  /** What was announced may be gone: the next time all is announced again. */
  forget(): void {
    this.#announced = undefined;
  }

  async announce(disks: readonly DiskState[]): Promise<void> {
    if (this.#announced !== undefined && !anyDiffers(this.#announced, disks)) return;
    for (const disk of disks) {
      const capacityBytes = usableBytes(disk.capacityBytes);
      await putDisk(this.store, { ...disk, capacityBytes, schema: SCHEMA_VERSION, node: this.node });
    }
    await this.#announceLost(new Set(disks.map(({ diskId }) => diskId)));
    this.#announced = disks;
  }

  /** A disk that the record gives to this node but that is not here has failed. */
  async #announceLost(here: ReadonlySet<string>): Promise<void> {
    const { items } = await this.store.list('disk');
    for (const { record } of items) {
      if (record.node !== this.node || here.has(record.diskId)) continue;
      await putDisk(this.store, { ...record, state: 'failed', reason: `not found on node ${this.node}` });
    }
  }
}

/** What volumes may fill of a filesystem: it and the replicas' own files need the rest. */
export function usableBytes(filesystemBytes: number): number {
  return Math.max(0, Math.floor(filesystemBytes * 0.97) - 64 * 1024 ** 2);
}

function anyDiffers(before: readonly DiskState[], now: readonly DiskState[]): boolean {
  if (before.length !== now.length) return true;
  return now.some((disk) => {
    const old = before.find(({ diskId }) => diskId === disk.diskId);
    return old === undefined || differs(old, disk);
  });
}

async function putDisk(store: RecordStore, disk: DiskRecord): Promise<void> {
  await put(store, 'disk', disk.diskId, (before) => {
    if (before?.node === disk.node && !differs(before, disk)) return undefined;
    // It was moved to another node: that this one does not have it is no news.
    if (before !== undefined && before.node !== disk.node && disk.state !== 'ready') return undefined;
    return { ...before, ...disk };
  });
}

function differs(before: DiskState, now: DiskState): boolean {
  return (
    before.capacityBytes !== now.capacityBytes ||
    before.state !== now.state ||
    before.reason !== now.reason ||
    Math.abs(before.usedBytes - now.usedBytes) >= NOTICEABLE_BYTES
  );
}

/** Creates or changes one record; `change` says what it should be, or undefined for nothing to do. */
async function put<K extends 'node' | 'disk'>(
  store: RecordStore,
  kind: K,
  key: string,
  change: (before: PutRecord<K> | undefined) => PutRecord<K> | undefined,
): Promise<void> {
  for (let tries = 0; tries < 10; tries++) {
    const found = await store.get<K>(kind, key);
    const wanted = change(found?.record);
    if (wanted === undefined) return;
    try {
      if (found === undefined) await store.create<K>(kind, key, wanted);
      else await store.update<K>(kind, key, wanted, found.version);
      return;
    } catch (error) {
      const code = codeOf(error);
      if (code !== 'conflict' && code !== 'already-exists' && code !== 'not-found') throw error;
    }
  }
  throw new HoldfastError('aborted', `record ${key} of kind ${kind} is changed by others all the time`);
}

type PutRecord<K extends 'node' | 'disk'> = RecordTypes[K];
