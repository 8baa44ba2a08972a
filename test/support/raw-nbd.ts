import { connect, type Socket } from 'node:net';

/** Bytes of the NBD protocol spelt out by hand, so that the tests don't trust the code they test. */

export function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}

export function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

export const GREETING = Buffer.concat([Buffer.from('NBDMAGICIHAVEOPT'), u16(3)]);
export const CLIENT_FLAGS = u32(3);

export function option(number: number, data: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([Buffer.from('IHAVEOPT'), u32(number), u32(data.length), data]);
}

export function goData(name: string, infos: number[] = []): Buffer {
  return Buffer.concat([u32(Buffer.byteLength(name)), Buffer.from(name), u16(infos.length), ...infos.map(u16)]);
}

export function contextData(name: string, queries: string[]): Buffer {
  const encoded = queries.map((query) => Buffer.concat([u32(Buffer.byteLength(query)), Buffer.from(query)]));
  return Buffer.concat([u32(Buffer.byteLength(name)), Buffer.from(name), u32(queries.length), ...encoded]);
}

export interface RequestFields {
  flags?: number;
  type: number;
  cookie?: number | bigint;
  offset?: number | bigint;
  length?: number;
}

export function request({ flags = 0, type, cookie = 1, offset = 0, length = 0 }: RequestFields): Buffer {
  return Buffer.concat([u32(0x25609513), u16(flags), u16(type), u64(cookie), u64(offset), u32(length)]);
}

export function optionReply(number: number, type: number, data: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([u64(0x0003e889045565a9n), u32(number), u32(type), u32(data.length), data]);
}

export function exportInfo(sizeBytes: number, flags: number): Buffer {
  return Buffer.concat([u16(0), u64(sizeBytes), u16(flags)]);
}

export function simpleReply(cookie: number | bigint, errno = 0): Buffer {
  return Buffer.concat([u32(0x67446698), u32(errno), u64(cookie)]);
}

export function chunk(cookie: number | bigint, type: number, data: Buffer = Buffer.alloc(0), done = true): Buffer {
  return Buffer.concat([u32(0x668e33ef), u16(done ? 1 : 0), u16(type), u64(cookie), u32(data.length), data]);
}

/** A socket that is written to and read from by hand. */
export class RawPeer {
  received = Buffer.alloc(0);
  ended = false;
  #changed: () => void = () => undefined;

  constructor(readonly socket: Socket) {
    socket.on('data', (data: Buffer) => {
      this.received = Buffer.concat([this.received, data]);
      this.#changed();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.ended = true;
      this.#changed();
    });
  }

  static connect(path: string): Promise<RawPeer> {
    return new Promise((resolve, reject) => {
      const socket = connect({ path });
      socket.once('error', reject);
      socket.once('connect', () => resolve(new RawPeer(socket)));
    });
  }

  send(...parts: Buffer[]): void {
    this.socket.write(Buffer.concat(parts));
  }

  /** Takes just `count` bytes; fails where the connection ends before. */
  async take(count: number): Promise<Buffer> {
    await this.until(() => this.received.length >= count || this.ended);
    if (this.received.length < count) throw new Error(`ended after ${this.received.length} of ${count} bytes`);
    const taken = this.received.subarray(0, count);
    this.received = this.received.subarray(count);
    return taken;
  }

  async takeOptionReply(): Promise<{ option: number; type: number; data: Buffer }> {
    const header = await this.take(20);
    return {
      option: header.readUInt32BE(8),
      type: header.readUInt32BE(12),
      data: await this.take(header.readUInt32BE(16)),
    };
  }

  async takeChunk(): Promise<{ done: boolean; type: number; cookie: bigint; data: Buffer }> {
    const header = await this.take(20);
    if (header.readUInt32BE(0) !== 0x668e33ef) throw new Error('no structured reply');
    return {
      done: header.readUInt16BE(4) === 1,
      type: header.readUInt16BE(6),
      cookie: header.readBigUInt64BE(8),
      data: await this.take(header.readUInt32BE(16)),
    };
  }

  async takeSimple(): Promise<{ errno: number; cookie: bigint }> {
    const header = await this.take(16);
    if (header.readUInt32BE(0) !== 0x67446698) throw new Error('no simple reply');
    return { errno: header.readUInt32BE(4), cookie: header.readBigUInt64BE(8) };
  }

  /** The greeting, and the options whose last answers are thrown away. */
  async shakeHands(...options: Buffer[]): Promise<void> {
    await this.take(18);
    this.send(CLIENT_FLAGS);
    for (const sent of options) {
      this.send(sent);
      for (let type = 0; type !== 1; type = (await this.takeOptionReply()).type);
    }
  }

  closed(): Promise<void> {
    return this.until(() => this.ended);
  }

  close(): void {
    this.socket.destroy();
  }

  private async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => (this.#changed = resolve));
  }
}
