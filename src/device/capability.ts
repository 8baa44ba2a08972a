import { readFile } from 'node:fs/promises';

/** CAP_SYS_RESOURCE (capabilities(7)). */
const SYS_RESOURCE_BIT = 24n;

/** Whether this process, and so what it runs, has CAP_SYS_RESOURCE. */
export async function mayUseResources(): Promise<boolean> {
  const found = /^CapEff:\s*([0-9a-f]+)$/m.exec(await readFile('/proc/self/status', 'utf8'));
  return ((BigInt(`0x${found?.[1] ?? '0'}`) >> SYS_RESOURCE_BIT) & 1n) === 1n;
}
