import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HoldfastError } from '../../../src/base/errors.js';
import { decodeName, encodeText, encodeTextWithin, readUint64, viewOf, writeUint64 } from '../../../src/nbd/bytes.js';
import { clientHandshake, type Session } from '../../../src/nbd/client-handshake.js';
import { MAX_DISCARD_BYTES, MAX_OPTION_BYTES } from '../../../src/nbd/commands.js';
import { encodeBlockStatus, encodeErrorChunk, putRequest } from '../../../src/nbd/encode.js';
import {
  parseExportName,
  parseGo,
  parseInfo,
  parseMetaContext,
  parseMetaContextReply,
} from '../../../src/nbd/parse-option.js';
import { parseBlockStatus, parseErrorChunk, parseHole, parseReplyStart } from '../../../src/nbd/parse-reply.js';
import { judgeRequest, parseRequest, type Rules } from '../../../src/nbd/parse-request.js';
import { ServerHandshake } from '../../../src/nbd/server-handshake.js';
import { GREETING, contextData, exportInfo, goData, optionReply, u32 } from '../../support/raw-nbd.js';

const bytes = fc.uint8Array({ maxLength: 300 });
const cookie = { high: 1, low: 2 };

describe('numbers and texts', () => {
  it('survive the way there and back', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (value) => {
        const view = viewOf(new Uint8Array(8));
        writeUint64(view, 0, value);
        expect(readUint64(view, 0)).toBe(value);
        expect(view.getBigUint64(0)).toBe(BigInt(value));
      }),
    );
  });

  it('of names are unchanged, a byte order mark too, and hold no zero', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(decodeName(encodeText(text))).toBe(text.includes('\0') ? undefined : text);
      }),
    );
    expect(decodeName(encodeText('\ufeffvolume'))).toBe('\ufeffvolume');
  });

  it('are cut between characters', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.nat(40), (text, limit) => {
        const cut = encodeTextWithin(text, limit);
        expect(cut.length).toBeLessThanOrEqual(limit);
        const kept = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(cut);
        expect(text.startsWith(kept)).toBe(true);
        const next = text.codePointAt(kept.length);
        if (next === undefined) return;
        expect(cut.length + Buffer.byteLength(String.fromCodePoint(next))).toBeGreaterThan(limit);
      }),
    );
  });
});

describe('options', () => {
  it('are read as they were written', () => {
    const name = fc.string({ unit: 'grapheme', maxLength: 200 }).filter((text) => !text.includes('\0'));
    fc.assert(
      fc.property(name, fc.array(fc.nat(0xffff)), fc.array(name, { maxLength: 5 }), (text, infos, queries) => {
        expect(parseGo(goData(text, infos))).toEqual({ name: text, infos });
        expect(parseMetaContext(contextData(text, queries))).toEqual({ name: text, queries });
      }),
    );
  });

  it('never fail on any bytes', () => {
    fc.assert(
      fc.property(bytes, fc.nat(12), (data, number) => {
        for (const parse of [parseGo, parseMetaContext, parseExportName, parseInfo, parseMetaContextReply]) {
          expect(() => parse(data)).not.toThrow();
        }
        const decision = new ServerHandshake().option(number, data, () => []);
        expect(['answer', 'abort', 'export', 'end']).toContain(decision.kind);
      }),
    );
  });

  it('that lie about a count or a length are refused at once', () => {
    expect(parseMetaContext(Buffer.concat([u32(0), u32(0xffffffff)]))).toBeUndefined();
    expect(parseMetaContext(Buffer.concat([u32(0), u32(0xffffffff), u32(0)]))).toBeUndefined();
    expect(parseGo(Buffer.concat([u32(0xfffffff0), Buffer.alloc(20)]))).toBeUndefined();
  });
});

describe('requests', () => {
  const rules = fc.record({
    sizeBytes: fc.constantFrom(0, 4096, 1024 ** 4),
    readOnly: fc.boolean(),
    structured: fc.boolean(),
    blockStatus: fc.boolean(),
    control: fc.boolean(),
  });
  const fields = fc.record({
    flags: fc.oneof(fc.nat(31), fc.nat(0xffff)),
    type: fc.oneof(fc.nat(9), fc.constant(0x4846), fc.nat(0xffff)),
    cookie: fc.record({ high: fc.nat(0xffffffff), low: fc.nat(0xffffffff) }),
    offset: fc.oneof(
      fc.nat(300).map((page) => page * 4096),
      fc.maxSafeNat(),
    ),
    length: fc.oneof(
      fc.nat(300).map((page) => page * 4096),
      fc.nat(0xffffffff),
    ),
  });

  it('are read as they were written', () => {
    fc.assert(
      fc.property(fields, (request) => {
        const view = viewOf(new Uint8Array(28));
        putRequest(view, request);
        expect(parseRequest(view)).toEqual(request);
      }),
    );
  });

  it('that are accepted lie within the export, are aligned, allowed and bounded', () => {
    const check = (request: Parameters<typeof judgeRequest>[0], given: Rules): void => {
      const verdict = judgeRequest(request, given);
      if (verdict.kind === 'refuse') expect(verdict.payloadBytes).toBeLessThanOrEqual(MAX_DISCARD_BYTES);
      if (verdict.kind !== 'accept') return;
      const { command } = verdict;
      expect(request.length).toBeLessThanOrEqual(command.maxLength);
      expect(command.writes && given.readOnly).toBe(false);
      expect(command.structured && !given.structured).toBe(false);
      if (!command.ranged) return;
      expect(request.offset + request.length).toBeLessThanOrEqual(given.sizeBytes);
      expect([request.offset % 4096, request.length % 4096]).toEqual([0, 0]);
    };
    fc.assert(fc.property(fields, rules, check), { numRuns: 2000 });
  });

  it('never fail on any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 28, maxLength: 28 }), (data) => {
        expect(parseRequest(viewOf(data))).toBeUndefined();
        data.set([0x25, 0x60, 0x95, 0x13]);
        expect(parseRequest(viewOf(data))).toBeDefined();
      }),
    );
  });
});

