import { readFile, writeFile } from 'node:fs/promises';
import type { Attachment, History, Operation } from './history.js';

/*
 * A history as lines of JSON: one for each attachment, then one for each operation. An operation that was never answered
 * ends at null, as JSON has no Infinity.
 */

type Line = { readonly attachment: Attachment } | { readonly operation: StoredOperation };
type StoredOperation = Omit<Operation, 'endedAt'> & { readonly endedAt: number | null };

export async function writeHistory(path: string, history: History): Promise<void> {
  const lines: Line[] = [
    ...history.attachments.map((attachment) => ({ attachment })),
    ...history.operations.map((operation) => ({
      operation: { ...operation, endedAt: operation.endedAt === Infinity ? null : operation.endedAt },
    })),
  ];
  await writeFile(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
}

export async function readHistory(path: string): Promise<History> {
  const history: History = { attachments: [], operations: [] };
  for (const text of (await readFile(path, 'utf8')).split('\n')) {
    if (text === '') continue;
    const line = JSON.parse(text) as Line;
    if ('attachment' in line) history.attachments.push(line.attachment);
    else history.operations.push({ ...line.operation, endedAt: line.operation.endedAt ?? Infinity });
  }
  return history;
}
