import { describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import type { Io, Stream } from '../../../src/io/io.js';
import { Prng } from '../../sim/prng.js';
import type { SimMachine, SimProcess } from '../../sim/sim-machine.js';
import { SimWorld } from '../../sim/sim-world.js';

const NAMES = ['a', 'b', 'c'] as const;
const PORT = 7;
const TIME_MS = 30_000;

/** What every sender sends: at each place in its stream a byte that tells the place. */
const PATTERN = Uint8Array.from({ length: 2_000 }, (_, at) => at % 251);
const sentAt = (at: number, length: number): Uint8Array => PATTERN.subarray(at % 251, (at % 251) + length);

interface Outcome {
  readonly trace: number;
  readonly events: number;
  /** What every process saw, in order. */
  readonly log: string;
  readonly received: number;
  readonly connectionsLeft: number;
}

/**
 * Processes that send each other numbered bytes and note them in files, while everything fails that can. A receiver
 * checks that a stream is a gapless beginning of what was sent.
 */
async function chaos(seed: number): Promise<Outcome> {
  const world = new SimWorld(seed);
  const random = new Prng(seed * 7);
  const machines = NAMES.map((name) => world.machine(name));
  const processes = new Map<SimMachine, SimProcess>();
  const log: string[] = [];
  let received = 0;

  const receive = async (io: Io, name: string, stream: Stream): Promise<void> => {
    let next = 0;
    const into = new Uint8Array(1_000);
    for (;;) {
      const part = into.subarray(0, 1 + (next % 1_000));
      await stream.read(part);
      if (Buffer.compare(part, sentAt(next, part.length)) !== 0) throw new Error(`byte ${next} is not what was sent`);
      next += part.length;
      received += part.length;
      log.push(`${name} ${next} ${io.clock.now()}`);
    }
  };
  const send = async (io: Io, name: string): Promise<void> => {
    const file = await io.files.open(`/log`, { write: true, create: true, direct: false });
    for (let round = 0; ; round++) {
      const host = NAMES[Math.floor(io.random.fraction() * NAMES.length)] ?? 'a';
      const stream = await io.network.connect({ kind: 'tcp', host, port: PORT }, 500);
      try {
        for (let at = 0; at < 20_000;) {
          const part = sentAt(at, 1 + Math.floor(io.random.fraction() * 900));
          at += part.length;
          const half = part.length >> 1;
          await stream.write([part.subarray(0, half), part.subarray(half)]);
          if (io.random.fraction() < 0.1) await file.write(part, at);
          if (io.random.fraction() < 0.05) await file.sync();
          if (io.random.fraction() < 0.2) await io.clock.sleep(io.random.fraction() * 30);
        }
      } finally {
        stream.close();
      }
      log.push(`${name} sent ${round} ${io.random.hex(2)}`);
    }
  };
  const start = (machine: SimMachine): void => {
    const process = machine.startProcess('p');
    processes.set(machine, process);
    const { io } = process;
    const guarded = (work: () => Promise<void>): void => {
      void work().catch((error: unknown) => {
        if (!(error instanceof HoldfastError)) world.schedule.fail(error);
      });
    };
    guarded(async () => {
      await io.network.listen({ kind: 'tcp', host: machine.name, port: PORT }, (stream) =>
        guarded(() => receive(io, machine.name, stream)),
      );
      for (;;) {
        await send(io, machine.name).catch((error: unknown) => {
          if (!(error instanceof HoldfastError)) throw error;
          log.push(`${machine.name} ${error.code}`);
        });
        await io.clock.sleep(20);
      }
    });
  };
  const disturb = (): void => {
    const machine = random.pick(machines);
    const process = processes.get(machine);
    const [from, to] = [random.pick(NAMES), random.pick(NAMES)];
    const { faults } = machine.disk;
    random.pick([
      () => world.network.cut(from, to),
      () => world.network.heal(from, to),
      () => world.network.healAll(),
      () => world.network.slow(from, to, random.below(30)),
      () => world.network.reset(from, to),
      () => machine.crash(),
      () => process?.kill(),
      () => (process?.paused ? process.resume() : process?.pause()),
      () => (faults.hung = random.chance(0.3)),
      () => (faults.syncErrors = random.chance(0.3) ? 0.3 : 0),
      () => (machine.clockRate = random.between(0.9, 1.1)),
      () => machine.jumpClock(random.below(1_000)),
    ])();
    if (process?.alive === false)
      world.schedule.after(random.below(2_000), () => {
        if (processes.get(machine)?.alive === false) start(machine);
      });
    world.schedule.after(random.below(600), disturb);
  };

  machines.forEach(start);
  disturb();
  await world.pass(TIME_MS);
  for (const process of processes.values()) process.kill();
  return {
    trace: world.schedule.trace,
    events: world.schedule.events,
    log:
      log.join('\n') + machines.map(({ disk }) => Buffer.from(disk.peek('/log', 0, 1e6) ?? []).toString('hex')).join(),
    received,
    connectionsLeft: world.network.connections(),
  };
}

describe('machines on which everything fails', () => {
  it('do the same for the same seed, and never get what was not sent', { timeout: 60_000 }, async () => {
    const traces = new Set<number>();
    for (let seed = 1; seed <= 6; seed++) {
      const one = await chaos(seed);
      const other = await chaos(seed);
      expect(other.trace).toBe(one.trace);
      expect(other.events).toBe(one.events);
      expect(other.log === one.log).toBe(true);
      expect(one.received).toBeGreaterThan(50_000);
      expect(one.connectionsLeft).toBe(0);
      traces.add(one.trace);
    }
    expect(traces.size).toBe(6);
  });
});
