import type { Extent, File, Io, Lease, Slab } from '../../src/io/io.js';
import type { Stage } from '../../src/nbd/stage.js';

/** A stage on one sparse file. */
export class FileStage implements Stage {
  private constructor(
    private readonly file: File,
    readonly sizeBytes: number,
  ) {}

  static async create(io: Io, path: string, sizeBytes: number): Promise<FileStage> {
    const file = await io.files.open(path, { write: true, create: true, direct: true });
    await file.truncate(sizeBytes);
    return new FileStage(file, sizeBytes);
  }

  async read(offset: number, length: number, slab: Slab): Promise<Lease> {
    const lease = await slab.take(length);
    try {
      await this.file.read(lease.bytes, offset);
      return lease;
    } catch (error) {
      lease.release();
      throw error;
    }
  }

  async write(offset: number, data: Lease, fua: boolean): Promise<void> {
    await this.file.write(data.bytes, offset);
    if (fua) await this.file.sync();
  }

  flush(): Promise<void> {
    return this.file.sync();
  }

  async trim(offset: number, length: number, fua: boolean): Promise<void> {
    await this.file.punch(offset, length);
    if (fua) await this.file.sync();
  }

  zero(offset: number, length: number, fua: boolean): Promise<void> {
    return this.trim(offset, length, fua);
  }

  extents(offset: number, length: number): Promise<Extent[]> {
    return this.file.extents(offset, length);
  }

  close(): Promise<void> {
    return this.file.close();
  }
}
