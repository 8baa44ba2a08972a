import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readHistory, writeHistory } from '../../history/history-file.js';
import { randomOf, SimulatedVolume } from './simulated-volume.js';

it('a history that is written to a file comes back as it was, operations without an answer too', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'history-'));
  try {
    const history = new SimulatedVolume({ blocks: 4, operations: 100, random: randomOf(1) }).run();
    expect(history.operations.some(({ endedAt }) => endedAt === Infinity)).toBe(true);
    await writeHistory(join(directory, 'history.jsonl'), history);
    expect(await readHistory(join(directory, 'history.jsonl'))).toEqual(history);
  } finally {
    await rm(directory, { recursive: true });
  }
});
