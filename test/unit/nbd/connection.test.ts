import { afterEach, describe, expect, it } from 'vitest';
import type { Clock, Io } from '../../../src/io/io.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import type { Export, ExportClient } from '../../../src/nbd/stage.js';
import { MemoryStage } from '../../support/memory-stage.js';
import { MIB, PAGE, startNbd, until, type NbdFixture } from '../../support/nbd-fixture.js';
import { goData, option, request, type RawPeer } from '../../support/raw-nbd.js';
import { RecordingLog } from '../../support/recording-log.js';

const started: NbdFixture[] = [];

afterEach(async () => {
  for (const nbd of started.splice(0)) {
    await nbd.end();
    expect(nbd.serverSlab.usedBytes).toBe(0);
    expect(nbd.server.connectionCount).toBe(0);
  }
});

async function start(...args: Parameters<typeof startNbd>): Promise<NbdFixture> {
  const nbd = await startNbd(...args);
  started.push(nbd);
  return nbd;
}

/** A raw client in transmission, without structured replies. */
async function enter(nbd: NbdFixture): Promise<RawPeer> {
  const peer = await nbd.raw();
  await peer.shakeHands(option(7, goData('volume')));
  return peer;
}

function write(cookie: number, offset = 0, length = PAGE): Buffer {
  return Buffer.concat([request({ type: 1, cookie, offset, length }), Buffer.alloc(length, cookie)]);
}

function clientOf(nbd: NbdFixture): ExportClient {
  const client = nbd.exports.clients.at(-1);
  if (client === undefined) throw new Error('nobody has opened the export');
  return client;
}

async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(() => (settled = true));
  await new Promise((resolve) => setTimeout(resolve, 20));
  return settled;
}

/** Time that passes only by hand. */
class HandClock implements Clock {
  #now = 0;
  readonly #timers = new Map<object, { at: number; fire: () => void }>();

  now(): number {
    return this.#now;
  }

  timer(delayMs: number, fire: () => void): () => void {
    const key = {};
    this.#timers.set(key, { at: this.#now + delayMs, fire });
    return () => this.#timers.delete(key);
  }

  sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => this.timer(delayMs, resolve));
  }

  pass(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const [key, next] = [...this.#timers].sort((a, b) => a[1].at - b[1].at)[0] ?? [];
      if (key === undefined || next === undefined || next.at > end) break;
      this.#timers.delete(key);
      this.#now = next.at;
      next.fire();
    }
    this.#now = end;
  }

  get timers(): number {
    return this.#timers.size;
  }
}

function handIo(clock: Clock): Io {
  return { ...createNodeIo(), clock };
}

