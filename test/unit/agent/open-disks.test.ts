import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DiskAnnouncer } from '../../../src/agent/announce.js';
import { OpenDisks, type OpenableDisk } from '../../../src/agent/open-disks.js';
import { HoldfastError } from '../../../src/base/errors.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import type { DiskReport, DiskState } from '../../../src/pool/disk.js';
import type { ReplicaSummary } from '../../../src/replica/replicas.js';
import { MemoryStore } from '../../../src/store/memory-store.js';
import { RecordingLog } from '../../support/recording-log.js';

/** A disk that works or does not, as a test says. */
class HandDisk implements OpenableDisk {
  state: DiskState = 'ready';
  readonly incarnation = '1';

  constructor(readonly diskId: string) {}

  get directory(): string {
    return `/pool/${this.diskId}`;
  }

  check(): Promise<void> {
    return Promise.resolve();
  }

  report(): DiskReport {
    const reason = this.state === 'ready' ? '' : 'it took no write for 5000 ms';
    return { diskId: this.diskId, capacityBytes: 2 ** 40, usedBytes: 0, state: this.state, reason };
  }
}

/** A data path that has disks open. */
class HandDataPath {
  readonly open = new Set<string>();
  /** Disks on which opening waits. */
  readonly #hanging = new Map<string, { readonly answers: Promise<void>; readonly answer: () => void }>();
  readonly failing = new Set<string>();
  underWay = 0;

  async openDisk({ diskId }: { diskId: string }): Promise<ReplicaSummary[]> {
    this.underWay++;
    try {
      await this.#hanging.get(diskId)?.answers;
      if (this.failing.has(diskId)) throw new HoldfastError('io-error', 'EIO');
      this.open.add(diskId);
      return [];
    } finally {
      this.underWay--;
    }
  }

  hang(diskId: string): void {
    let answer = (): void => undefined;
    const answers = new Promise<void>((resolve) => (answer = resolve));
    this.#hanging.set(diskId, { answers, answer });
  }

  resume(diskId: string): void {
    this.#hanging.get(diskId)?.answer();
    this.#hanging.delete(diskId);
  }
}

describe('the disks of a node', () => {
  const [slow, sound] = ['disk-slow', 'disk-sound'];
  let disks: Map<string, HandDisk>;
  let dataPath: HandDataPath;
  let told: RecordingLog;
  let store: MemoryStore;
  let openDisks: OpenDisks;
  let announcer: DiskAnnouncer;

  beforeEach(() => {
    vi.useFakeTimers();
    disks = new Map([slow, sound].map((diskId) => [diskId, new HandDisk(diskId)]));
    dataPath = new HandDataPath();
    told = new RecordingLog();
    store = new MemoryStore();
    const pool = {
      readyDisks: () => [...disks.values()].filter(({ state }) => state === 'ready'),
      report: () => Promise.resolve([...disks.values()].map((disk) => disk.report())),
    };
    openDisks = new OpenDisks({ pool, replicas: dataPath, clock: createNodeIo().clock, log: told.log });
    announcer = new DiskAnnouncer(store, 'node-1');
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  function disk(diskId: string): HandDisk {
    const found = disks.get(diskId);
    if (!found) throw new Error(`no disk ${diskId}`);
    return found;
  }

  async function round(): Promise<void> {
    const reports = openDisks.round();
    await vi.advanceTimersByTimeAsync(5_000);
    await announcer.announce(await reports);
  }

  /** What the cluster knows. */
  async function announced(diskId: string): Promise<string> {
    const found = await store.get('disk', diskId);
    return found === undefined ? 'nothing' : `${found.record.state} ${found.record.reason}`.trim();
  }

  async function ended(work: Promise<void>): Promise<boolean> {
    let done = false;
    void work.then(() => (done = true));
    await vi.advanceTimersByTimeAsync(0);
    return done;
  }

  it('that did not work at the start are opened as soon as they do, and are told to be ready only then', async () => {
    disk(slow).state = 'failed';
    await openDisks.openAtStart();
    await round();
    expect([...dataPath.open]).toEqual([sound]);
    expect(await announced(slow)).toBe('failed it took no write for 5000 ms');
    expect(await announced(sound)).toBe('ready');
    dataPath.hang(slow);
    disk(slow).state = 'ready';
    await round();
    expect(await announced(slow)).toBe('failed its replicas are being opened');
    dataPath.resume(slow);
    await round();
    expect(dataPath.open).toContain(slow);
    expect(await announced(slow)).toBe('ready');
  });

  it('that can not be opened are tried again, and are no longer told to have failed when they are open', async () => {
    dataPath.failing.add(slow);
    await openDisks.openAtStart();
    await round();
    await round();
    expect(await announced(slow)).toBe("failed its replicas can't be read: EIO");
    expect(told.events).toHaveLength(1);
    dataPath.failing.clear();
    await round();
    expect(await announced(slow)).toBe('ready');
  });

  it('are asked once at a time, however long one hangs, and one does not hold up the others', async () => {
    disk(sound).state = 'failed';
    dataPath.hang(slow);
    const start = openDisks.openAtStart();
    disk(sound).state = 'ready';
    await round();
    await round();
    expect(dataPath.underWay).toBe(1);
    expect(await announced(sound)).toBe('ready');
    expect(await announced(slow)).toBe('failed its replicas are being opened');
    dataPath.resume(slow);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await ended(start)).toBe(true);
  });

  it('hold up the start as long as they work, and not when they work no more', async () => {
    dataPath.hang(slow);
    const start = openDisks.openAtStart();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(await ended(start)).toBe(false);
    disk(slow).state = 'failed';
    await vi.advanceTimersByTimeAsync(5_000);
    expect(await ended(start)).toBe(true);
    expect([...dataPath.open]).toEqual([sound]);
  });

  it('stay open when they fail later, and are ready again when they work again', async () => {
    await openDisks.openAtStart();
    disk(slow).state = 'failed';
    await round();
    expect(await announced(slow)).toBe('failed it took no write for 5000 ms');
    dataPath.failing.add(slow);
    disk(slow).state = 'ready';
    await round();
    expect(await announced(slow)).toBe('ready');
  });
});
