import { describe, expect, it } from 'vitest';
import { checkHistory, type History, type Operation } from '../../history/history.js';
import { randomOf, SimulatedVolume } from './simulated-volume.js';

const SEEDS = Number(process.env['HOLDFAST_ORACLE_RUNS'] ?? '400') / 4;

/** Long histories of a volume that is correct by the way it is made. */
describe('a correct volume', { timeout: 600_000 }, () => {
  it('raises no alarm, whatever clients and crashes do to it', () => {
    for (let seed = 0; seed < SEEDS; seed++) {
      const history = new SimulatedVolume({ blocks: 4, operations: 200, random: randomOf(seed) }).run();
      expect(checkHistory(history), `seed ${seed}`).toEqual([]);
    }
  });

  it('raises one as soon as a read returns what an acknowledged write had replaced', () => {
    let tried = 0;
    for (let seed = 0; seed < SEEDS; seed++) {
      const history = new SimulatedVolume({ blocks: 2, operations: 100, random: randomOf(seed) }).run();
      if (!makeStale(history)) continue;
      tried++;
      expect(checkHistory(history), `seed ${seed}`).not.toEqual([]);
    }
    expect(tried).toBeGreaterThan(SEEDS / 2);
  });
});

/** Lets the last read return an older write of the same attachment, with two acknowledged ones in between. */
function makeStale({ operations, attachments }: History): boolean {
  const reads = operations.filter(({ kind, outcome }) => kind === 'read' && outcome === 'done');
  for (const read of reads.reverse()) {
    const older = operations.filter(
      (write) =>
        write.kind === 'write' &&
        write.outcome === 'done' &&
        write.endedAt < read.startedAt &&
        write.firstBlock <= read.firstBlock &&
        write.firstBlock + write.blockCount > read.firstBlock,
    );
    const [newest, stale] = older.sort((one, other) => other.startedAt - one.startedAt);
    if (newest === undefined || stale === undefined || stale.endedAt >= newest.startedAt) continue;
    if (isLossBetween(attachments, newest, read)) continue;
    read.values[0] = stale.value;
    return true;
  }
  return false;
}

function isLossBetween(attachments: History['attachments'], write: Operation, read: Operation): boolean {
  return attachments.some(({ lossAllowed }, n) => lossAllowed && n > write.attachment && n <= read.attachment);
}
