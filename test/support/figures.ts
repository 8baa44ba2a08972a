import { run } from '../../src/base/run.js';
import type { DevNodeDescription } from '../../src/dev/description.js';
import { inNamespace } from '../../src/dev/network.js';
import { parseExposition } from './exposition.js';

const TIMEOUT_MS = 15_000;

/** The sum of a metric of a node's plugin over all series that have these labels. */
export async function figureOf(
  node: DevNodeDescription,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<number> {
  const program = `fetch(${JSON.stringify(node.metrics)}).then((r) => r.text()).then((t) => process.stdout.write(t))`;
  const [command, args] = inNamespace(node.networkNamespace, [process.execPath, '-e', program]);
  const { stdout } = await run(command, args, { timeoutMs: TIMEOUT_MS });
  const lines = parseExposition(stdout).get(name)?.lines ?? [];
  const counted = lines.filter((line) =>
    Object.entries(labels).every(([label, value]) => line.labels[label] === value),
  );
  return counted.reduce((sum, { value }) => sum + value, 0);
}
