// Writes numbered records to a file or block device, one after the other, each made durable before its number is
// printed: what stands in the output was acknowledged. Runs until it is killed.
//
//   node write-records.mjs PATH FIRST SLOTS     record n goes to slot n modulo SLOTS
import { createHash } from 'node:crypto';
import { constants, fdatasyncSync, openSync, writeSync } from 'node:fs';

const [path, first, slots] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const RECORD_BYTES = 4096;
const file = openSync(path, constants.O_WRONLY | (path.startsWith('/dev/') ? 0 : constants.O_CREAT), 0o644);
for (let n = first; ; n++) {
  const record = Buffer.alloc(RECORD_BYTES);
  record.writeUInt32LE(n, 0);
  createHash('sha256').update(String(n)).digest().copy(record, 4);
  writeSync(file, record, 0, RECORD_BYTES, (n % slots) * RECORD_BYTES);
  fdatasyncSync(file);
  writeSync(1, `${n}\n`);
}