describe('replies', () => {
  it('never fail on any bytes, and what is taken adds up', () => {
    fc.assert(
      fc.property(
        bytes,
        fc.constantFrom(0x8001, 0x8002, 0x8fff),
        fc.integer({ min: 1, max: 0xffffffff }),
        (data, type, length) => {
          parseErrorChunk(type, data);
          parseHole(data);
          const extents = parseBlockStatus(data, 0, length) ?? [];
          expect(extents.reduce((sum, extent) => sum + extent.length, 0)).toBeLessThanOrEqual(length);
          expect(extents.every((extent) => extent.length > 0)).toBe(true);
          if (data.length >= 16) parseReplyStart(viewOf(data));
        },
      ),
    );
  });

  it('tell an error with its text, whole or cut', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 3000 }),
        fc.integer({ min: 1, max: 200 }),
        (message, errno) => {
          const chunk = encodeErrorChunk(cookie, { errno, message });
          const told = parseErrorChunk(0x8001, chunk.subarray(20));
          expect(told?.errno).toBe(errno);
          expect(message.startsWith(told?.message ?? '?')).toBe(true);
        },
      ),
    );
  });

  it('tell extents merged, within the range, and one where one is asked for', () => {
    const extent = fc.record({ length: fc.integer({ min: 1, max: 100 }).map((n) => n * 4096), hole: fc.boolean() });
    fc.assert(
      fc.property(
        fc.array(extent, { minLength: 1, maxLength: 50 }),
        fc.integer({ min: 1, max: 300 }).map((n) => n * 4096),
        fc.boolean(),
        (extents, length, one) => {
          const chunk = encodeBlockStatus(cookie, extents, length, one);
          const told = parseBlockStatus(chunk?.subarray(20) ?? new Uint8Array(0), 1, length) ?? [];
          const total = Math.min(
            length,
            extents.reduce((sum, { length: part }) => sum + part, 0),
          );
          const sum = told.reduce((all, { length: part }) => all + part, 0);
          if (one) expect(told).toHaveLength(1);
          else expect(sum).toBe(total);
          expect(told.every((part, index) => part.hole !== told[index + 1]?.hole)).toBe(true);
          expect(told[0]?.hole).toBe(extents[0]?.hole);
        },
      ),
    );
  });
});

describe("the client's handshake", () => {
  /** Feeds the machine from a tape that ends; undefined where the tape did not suffice. */
  function play(tape: Uint8Array): Session | undefined {
    const steps = clientHandshake('volume');
    let at = 0;
    let step = steps.next(new Uint8Array(0));
    while (step.done !== true) {
      const { receive } = step.value;
      expect(receive).toBeLessThanOrEqual(MAX_OPTION_BYTES);
      if (at + receive > tape.length) return undefined;
      step = steps.next(tape.subarray(at, at + receive));
      at += receive;
    }
    return step.value;
  }

  const good = [
    GREETING,
    optionReply(8, 1),
    optionReply(10, 4, Buffer.concat([u32(77), Buffer.from('base:allocation')])),
    optionReply(10, 1),
    optionReply(7, 3, exportInfo(1024 ** 4, 0xff)),
    optionReply(7, 1),
  ];

  it('agrees on what the server offers', () => {
    expect(play(Buffer.concat(good))).toEqual({
      sizeBytes: 1024 ** 4,
      readOnly: true,
      structured: true,
      unfragmented: true,
      contextId: 77,
    });
  });

  it('does without what an older server lacks', () => {
    const older = [GREETING, optionReply(8, 0x80000001), optionReply(7, 3, exportInfo(4096, 1)), optionReply(7, 1)];
    expect(play(Buffer.concat(older))).toMatchObject({ structured: false, contextId: undefined, readOnly: false });
  });

  it('gives up a server that answers without end', () => {
    const endless = Array.from({ length: 100 }, () => optionReply(8, 2));
    expect(() => play(Buffer.concat([GREETING, ...endless]))).toThrow(HoldfastError);
  });

  it('takes any other bytes for a refusal or a HoldfastError', () => {
    const tape = Buffer.concat(good);
    const mutations = fc.array(fc.record({ at: fc.nat(tape.length - 1), byte: fc.nat(255) }), {
      minLength: 1,
      maxLength: 6,
    });
    fc.assert(
      fc.property(mutations, bytes, (changes, tail) => {
        const changed = Buffer.concat([tape, tail]);
        for (const { at, byte } of changes) changed[at] = byte;
        try {
          play(changed);
        } catch (error) {
          expect(error).toBeInstanceOf(HoldfastError);
        }
      }),
      { numRuns: 2000 },
    );
  });
});
