import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { afterCreate, newDisk, tryAgain, volumeOf, type EbsDisk } from '../../../src/ebs/disk-state.js';
import type { Wish } from '../../../src/ebs/disk-sight.js';
import { nextStep, type Step } from '../../../src/ebs/disk-steps.js';
import { CLUSTER, Ec2Model, type Fate, type Outcome } from './ec2-model.js';

const ROUND_MS = 10_000;
/** Of virtual time, after the last fault. */
const ROUNDS_TO_SETTLE = 250;
const INSTANCES = ['i-a', 'i-b', 'i-c'] as const;

interface Round {
  readonly event: Event;
  readonly fate: Fate;
  /** How old EC2's answer is; undefined: there is none. */
  readonly ageMs: number | undefined;
  readonly crash: 'before-record' | 'after-record' | 'after-act' | 'none';
}

const PLAIN_EVENTS = [
  'key-bad',
  'key-good',
  'last-replica',
  'more-replicas',
  'detached-by-hand',
  'untagged',
  'tagged',
  'hidden',
  'shown',
  'tokens-forgotten',
] as const;

type Event =
  | { readonly kind: 'none' | (typeof PLAIN_EVENTS)[number] }
  | { readonly kind: 'wish'; readonly wish: Wish }
  | { readonly kind: 'terminate' | 'silent' | 'answering'; readonly instanceId: string };

/** What the controller keeps in memory, and the disk's record in the store. */
class Controller {
  disk: EbsDisk = newDisk('disk-1');
  wish: Wish = { kind: 'in-pool', instanceId: 'i-a' };
  private refusedDevices = new Set<string>();
  private lastShown = '';
  private steadySinceMs = 0;

  constructor(private readonly model: Ec2Model) {}

  round({ fate, ageMs, crash }: Omit<Round, 'event'>): Step {
    const step = nextStep(this.disk, this.facts(ageMs));
    if (crash === 'before-record') return this.restart(step);
    const asked = step.record ?? this.disk;
    this.disk = asked;
    if (crash === 'after-record') return this.restart(step);
    if (step.act.kind === 'wait' || step.act.kind === 'rest') return step;
    const outcome = this.model.perform(step.act, fate);
    this.steadySinceMs = this.model.nowMs;
    if (crash === 'after-act') return this.restart(step);
    if (step.act.kind === 'attach' && outcome.kind === 'refused' && outcome.isDeviceBusy) {
      this.refusedDevices.add(step.act.device);
    }
    // A name let go is not asked for again at once.
    if (step.act.kind === 'detach' && 'place' in asked.state) this.refusedDevices.add(asked.state.place.device);
    if (step.act.kind === 'create') this.disk = afterCreate(this.disk, asked, created(outcome));
    return step;
  }

  private facts(ageMs: number | undefined): Parameters<typeof nextStep>[1] {
    const { model, wish, disk } = this;
    const volumes = ageMs === undefined ? undefined : model.describe(ageMs);
    const text = JSON.stringify(volumes ?? this.lastShown);
    if (volumes !== undefined && text !== this.lastShown) this.steadySinceMs = model.nowMs;
    if (volumes !== undefined) this.lastShown = text;
    const device = 'place' in disk.state ? disk.state.place.device : '';
    return {
      clusterId: CLUSTER,
      wish,
      ec2: volumes === undefined ? undefined : { volumes, steadyMs: model.nowMs - this.steadySinceMs },
      node: (instanceId, volumeId) => model.sight(instanceId, volumeId),
      isGone: (instanceId) => model.goneInstances.has(instanceId),
      freeDevice: wish.kind === 'in-pool' ? model.freeDevice(wish.instanceId, this.refusedDevices) : undefined,
      deviceRefused: this.refusedDevices.has(device),
      mayHoldLastReplica: model.holdsLast,
      kmsKey: 'alias/data',
    };
  }

  private restart(step: Step): Step {
    this.refusedDevices = new Set();
    this.lastShown = '';
    this.steadySinceMs = this.model.nowMs;
    return step;
  }
}

function created(outcome: Outcome): Parameters<typeof afterCreate>[2] {
  if (outcome.kind === 'done') return { kind: 'made', volumeId: outcome.volumeId };
  return outcome.kind === 'refused' ? { kind: 'refused', reason: 'denied' } : { kind: 'unknown' };
}

function happen(event: Event, model: Ec2Model, controller: Controller): void {
  switch (event.kind) {
    case 'wish':
      // Deletion is not taken back.
      if (controller.wish.kind !== 'deleted') controller.wish = event.wish;
      break;
    case 'terminate':
      model.terminate(event.instanceId);
      break;
    case 'silent':
      model.silentNodes.add(event.instanceId);
      break;
    case 'answering':
      model.silentNodes.delete(event.instanceId);
      break;
    case 'key-bad':
    case 'key-good':
      model.keyIsBad = event.kind === 'key-bad';
      break;
    case 'last-replica':
    case 'more-replicas':
      model.holdsLast = event.kind === 'last-replica';
      break;
    case 'detached-by-hand':
      model.detachByHand();
      break;
    case 'untagged':
    case 'tagged':
      model.tagOwn(event.kind === 'tagged');
      break;
    case 'hidden':
    case 'shown':
      model.hides = event.kind === 'hidden';
      break;
    case 'tokens-forgotten':
      model.forgetTokens();
      break;
    case 'none':
  }
  model.mayDelete = controller.wish.kind === 'deleted';
}

