import { crc32c } from '../base/crc32c.js';
import { HoldfastError } from '../base/errors.js';
import { Mutex } from '../base/mutex.js';
import { type File, type Files, PAGE_BYTES } from '../io/io.js';
import type { SessionId, VolumeId } from '../model/ids.js';

/**
 * What a replica says of itself on disk.
 *
 * Two slots of one page each; a change goes to the slot that does not hold the newest state, so that a torn write
 * leaves the former one. A slot: magic (8 bytes), sequence (u64), length of the text (u32), CRC-32C of all but itself
 * (u32), JSON text; numbers little-endian.
 */
export interface ReplicaHeader {
  /** The form of everything in the replica's directory: FORMAT. */
  readonly format: number;
  readonly volume: VolumeId;
  readonly capacityBytes: number;
  readonly regionBytes: number;
  /** The highest epoch seen. */
  readonly epoch: number;
  /** The session that the epoch was told by; empty before the first. */
  readonly session: SessionId;
  /** Names the mount of the disk (boot and mount) under which the replica was last started (R10). */
  readonly incarnation: string;
  /** R10: acknowledged writes that were not flushed may be missing. */
  readonly crashMark: boolean;
  /** The last process ended in order: all was flushed, and nothing written since. */
  readonly stoppedClean: boolean;
  /** Blocks known to be bad, as pairs of a first block and a count; see damage.ts. */
  readonly damage: readonly number[];
}

/** Format 1 had no checksums, and did not name itself. */
export const FORMAT = 2;

const MAGIC = new TextEncoder().encode('HOLDFAST');
const TEXT_AT = 24;

/** Encodes one slot. */
export function encodeSlot(header: ReplicaHeader, sequence: number): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(header));
  if (text.length > PAGE_BYTES - TEXT_AT) throw new HoldfastError('internal', 'replica header is too long');
  const slot = new Uint8Array(PAGE_BYTES);
  const view = new DataView(slot.buffer);
  slot.set(MAGIC);
  view.setBigUint64(8, BigInt(sequence), true);
  view.setUint32(16, text.length, true);
  slot.set(text, TEXT_AT);
  view.setUint32(20, checksumOf(slot), true);
  return slot;
}

/** Decodes one slot; undefined where it holds no valid state. `failed-precondition` where it has another format. */
export function decodeSlot(
  slot: Uint8Array,
  path = 'the slot',
): { header: ReplicaHeader; sequence: number } | undefined {
  const view = new DataView(slot.buffer, slot.byteOffset, slot.byteLength);
  if (slot.length !== PAGE_BYTES || MAGIC.some((byte, index) => slot[index] !== byte)) return undefined;
  const length = view.getUint32(16, true);
  if (length > PAGE_BYTES - TEXT_AT || view.getUint32(20, true) !== checksumOf(slot)) return undefined;
  const header = parseText(slot.subarray(TEXT_AT, TEXT_AT + length));
  const format = otherFormat(header);
  if (format !== undefined) {
    throw new HoldfastError(
      'failed-precondition',
      `${path} is of format ${format}; this version of Holdfast reads replicas of format ${FORMAT} only`,
    );
  }
  return isHeader(header) ? { header, sequence: Number(view.getBigUint64(8, true)) } : undefined;
}

function parseText(text: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(text));
  } catch {
    return undefined;
  }
}

function checksumOf(slot: Uint8Array): number {
  return crc32c(slot.subarray(TEXT_AT), crc32c(slot.subarray(0, 20)));
}

const FIELD_TYPES: Record<keyof ReplicaHeader, 'string' | 'number' | 'boolean' | 'numbers'> = {
  format: 'number',
  volume: 'string',
  capacityBytes: 'number',
  regionBytes: 'number',
  epoch: 'number',
  session: 'string',
  incarnation: 'string',
  crashMark: 'boolean',
  stoppedClean: 'boolean',
  damage: 'numbers',
};

function isHeader(value: unknown): value is ReplicaHeader {
  if (typeof value !== 'object' || value === null) return false;
  const fields = value as Record<string, unknown>;
  return Object.entries(FIELD_TYPES).every(([name, type]) => {
    const field = fields[name];
    if (type !== 'numbers') return typeof field === type;
    return Array.isArray(field) && field.every((number) => typeof number === 'number');
  });
}

/** The format of an intact slot whose fields are not those of this one. */
function otherFormat(value: unknown): number | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const format = 'format' in value ? value.format : 1;
  return typeof format === 'number' && format !== FORMAT ? format : undefined;
}

/** The header file of one replica: the present state and how to change it durably. */
export class HeaderFile {
  readonly #changes = new Mutex();

  private constructor(
    private readonly file: File,
    private current: ReplicaHeader,
    private sequence: number,
  ) {}

  static async create(files: Files, path: string, header: ReplicaHeader): Promise<void> {
    const file = await files.open(path, { write: true, create: true, direct: false });
    try {
      await file.write(encodeSlot(header, 1), 0);
      await file.write(new Uint8Array(PAGE_BYTES), PAGE_BYTES);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  /** `corrupt` where neither slot is valid, `failed-precondition` where the replica has another format. */
  static async open(files: Files, path: string): Promise<HeaderFile> {
    const file = await files.open(path, { write: true, create: false, direct: false });
    try {
      const bytes = new Uint8Array(2 * PAGE_BYTES);
      const length = await file.read(bytes, 0);
      const slots = [0, PAGE_BYTES]
        .map((at) => decodeSlot(bytes.subarray(at, Math.min(length, at + PAGE_BYTES)), path))
        .filter((slot) => slot !== undefined)
        .sort((one, other) => other.sequence - one.sequence);
      const newest = slots[0];
      if (newest === undefined) throw new HoldfastError('corrupt', `${path} holds no valid replica header`);
      return new HeaderFile(file, newest.header, newest.sequence);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  get value(): ReplicaHeader {
    return this.current;
  }

  /** Durable when it resolves. After a failure either state may be on disk. */
  change(fields: Partial<ReplicaHeader>): Promise<void> {
    return this.#changes.run(async () => {
      const next = { ...this.current, ...fields };
      const sequence = this.sequence + 1;
      await this.file.write(encodeSlot(next, sequence), sequence % 2 === 1 ? 0 : PAGE_BYTES);
      await this.file.sync();
      this.current = next;
      this.sequence = sequence;
    });
  }

  close(): Promise<void> {
    return this.file.close();
  }
}
