import type { VolumeExplanation__Output } from '../generated/holdfast/v1/VolumeExplanation.js';
import { formatAge } from './table.js';

/** A volume explained to a person. */
export function explanationText(told: VolumeExplanation__Output, now: number): string {
  const happened = told.happened.map(({ at, by, what, epoch, times }) => {
    const who = by === 'controller' ? what : `node ${by}: ${what}`;
    const again = times > 1 ? ` (${times} times in a row)` : '';
    return `${at} (${formatAge(at, now)} ago, epoch ${epoch})  ${who}${again}`;
  });
  return [
    `${told.volume_id} is ${told.health}`,
    ...section('state', told.state),
    ...section('waits for', told.waits_for),
    ...section('next', told.next),
    ...section('what happened, newest first', happened),
  ].join('\n');
}

/** The same for a machine. */
export function explanationValue(told: VolumeExplanation__Output): unknown {
  const { volume_id, health, state, happened, waits_for, next } = told;
  return { volume: volume_id, health, state, waitsFor: waits_for, next, happened };
}

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : ['', `${title}:`, ...lines.map((line) => `  ${line}`)];
}
