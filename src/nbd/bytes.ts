const encoder = new TextEncoder();
const decoder = new TextDecoder();
const strictDecoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** An unsigned 64-bit number. Above 2^53 it is not exact, but still above every size there is. */
export function readUint64(view: DataView, at: number): number {
  return view.getUint32(at) * 0x100000000 + view.getUint32(at + 4);
}

/** `value` is within 0 … 2^53. */
export function writeUint64(view: DataView, at: number, value: number): void {
  view.setUint32(at, Math.floor(value / 0x100000000));
  view.setUint32(at + 4, value % 0x100000000);
}

export function encodeText(text: string): Uint8Array {
  return encoder.encode(text);
}

/** UTF-8 of at most `maxBytes`, cut between characters. */
export function encodeTextWithin(text: string, maxBytes: number): Uint8Array {
  // A character takes at most three bytes for each of its UTF-16 units.
  const into = new Uint8Array(Math.min(text.length * 3, maxBytes));
  return into.subarray(0, encoder.encodeInto(text, into).written);
}

/** Text for people: bytes that are no UTF-8 are shown as replacement characters. */
export function decodeText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** A name: undefined where the bytes are no UTF-8 or hold a zero, which the protocol forbids. */
export function decodeName(bytes: Uint8Array): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return strictDecoder.decode(bytes);
  } catch {
    return undefined;
  }
}

export function joinBytes(parts: readonly Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}