const place = fc.constantFrom(...INSTANCES);
const inPool = place.map((instanceId): Wish => ({ kind: 'in-pool', instanceId }));
const finalWish = fc.oneof(fc.constantFrom<Wish>({ kind: 'kept' }, { kind: 'deleted' }), inPool);
const wish = fc.oneof({ weight: 3, arbitrary: inPool }, { weight: 1, arbitrary: finalWish });

const none = fc.constant<Event>({ kind: 'none' });
const wishes = wish.map((each): Event => ({ kind: 'wish', wish: each }));
const plain = fc.constantFrom(...PLAIN_EVENTS).map((kind): Event => ({ kind }));
const replicas = fc.constantFrom('last-replica', 'more-replicas').map((kind): Event => ({ kind }));
const terminate = fc.constantFrom('i-a', 'i-b').map((instanceId): Event => ({ kind: 'terminate', instanceId }));
const silence = fc.record({ kind: fc.constantFrom('silent', 'answering'), instanceId: place });

/** All that can happen, with calm stretches in which times that only pass undisturbed do pass. */
const everything = fc.oneof(
  { weight: 14, arbitrary: none },
  { weight: 3, arbitrary: wishes },
  { weight: 1, arbitrary: terminate },
  { weight: 2, arbitrary: silence },
  { weight: 6, arbitrary: plain },
);

/** Nodes and keys are well, but what is wished changes while calls are under way. */
const changesOfMind = fc.oneof(
  { weight: 5, arbitrary: none },
  { weight: 3, arbitrary: wishes },
  { weight: 1, arbitrary: replicas },
);

function roundsOf(event: fc.Arbitrary<Event>, calmRounds: readonly number[]): fc.Arbitrary<Round[]> {
  const fate = fc.oneof(
    { weight: 5, arbitrary: fc.constant<Fate>('done') },
    { weight: 3, arbitrary: fc.constantFrom<Fate>('answer-lost', 'call-lost', 'late', 'refused') },
  );
  const crash = fc.oneof(
    { weight: 9, arbitrary: fc.constant('none' as const) },
    { weight: 1, arbitrary: fc.constantFrom('before-record' as const, 'after-record' as const, 'after-act' as const) },
  );
  const ageMs = fc.constantFrom(0, 0, 10_000, 20_000, 30_000, 30_000, undefined);
  const round: fc.Arbitrary<Round> = fc.record({ event, fate, ageMs, crash });
  return fc
    .array(fc.tuple(round, fc.constantFrom(...calmRounds)), { minLength: 1, maxLength: 40 })
    .map((stretches) => stretches.flatMap(([each, more]) => [each, ...Array<Round>(more).fill(calm(each.ageMs))]));
}

function calm(ageMs: number | undefined): Round {
  return { event: { kind: 'none' }, fate: 'done', ageMs: ageMs ?? 0, crash: 'none' };
}

function settle(model: Ec2Model, controller: Controller, last: Wish): void {
  model.keyIsBad = false;
  model.holdsLast = false;
  model.hides = false;
  model.tagOwn(true);
  model.silentNodes.clear();
  const isLost = last.kind === 'in-pool' && model.goneInstances.has(last.instanceId);
  const reachable: Wish = isLost ? { kind: 'in-pool', instanceId: 'i-c' } : last;
  if (controller.wish.kind !== 'deleted') controller.wish = reachable;
  model.mayDelete = controller.wish.kind === 'deleted';
  for (let count = 0; count < ROUNDS_TO_SETTLE; count++) {
    model.tick(ROUND_MS);
    controller.disk = tryAgain(controller.disk);
    controller.round(calm(0));
  }
}

function expectWished(model: Ec2Model, { disk, wish: wished }: Controller): void {
  const own = model.own();
  if (wished.kind === 'deleted') {
    expect(disk.state.kind).toBe('gone');
    expect(own).toEqual([]);
    return;
  }
  expect(own.map(({ id }) => id)).toEqual([volumeOf(disk.state)]);
  const [only] = own;
  expect(only?.place?.instanceId).toBe(wished.kind === 'in-pool' ? wished.instanceId : undefined);
  expect(model.inPool(only?.id ?? '')).toBe(wished.kind === 'in-pool' ? wished.instanceId : undefined);
  expect(disk.state.kind).toBe(wished.kind === 'in-pool' ? 'in-pool' : 'available');
}

function run(all: readonly Round[], last: Wish, lagMs: number): void {
  const model = new Ec2Model(lagMs);
  const controller = new Controller(model);
  for (const each of all) {
    model.tick(ROUND_MS);
    happen(each.event, model, controller);
    controller.round(each);
    expect(model.violations).toEqual([]);
  }
  settle(model, controller, last);
  expect(model.violations).toEqual([]);
  expectWished(model, controller);
  expect(model.foreignAsBefore()).toBe(true);
}

const lag = fc.constantFrom(0, 10_000, 50_000);
const numRuns = Number(process.env['HOLDFAST_DISK_STEPS_RUNS'] ?? 500);
const intoPool = Array<Round>(12).fill(calm(0));

describe('the steps of a disk, against an EC2 that shows old things and loses calls and answers', () => {
  it('lose no volume, touch no foreign one, attach to one node, and end as wished once the faults end', () => {
    fc.assert(
      fc.property(roundsOf(everything, [0, 0, 2, 9]), fc.boolean(), finalWish, lag, (all, startsInPool, last, lagMs) =>
        run(startsInPool ? [...intoPool, ...all] : all, last, lagMs),
      ),
      { numRuns },
    );
  });

  it('do so too where the wish changes again and again while calls are under way', () => {
    fc.assert(
      fc.property(roundsOf(changesOfMind, [0, 0, 1, 6]), finalWish, lag, (all, last, lagMs) => run(all, last, lagMs)),
      { numRuns },
    );
  });
});
