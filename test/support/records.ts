import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { inNamespace } from '../../src/dev/network.js';

const PROGRAM = fileURLToPath(new URL('./write-records.mjs', import.meta.url));
const RECORD_BYTES = 4096;

/** Writes numbered records on a node until something ends it, and knows which were acknowledged. */
export class RecordWriter {
  /** Number of the last record that was durable; records are written in order. */
  acknowledged: number;
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;

  constructor(
    networkNamespace: string,
    private readonly path: string,
    private readonly first: number,
    private readonly slots: number,
  ) {
    this.acknowledged = first - 1;
    const [command, args] = inNamespace(networkNamespace, [
      process.execPath,
      PROGRAM,
      path,
      String(first),
      String(slots),
    ]);
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'] });
    this.#child = child;
    this.ended = new Promise((resolve) => child.once('close', () => resolve()));
    createInterface({ input: child.stdout }).on('line', (line) => (this.acknowledged = Number(line)));
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.ended;
  }

  /**
   * Compares with what is at a path now: of the acknowledged records the last ones, as many as there are slots, must be
   * there. Resolves to what is wrong, in words.
   */
  async missing(path = this.path): Promise<string[]> {
    const wrong: string[] = [];
    const file = await open(path, 'r');
    try {
      const record = Buffer.alloc(RECORD_BYTES);
      for (let n = Math.max(this.first, this.acknowledged - this.slots + 1); n <= this.acknowledged; n++) {
        const { bytesRead } = await file.read(record, 0, RECORD_BYTES, (n % this.slots) * RECORD_BYTES);
        const found = bytesRead === RECORD_BYTES ? recordNumber(record) : undefined;
        // The one record that was under way may be there or not.
        if (found !== n && found !== n + this.slots) wrong.push(`record ${n}: found ${found ?? 'none'}`);
      }
    } finally {
      await file.close();
    }
    return wrong;
  }
}

function recordNumber(record: Buffer): number | undefined {
  const n = record.readUInt32LE(0);
  const whole = createHash('sha256').update(String(n)).digest().equals(record.subarray(4, 36));
  return whole ? n : undefined;
}
