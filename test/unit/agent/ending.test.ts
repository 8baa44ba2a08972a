import { describe, expect, it } from 'vitest';
import { Ending } from '../../../src/agent/ending.js';
import { silentLog } from '../../../src/base/log.js';

describe('the end of a process', () => {
  it('comes in reverse order, once, whatever fails or hangs', async () => {
    const ending = new Ending(silentLog());
    const ended: string[] = [];
    ending.add('first', () => void ended.push('first'));
    ending.add('hangs', () => new Promise(() => undefined), 10);
    ending.add('throws', () => {
      throw new Error('no');
    });
    ending.add('last', async () => {
      await Promise.resolve();
      ended.push('last');
    });
    await ending.run();
    await ending.run();
    expect(ended).toEqual(['last', 'first']);
  });
});
