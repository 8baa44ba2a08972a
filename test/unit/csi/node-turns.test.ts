import { describe, expect, it } from 'vitest';
import { Turns } from '../../../src/csi/node-turns.js';

function gate(): { open: () => void; opened: Promise<void> } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open, opened };
}

describe('turns', () => {
  it('calls on one key run one after the other, those on others at once', async () => {
    const turns = new Turns<string>();
    const first = gate();
    const order: string[] = [];
    const calls = [
      turns.take('a', 10_000, () => first.opened.then(() => order.push('a1'))),
      turns.take('a', 10_000, () => Promise.resolve(order.push('a2'))),
      turns.take('b', 10_000, () => Promise.resolve(order.push('b'))),
    ];
    await calls[2];
    expect(order).toEqual(['b']);
    first.open();
    await Promise.all(calls);
    expect(order).toEqual(['b', 'a1', 'a2']);
  });

  it('a wait that would pass the deadline is aborted, and its section never begins', async () => {
    const turns = new Turns<string>();
    const first = gate();
    const running = turns.take('a', Infinity, () => first.opened);
    let begun = false;
    const late = turns.take('a', 0, () => Promise.resolve((begun = true)));
    await expect(late).rejects.toMatchObject({ code: 'aborted' });
    first.open();
    await running;
    await turns.take('a', 10_000, () => Promise.resolve());
    expect(begun).toBe(false);
  });

  it('a failure is told to its caller and holds up nobody', async () => {
    const turns = new Turns<string>();
    await expect(turns.take('a', 10_000, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await turns.take('a', 10_000, () => Promise.resolve(7))).toBe(7);
  });
});
