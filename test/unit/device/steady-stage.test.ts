import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { silentLog } from '../../../src/base/log.js';
import { SteadyStage, type ConnectedStage } from '../../../src/device/steady-stage.js';
import type { Clock, Lease } from '../../../src/io/io.js';

/** An export that answers when told to, and whose connections can be cut. */
class FakeExport {
  readonly seen: string[] = [];
  readonly held: { resolve: () => void; reject: (error: HoldfastError) => void }[] = [];
  connections = 0;
  refusal: HoldfastError | undefined;
  #cut: ((reason: HoldfastError) => void) | undefined;

  connect(): Promise<ConnectedStage> {
    if (this.refusal !== undefined) return Promise.reject(this.refusal);
    const number = ++this.connections;
    const mine: typeof this.held = [];
    let ended: HoldfastError | undefined;
    let end: (reason: HoldfastError) => void = () => undefined;
    const lost = new Promise<HoldfastError>((resolve) => {
      end = (reason) => {
        ended = reason;
        for (const { reject } of mine.splice(0)) reject(reason);
        resolve(reason);
      };
    });
    this.#cut = end;
    const hold = (what: string): Promise<void> =>
      new Promise((resolve, reject) => {
        if (ended !== undefined) {
          reject(ended);
          return;
        }
        this.seen.push(`${number}:${what}`);
        const request = { resolve, reject };
        mine.push(request);
        this.held.push(request);
      });
    return Promise.resolve({
      sizeBytes: 4096,
      lost,
      close: () => end(new HoldfastError('unavailable', 'closed')),
      read: () => Promise.reject(new HoldfastError('io-error', 'bad sector')),
      write: (offset) => hold(`write ${offset}`),
      flush: () => hold('flush'),
      trim: () => Promise.reject(new HoldfastError('no-space', 'full')),
      zero: () => Promise.reject(new HoldfastError('fenced', 'newer epoch')),
      extents: () => Promise.resolve([]),
    });
  }

  cut(): void {
    this.#cut?.(new HoldfastError('unavailable', 'cut'));
  }
}

/** Time that passes at once. */
const hurried: Clock = {
  now: () => 0,
  timer: (_delayMs, fire) => {
    const timer = setImmediate(fire);
    return () => clearImmediate(timer);
  },
  sleep: () => new Promise((resolve) => setImmediate(resolve)),
};

/** Time that stands still. */
const still: Clock = { now: () => 0, timer: () => () => undefined, sleep: () => new Promise(() => undefined) };

const data: Lease = { bytes: new Uint8Array(4096), retain: () => undefined, release: () => undefined };

async function opened(clock: Clock = hurried): Promise<{ served: FakeExport; stage: SteadyStage }> {
  const served = new FakeExport();
  const connect = (): Promise<ConnectedStage> => served.connect();
  const stage = new SteadyStage({ connect, clock, log: silentLog(), sizeBytes: 4096 });
  await stage.open();
  return { served, stage };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

describe('a stage that outlives its connections', () => {
  test('sends what was unanswered again, and only that', async () => {
    const { served, stage } = await opened();
    const answered = stage.write(0, data, false);
    served.held[0]?.resolve();
    await answered;
    const first = stage.write(4096, data, false);
    const second = stage.flush();
    served.cut();
    await until(() => served.seen.length === 5);
    expect(served.seen).toEqual(['1:write 0', '1:write 4096', '1:flush', '2:write 4096', '2:flush']);
    for (const request of served.held) request.resolve();
    await Promise.all([first, second]);
  });

  test('lets requests wait while the export is away, whatever the refusal', async () => {
    const { served, stage } = await opened();
    served.cut();
    const write = stage.write(0, data, false);
    for (const code of ['unavailable', 'not-found', 'fenced', 'failed-precondition', 'corrupt'] as const) {
      served.refusal = new HoldfastError(code, 'not now');
      for (let turn = 0; turn < 20; turn++) await hurried.sleep(0);
    }
    expect(served.seen).toEqual([]);
    served.refusal = undefined;
    await until(() => served.seen.length === 1);
    served.held[0]?.resolve();
    await write;
  });

  test('passes on what the export answers', async () => {
    const { stage } = await opened();
    await expect(stage.trim(0, 4096, false)).rejects.toMatchObject({ code: 'no-space' });
    await expect(stage.zero(0, 4096, false, false)).rejects.toMatchObject({ code: 'fenced', message: 'newer epoch' });
  });

  test('fails what waits for a connection, at once', async () => {
    const { served, stage } = await opened(still);
    served.cut();
    const write = stage.write(0, data, false);
    stage.fail('ended');
    await expect(write).rejects.toMatchObject({ code: 'fenced', message: 'ended' });
  });

  test('fails what the export has not answered, and all that comes later', async () => {
    const { served, stage } = await opened();
    const write = stage.write(0, data, false);
    stage.fail('ended');
    stage.fail('again');
    await expect(write).rejects.toMatchObject({ code: 'fenced', message: 'ended' });
    await expect(stage.flush()).rejects.toMatchObject({ code: 'fenced' });
    expect(stage.failed).toBe(true);
    expect(served.connections).toBe(1);
  });

  test('an export that ends each connection at once is asked again after a pause', async () => {
    const { served, stage } = await opened(still);
    served.cut();
    for (let turn = 0; turn < 20; turn++) await hurried.sleep(0);
    expect(served.connections).toBe(1);
    stage.fail('ended');
  });

  test('where the first connection fails, so does the opening', async () => {
    const served = new FakeExport();
    served.refusal = new HoldfastError('not-found', 'no such export');
    const connect = (): Promise<ConnectedStage> => served.connect();
    const stage = new SteadyStage({ connect, clock: hurried, log: silentLog(), sizeBytes: 4096 });
    await expect(stage.open()).rejects.toMatchObject({ code: 'not-found' });
  });
});
