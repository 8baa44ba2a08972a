import { HoldfastError } from '../../src/base/errors.js';
import { PAGE_BYTES, type Extent, type Lease, type Slab } from '../../src/io/io.js';
import type { Export, ExportClient, Exports, Stage } from '../../src/nbd/stage.js';

const ZERO_PAGE = Buffer.alloc(PAGE_BYTES);

/** A stage in memory. `hold` keeps requests under way until the returned function is called. */
export class MemoryStage implements Stage {
  readonly bytes: Uint8Array;
  readonly calls: string[] = [];
  failure: Error | undefined;
  underWay = 0;
  #held: Promise<void> | undefined;

  constructor(readonly sizeBytes: number) {
    this.bytes = new Uint8Array(sizeBytes);
  }

  hold(): () => void {
    let release: () => void = () => undefined;
    this.#held = new Promise((resolve) => (release = resolve));
    return () => {
      this.#held = undefined;
      release();
    };
  }

  async read(offset: number, length: number, slab: Slab): Promise<Lease> {
    await this.#enter(`read ${offset} ${length}`);
    const lease = await slab.take(length);
    lease.bytes.set(this.bytes.subarray(offset, offset + length));
    return lease;
  }

  async write(offset: number, data: Lease, fua: boolean): Promise<void> {
    await this.#enter(`write ${offset} ${data.bytes.length}${fua ? ' fua' : ''}`);
    this.bytes.set(data.bytes, offset);
  }

  async flush(): Promise<void> {
    await this.#enter('flush');
  }

  async trim(offset: number, length: number, fua: boolean): Promise<void> {
    await this.#enter(`trim ${offset} ${length}${fua ? ' fua' : ''}`);
    this.bytes.fill(0, offset, offset + length);
  }

  async zero(offset: number, length: number, fua: boolean, allocate: boolean): Promise<void> {
    await this.#enter(`zero ${offset} ${length}${fua ? ' fua' : ''}${allocate ? ' allocate' : ''}`);
    this.bytes.fill(0, offset, offset + length);
  }

  async extents(offset: number, length: number): Promise<Extent[]> {
    await this.#enter(`extents ${offset} ${length}`);
    const extents: Extent[] = [];
    for (let at = offset; at < offset + length; at += PAGE_BYTES) {
      extents.push({ length: PAGE_BYTES, hole: ZERO_PAGE.equals(this.bytes.subarray(at, at + PAGE_BYTES)) });
    }
    return extents;
  }

  async #enter(call: string): Promise<void> {
    this.calls.push(call);
    this.underWay++;
    try {
      await this.#held;
      if (this.failure !== undefined) throw this.failure;
    } finally {
      this.underWay--;
    }
  }
}

/** Exports by name, which remember who opened them. */
export class NamedExports implements Exports {
  readonly clients: ExportClient[] = [];

  constructor(readonly exports: Record<string, Export>) {}

  list(): string[] {
    return Object.keys(this.exports);
  }

  describe(name: string): Promise<{ sizeBytes: number; readOnly: boolean }> {
    return Promise.resolve().then(() => {
      const found = this.#find(name);
      return { sizeBytes: found.stage.sizeBytes, readOnly: found.readOnly };
    });
  }

  open(name: string, client: ExportClient): Promise<Export> {
    return Promise.resolve().then(() => {
      const found = this.#find(name);
      this.clients.push(client);
      return found;
    });
  }

  #find(name: string): Export {
    const found = Object.hasOwn(this.exports, name) ? this.exports[name] : undefined;
    if (found === undefined) throw new HoldfastError('not-found', `no export is named ${JSON.stringify(name)}`);
    return found;
  }
}
