import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { examineMachine } from '../../../src/doctor.js';

describe('the doctor', () => {
  it('names for everything what it is for and how to mend it', async () => {
    for (const finding of await examineMachine()) {
      expect(finding.found, finding.name).not.toBe('');
      expect(finding.purpose, finding.name).not.toBe('');
      expect(finding.remedy, finding.name).not.toBe('');
    }
  });

  it('names only Debian packages that the set-up script installs, and Go, which it asks for', async () => {
    const setup = await readFile(new URL('../../../scripts/setup', import.meta.url), 'utf8');
    for (const { remedy } of await examineMachine()) {
      const [, name] = /^apt-get install (.+)$/.exec(remedy) ?? [];
      if (name !== undefined && name !== 'golang-go') expect(setup).toMatch(new RegExp(` ${name}$`, 'm'));
    }
  });
});
