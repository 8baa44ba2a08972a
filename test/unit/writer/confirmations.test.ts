import { afterEach, describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { createNodeIo } from '../../../src/io/node-io.js';
import { MAX_CONTROL_BYTES } from '../../../src/nbd/commands.js';
import { type Confirmation, encodeQuestions, type Question } from '../../../src/replica/confirm.js';
import { type AskPeer, Confirmations, type Confirming } from '../../../src/writer/confirmations.js';
import { RecordingLog } from '../../support/recording-log.js';

const { clock } = createNodeIo();
const unsubscribes: (() => void)[] = [];
afterEach(() => {
  for (const unsubscribe of unsubscribes.splice(0)) unsubscribe();
});

class Asking implements Confirming {
  readonly session = 'f'.repeat(32);
  readonly confirmedAt: number[] = [];
  denials = 0;

  constructor(readonly volume: string) {}

  epoch(): number {
    return 1_000_000;
  }

  confirmed(askedAt: number): void {
    this.confirmedAt.push(askedAt);
  }

  denied(): void {
    this.denials++;
  }

  unknown(): void {
    this.denials++;
  }

  stopping(): void {
    this.denials++;
  }
}

function ask(count: number, askPeer: AskPeer, log?: RecordingLog): Asking[] {
  const confirmations = new Confirmations(clock, 1, askPeer, log?.log);
  return Array.from({ length: count }, (_, index) => {
    const asking = new Asking(`vol-${index.toString(16).padStart(32, '0')}`);
    unsubscribes.push(confirmations.subscribe('b', asking));
    return asking;
  });
}

/** As a private command on the way to the peer is. */
function answer(questions: readonly Question[]): Promise<Confirmation[]> {
  const { length } = encodeQuestions(questions);
  if (length > MAX_CONTROL_BYTES) {
    return Promise.reject(new HoldfastError('invalid-argument', `a private command of ${length} bytes`));
  }
  return Promise.resolve(questions.map(({ volume }) => (volume.endsWith('7') ? 'denied' : 'confirmed')));
}

describe('confirmations', () => {
  it('are asked for 20,000 volumes of one peer, and each hears its own answer', async () => {
    const volumes = ask(20_000, (_, questions) => answer(questions));
    const heard = (): number => volumes.filter(({ confirmedAt, denials }) => confirmedAt.length + denials > 0).length;
    await expect.poll(heard).toBe(volumes.length);
    for (const { volume, confirmedAt, denials } of volumes) {
      expect([confirmedAt.length > 0, denials > 0]).toEqual(volume.endsWith('7') ? [false, true] : [true, false]);
    }
  });

  it('count from their own question, where a peer is asked in several', async () => {
    const rounds: { readonly askedAt: number; readonly volumes: Set<string> }[] = [];
    const volumes = ask(5_000, async (_, questions) => {
      rounds.push({ askedAt: clock.now(), volumes: new Set(questions.map(({ volume }) => volume)) });
      await clock.sleep(5);
      return answer(questions);
    });
    for (const volume of [volumes[1], volumes[4_990]]) {
      await expect.poll(() => volume?.confirmedAt.length).toBeGreaterThan(0);
      const question = rounds.find(({ askedAt }) => askedAt >= (volume?.confirmedAt[0] ?? Infinity));
      expect(question?.volumes).toContain(volume?.volume);
    }
  });

  it('that do not come are told once, until the peer answers again', async () => {
    const log = new RecordingLog();
    let refusing = true;
    let rounds = 0;
    const [volume] = ask(
      1,
      (_, questions) => {
        rounds++;
        return refusing ? Promise.reject(new HoldfastError('unavailable', 'turned away')) : answer(questions);
      },
      log,
    );
    await expect.poll(() => rounds).toBeGreaterThan(3);
    const told = [{ peer: 'b', volumes: 1, code: 'unavailable', reason: 'turned away' }];
    expect(log.of('a peer does not confirm; told once')).toMatchObject(told);
    refusing = false;
    await expect.poll(() => volume?.confirmedAt.length).toBeGreaterThan(0);
    refusing = true;
    await expect.poll(() => log.events).toMatchObject([...told, ...told]);
  });
});