describe('a connection', () => {
  it('that is closed by its export begins nothing more, and is drained when what was begun has settled', async () => {
    let closed = 0;
    const nbd = await start({ closed: () => closed++ });
    const peer = await enter(nbd);
    const release = nbd.stage.hold();
    peer.send(write(1), write(2), request({ type: 1, cookie: 3, length: PAGE }));
    await until(() => nbd.stage.underWay === 2);
    const client = clientOf(nbd);
    client.close();
    client.close();
    peer.send(Buffer.alloc(PAGE), write(4));
    await peer.closed();
    expect(await isSettled(client.drained)).toBe(false);
    expect(closed).toBe(0);
    release();
    await client.drained;
    expect(closed).toBe(1);
    expect(nbd.stage.calls).toEqual([`write 0 ${PAGE}`, `write 0 ${PAGE}`]);
    await until(() => nbd.server.connectionCount === 0);
    expect(closed).toBe(1);
  });

  it('that is lost carries out what was begun, and only then is drained', async () => {
    let closed = 0;
    const nbd = await start({ closed: () => closed++ });
    const peer = await enter(nbd);
    const release = nbd.stage.hold();
    peer.send(write(1));
    await until(() => nbd.stage.underWay === 1);
    peer.close();
    const { drained } = clientOf(nbd);
    expect(await isSettled(drained)).toBe(false);
    release();
    await drained;
    expect(closed).toBe(1);
    expect(nbd.stage.bytes[0]).toBe(1);
  });

  it('that says goodbye has everything carried out and answered first', async () => {
    const nbd = await start();
    const peer = await enter(nbd);
    const release = nbd.stage.hold();
    peer.send(write(1), write(2, PAGE), request({ type: 2 }), write(3, 2 * PAGE));
    await until(() => nbd.stage.underWay === 2);
    release();
    const answered = [await peer.takeSimple(), await peer.takeSimple()];
    expect(answered.map(({ errno, cookie }) => [errno, Number(cookie)]).sort()).toEqual([
      [0, 1],
      [0, 2],
    ]);
    await peer.closed();
    expect(nbd.stage.calls).toHaveLength(2);
    expect(peer.received).toHaveLength(0);
  });

  it('that ends while its export is being opened leaves it closed again, once', async () => {
    let closed = 0;
    const nbd = await start({ closed: () => closed++ });
    const open = nbd.exports.open.bind(nbd.exports);
    let go: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (go = resolve));
    let client: ExportClient | undefined;
    nbd.exports.open = async (name, opener): Promise<Export> => {
      client = opener;
      await gate;
      return open(name, opener);
    };
    const peer = await nbd.raw();
    await peer.take(18);
    peer.send(Buffer.from([0, 0, 0, 3]), option(7, goData('volume')));
    await until(() => client !== undefined);
    peer.close();
    await client?.drained;
    expect(closed).toBe(0);
    go();
    await until(() => nbd.server.connectionCount === 0);
    expect(closed).toBe(1);
  });

  it('has no more requests under way than allowed, and goes on as they are answered', async () => {
    const nbd = await start({}, { maxInFlight: 4 });
    const peer = await enter(nbd);
    const release = nbd.stage.hold();
    for (let cookie = 1; cookie <= 20; cookie++) peer.send(write(cookie, cookie * PAGE));
    await until(() => nbd.stage.underWay === 4);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(nbd.stage.underWay).toBe(4);
    release();
    const cookies = new Set<bigint>();
    for (let count = 0; count < 20; count++) cookies.add((await peer.takeSimple()).cookie);
    expect(cookies.size).toBe(20);
  });

  it('takes in no more than there is memory for', async () => {
    const nbd = await start();
    const peer = await enter(nbd);
    const release = nbd.stage.hold();
    for (let cookie = 1; cookie <= 12; cookie++) peer.send(write(cookie, 0, MIB));
    await until(() => nbd.stage.underWay === 8);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(nbd.stage.underWay).toBe(8);
    release();
    for (let count = 0; count < 12; count++) expect((await peer.takeSimple()).errno).toBe(0);
  });

  it('is cut off where the handshake takes too long, but not for the time that opening takes', async () => {
    const clock = new HandClock();
    const nbd = await start({}, { io: handIo(clock) });
    const silent = await nbd.raw();
    await silent.take(18);
    const open = nbd.exports.open.bind(nbd.exports);
    let opening = false;
    let go: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (go = resolve));
    nbd.exports.open = async (name, client): Promise<Export> => {
      opening = true;
      await gate;
      return open(name, client);
    };
    const patient = await nbd.raw();
    await patient.take(18);
    patient.send(Buffer.from([0, 0, 0, 3]), option(7, goData('volume')));
    await until(() => opening);
    clock.pass(9_000);
    expect(silent.ended).toBe(false);
    clock.pass(2_000);
    await silent.closed();
    go();
    expect((await patient.takeOptionReply()).type).toBe(3);
  });

  it('may be idle for ever, but is cut off where it holds memory and moves nothing', async () => {
    const clock = new HandClock();
    const nbd = await start({}, { io: handIo(clock) });
    const idle = await enter(nbd);
    const stuck = await enter(nbd);
    const deaf = await enter(nbd);
    stuck.send(request({ type: 1, cookie: 1, length: PAGE }), Buffer.alloc(10));
    deaf.socket.pause();
    for (let cookie = 1; cookie <= 4; cookie++) deaf.send(request({ type: 0, cookie, length: 4 * MIB }));
    await until(() => nbd.serverSlab.usedBytes > 4 * MIB);
    await new Promise((resolve) => setTimeout(resolve, 50));
    clock.pass(25_000);
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(nbd.server.connectionCount).toBe(3);
    clock.pass(20_000);
    await stuck.closed();
    await until(() => nbd.server.connectionCount === 1);
    expect(nbd.serverSlab.usedBytes).toBe(0);
    idle.send(request({ type: 3, cookie: 5 }));
    expect(await idle.takeSimple()).toEqual({ errno: 0, cookie: 5n });
    idle.close();
    await until(() => nbd.server.connectionCount === 0);
    expect(clock.timers).toBe(0);
  });

  it('above the limit is turned away, and the others go on', async () => {
    const nbd = await start({}, { maxConnections: 2 });
    const first = await enter(nbd);
    const second = await enter(nbd);
    await (await nbd.raw()).closed();
    first.send(request({ type: 3 }));
    expect((await first.takeSimple()).errno).toBe(0);
    second.close();
    await until(() => nbd.server.connectionCount === 1);
    await enter(nbd);
  });

  it('is served beside a thousand others', async () => {
    const nbd = await start();
    for (let some = 0; some < 11; some++) {
      const peers = await Promise.all(Array.from({ length: 100 }, () => nbd.raw()));
      await Promise.all(peers.map((peer) => peer.take(18)));
    }
    expect(nbd.server.connectionCount).toBe(1_100);
    await enter(nbd);
  });

  it('above the limit is served where it asks for the export that has room of its own, and for no other', async () => {
    const log = new RecordingLog();
    const nbd = await start({}, { maxConnections: 2, roomFor: 'vital', log: log.log });
    const vital = new MemoryStage(MIB);
    nbd.exports.exports['vital'] = { stage: vital, readOnly: false };
    await enter(nbd);
    await enter(nbd);
    const kept = await nbd.connect('vital');
    await kept.flush();
    expect(vital.calls).toEqual(['flush']);
    for (let time = 0; time < 3; time++) {
      await expect(nbd.connect('volume')).rejects.toMatchObject({ code: 'unavailable' });
      await until(() => nbd.server.connectionCount === 3);
    }
    expect(nbd.exports.clients).toHaveLength(3);
    expect(log.events.map(({ msg }) => msg)).toEqual(['clients turned away']);
    await kept.flush();
  });

  it('that comes and goes leaves nothing behind, 500 times over', async () => {
    const nbd = await start();
    for (let round = 0; round < 500; round++) {
      const peer = await nbd.raw();
      if (round % 2 === 0) await peer.take(18);
      peer.close();
    }
    await until(() => nbd.server.connectionCount === 0);
    await enter(nbd);
  });
});
