import { assert } from '../../src/base/assert.js';

const TWO_TO_32 = 2 ** 32;

/** All chance of a simulated run: one seed, one stream of numbers (the generator is sfc32). */
export class Prng {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  /** Any two seeds, neighbours too, give streams that have nothing to do with each other. */
  constructor(seed: number) {
    const low = mixed(seed >>> 0);
    const high = mixed(Math.floor(seed / TWO_TO_32) >>> 0 || 0x9e3779b9);
    this.#a = low;
    this.#b = mixed(low ^ high);
    this.#c = mixed(this.#b + high);
    for (let round = 0; round < 12; round++) this.#next();
  }

  /** In [0, 1), in steps of 2⁻³². */
  fraction(): number {
    return this.#next() / TWO_TO_32;
  }

  /** An integer in 0 … n - 1. */
  below(n: number): number {
    assert(n >= 1 && n <= Number.MAX_SAFE_INTEGER, 'a choice has at least one outcome');
    if (n <= TWO_TO_32) return Math.floor((this.#next() / TWO_TO_32) * n);
    return Math.floor(((this.#next() * 2 ** 21 + (this.#next() >>> 11)) / 2 ** 53) * n);
  }

  /** A real number in [low, high). */
  between(low: number, high: number): number {
    return low + (high - low) * this.fraction();
  }

  /** True with probability `p`. Draws nothing where the outcome is sure. */
  chance(p: number): boolean {
    return p > 0 && (p >= 1 || this.fraction() < p);
  }

  pick<T>(list: readonly T[]): T {
    assert(list.length > 0, 'something is picked from a list that is not empty');
    return list[this.below(list.length)] as T;
  }

  shuffled<T>(list: readonly T[]): T[] {
    const result = [...list];
    for (let at = result.length - 1; at > 0; at--) {
      const other = this.below(at + 1);
      const moved = result[at] as T;
      result[at] = result[other] as T;
      result[other] = moved;
    }
    return result;
  }

  /** `bytes` random bytes in lower-case hex. */
  hex(bytes: number): string {
    let digits = '';
    while (digits.length < bytes * 2) digits += this.#next().toString(16).padStart(8, '0');
    return digits.slice(0, bytes * 2);
  }

  /** A stream of its own: how much is drawn from it changes nothing here. */
  fork(): Prng {
    return new Prng(this.#next() * 2 ** 21 + (this.#next() >>> 11));
  }

  #next(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }
}

/** Spreads every bit of the input over all bits of the output (splitmix32's last steps). */
function mixed(value: number): number {
  let bits = (value + 0x9e3779b9) | 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x21f0aaad);
  bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97);
  return (bits ^ (bits >>> 15)) | 0;
}
