import fc from 'fast-check';
import { expect, it } from 'vitest';
import { RebuildWorld } from './rebuild-world.js';

const NAMES = ['a', 'b', 'c', 'd', 'e'] as const;
const VOLUMES = 4;
/** The grace period, short, so that a run sees nodes return both before and after it. */
const LIMITS = { graceMs: 60_000, diskGraceMs: 6_000, inspectEveryMs: 9_000 };

type Event =
  | { readonly kind: 'die' | 'come-back' | 'fail-disk' | 'mend-disk'; readonly node: string }
  | { readonly kind: 'attach'; readonly volume: number; readonly node: string }
  | { readonly kind: 'detach' | 'lose-answer'; readonly volume: number }
  | { readonly kind: 'set'; readonly volume: number; readonly replicas: number }
  | { readonly kind: 'copy'; readonly on: boolean }
  | { readonly kind: 'pass'; readonly rounds: number };

const node = fc.constantFrom(...NAMES);
const volume = fc.nat(VOLUMES - 1);
const event: fc.Arbitrary<Event> = fc.oneof(
  fc.record({ kind: fc.constantFrom('die', 'come-back', 'fail-disk', 'mend-disk'), node }),
  fc.record({ kind: fc.constant('attach'), volume, node }),
  fc.record({ kind: fc.constantFrom('detach', 'lose-answer'), volume }),
  fc.record({ kind: fc.constant('set'), volume, replicas: fc.integer({ min: 1, max: 3 }) }),
  fc.record({ kind: fc.constant('copy'), on: fc.boolean() }),
  fc.record({ kind: fc.constant('pass'), rounds: fc.integer({ min: 1, max: 30 }) }),
);

async function makeWorld(): Promise<{ world: RebuildWorld; volumes: string[] }> {
  const world = new RebuildWorld(LIMITS);
  for (const [index, name] of NAMES.entries()) await world.addNode(name, { zone: `zone-${index % 3}` });
  const volumes: string[] = [];
  for (let i = 0; i < VOLUMES; i++) {
    const at = [NAMES[i % NAMES.length] ?? 'a', NAMES[(i + 1) % NAMES.length] ?? 'b'];
    volumes.push(await world.addVolume(i + 1, at));
  }
  return { world, volumes };
}

/** Losing the last copy is nobody's to heal: a disk fails only where every volume has its data elsewhere too. */
async function mayFail(world: RebuildWorld, name: string): Promise<boolean> {
  const records = await world.records();
  return records.every((record) =>
    record.replicas.some(
      (one) =>
        one.node !== name && one.inSync && world.node(one.node).alive && world.node(one.node).replicas.has(record.id),
    ),
  );
}

async function happen(world: RebuildWorld, volumes: readonly string[], what: Event): Promise<void> {
  const id = 'volume' in what ? (volumes[what.volume] ?? '') : '';
  switch (what.kind) {
    case 'die':
      world.die(what.node);
      return;
    case 'come-back':
      if (!world.node(what.node).alive) await world.comeBack(what.node);
      return;
    case 'fail-disk':
      if (await mayFail(world, what.node)) await world.failDisk(what.node);
      return;
    case 'mend-disk':
      return world.mendDisk(what.node);
    case 'attach': {
      const { writer } = await world.record(id);
      const free = writer === null || writer.maintenance === true || !world.node(writer.node).alive;
      if (free && world.node(what.node).alive) await world.attach(id, what.node).catch(() => undefined);
      return;
    }
    case 'detach':
      return world.detach(id);
    case 'lose-answer':
      world.answersLost++;
      return;
    case 'set':
      return world.setReplicas(id, what.replicas);
    case 'copy':
      world.copying = what.on;
      return;
    case 'pass':
      for (let i = 0; i < what.rounds; i++) {
        await world.round();
        await check(world);
      }
  }
}

/** What must hold after every round. */
async function check(world: RebuildWorld): Promise<void> {
  for (const { id, replicas } of await world.records()) {
    const nodes = replicas.map((one) => one.node);
    expect(new Set(nodes).size, `${id} has two replicas on one node: ${nodes.join()}`).toBe(nodes.length);
    const whole = replicas.filter((one) => one.inSync && world.node(one.node).replicas.has(id));
    expect(whole.length, `${id} has lost its last in-sync replica`).toBeGreaterThan(0);
  }
}

it('whatever happens to nodes, disks and wishes, no last copy is lost, and in the end every volume is as wanted', async () => {
  const run = async (events: readonly Event[]): Promise<void> => {
    const { world, volumes } = await makeWorld();
    for (const what of events) {
      await happen(world, volumes, what);
      await check(world);
    }
    world.copying = true;
    for (const name of NAMES) {
      if (!world.node(name).alive) await world.comeBack(name);
      await world.mendDisk(name);
    }
    // The longest pause between two tries to bring a volume into line, and some.
    await world.pass(20 * 60_000);
    for (const { id, parameters, replicas } of await world.records()) {
      const inSync = replicas.filter((one) => one.inSync && world.node(one.node).replicas.has(id));
      expect(inSync, `${id}: ${JSON.stringify(replicas)}`).toHaveLength(parameters.replicas);
      expect(replicas).toHaveLength(parameters.replicas);
    }
  };
  await fc.assert(fc.asyncProperty(fc.array(event, { maxLength: 40 }), run), { numRuns: 25, endOnFailure: true });
}, 120_000);

it('however many volumes lose a node, no other node copies more of them at once than the bound', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3 }),
      fc.integer({ min: 1, max: 12 }),
      fc.boolean(),
      async (bound, count, attached) => {
        const world = new RebuildWorld({ ...LIMITS, rebuildsPerNode: bound });
        for (const name of NAMES) await world.addNode(name);
        const volumes: string[] = [];
        for (let i = 0; i < count; i++) {
          const other = NAMES[1 + (i % 4)] ?? 'b';
          volumes.push(await world.addVolume(i + 1, ['a', other]));
          if (attached) await world.attach(volumes[i] ?? '', other);
        }
        world.die('a');
        await world.pass(LIMITS.graceMs + 15_000 + count * 30_000);
        expect(world.mostCopying).toBeLessThanOrEqual(bound);
        for (const id of volumes)
          expect(await world.replicas(id)).toSatisfy(
            (all: string[]) => all.length === 2 && all.every((one) => one.endsWith('*')),
          );
      },
    ),
    { numRuns: 15 },
  );
}, 120_000);
