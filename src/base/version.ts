import { readFileSync } from 'node:fs';

/** The version of Holdfast, as package.json tells it. */
export function holdfastVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
