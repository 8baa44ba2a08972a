/** A message as the kernel writes it: header with unique 7, then the parts. */
export function message(opcode: number, node: number, ...parts: Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const header = Buffer.alloc(40);
  header.writeUInt32LE(40 + body.length, 0);
  header.writeUInt32LE(opcode, 4);
  header.writeBigUInt64LE(7n, 8);
  header.writeBigUInt64LE(BigInt(node), 16);
  return Buffer.concat([header, body]);
}

export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

export function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
