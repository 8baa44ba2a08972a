import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { loadSync, type ServiceDefinition } from '@grpc/proto-loader';
import { describe, expect, it } from 'vitest';

/** The version that proto/csi.proto follows. */
const SPEC = 'github.com/container-storage-interface/spec@v1.13.0/csi.proto';

const original = findOriginal();

/** Every service, message and enum, with names, numbers and types: what decides the form on the wire. */
function facts(path: string): Record<string, unknown> {
  const loaded = Object.entries(loadSync(path, { keepCase: true }));
  return Object.fromEntries(
    loaded
      .filter(([name]) => name.startsWith('csi.v1.'))
      .map(([name, definition]) => [name, 'format' in definition ? bare(definition.type) : methods(definition)]),
  );
}

function methods(service: ServiceDefinition): unknown {
  return Object.values(service).map(({ path, requestStream, responseStream, requestType, responseType }) => [
    path,
    requestStream,
    responseStream,
    bare(requestType.type),
    bare(responseType.type),
  ]);
}

/** Without options, which are not sent, and with fields in the order of their numbers. */
function bare(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(bare).toSorted((a, b) => (numberOf(a) ?? 0) - (numberOf(b) ?? 0));
  }
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([name]) => name !== 'options');
  return Object.fromEntries(kept.map(([name, each]) => [name, bare(each)]));
}

function numberOf(value: unknown): number | undefined {
  if (typeof value !== 'object' || value === null || !('number' in value)) return undefined;
  return Number(value.number);
}

describe('proto/csi.proto', () => {
  it.skipIf(original === undefined)(
    'says the same as the published definition (skipped where that is not there)',
    () => {
      const own = facts(join(import.meta.dirname, '../../../proto/csi.proto'));
      expect(own).toEqual(facts(original ?? ''));
      expect(Object.keys(own).length).toBeGreaterThan(80);
    },
  );
});

function findOriginal(): string | undefined {
  try {
    const cache = execFileSync('go', ['env', 'GOMODCACHE'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    const path = join(cache.trim(), SPEC);
    return existsSync(path) ? path : undefined;
  } catch {
    return undefined;
  }
}
