import { codeOf } from '../base/errors.js';
import type { VolumeId } from '../model/ids.js';
import { metersOf, type WriterNode } from './writer-node.js';

/** What a take-over spends its time with; see the row of holdfast_takeover_seconds. */
export type TakeOverPart = 'record' | 'fencing' | 'tables' | 'outwait';

/** How long the parts of one take-over took, for the log and the meters. */
export class TakeOverSteps {
  readonly #tookMs = new Map<TakeOverPart, number>();

  constructor(
    private readonly node: WriterNode,
    private readonly volume: VolumeId,
  ) {}

  async time<T>(part: TakeOverPart, step: () => Promise<T>): Promise<T> {
    const { clock } = this.node.io;
    const began = clock.now();
    const result = await step();
    this.#tookMs.set(part, (this.#tookMs.get(part) ?? 0) + clock.now() - began);
    return result;
  }

  done(epoch: number): void {
    const meters = metersOf(this.node);
    meters.counter('holdfast_takeovers_total', { outcome: 'done' }).add();
    for (const [part, ms] of this.#tookMs) {
      meters.histogram('holdfast_takeover_seconds', { part }).observe(ms / 1_000);
    }
    const tookMs = Object.fromEntries([...this.#tookMs].map(([part, ms]) => [part, Math.round(ms)]));
    this.node.log.info({ volume: this.volume, epoch, tookMs }, 'volume was taken over');
  }

  failed(error: unknown): void {
    metersOf(this.node)
      .counter('holdfast_takeovers_total', { outcome: codeOf(error) })
      .add();
  }
}
