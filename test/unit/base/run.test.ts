import { describe, expect, it } from 'vitest';
import { run } from '../../../src/base/run.js';

const options = { timeoutMs: 20_000 };

describe('run', () => {
  it('gives back what the tool said', async () => {
    expect(await run('sh', ['-c', 'cat; echo warned >&2'], { ...options, input: 'ü in' })).toEqual({
      stdout: 'ü in',
      stderr: 'warned\n',
      code: 0,
    });
  });

  it('fails with the first words of a failing tool, less its banner', async () => {
    const says = 'echo "mke2fs 1.47.0 (5-Feb-2023)" >&2; echo the reason >&2; echo Usage: >&2; exit 3';
    const call = run('sh', ['-c', says], options);
    await expect(call).rejects.toMatchObject({
      code: 'io-error',
      message: expect.stringMatching(/exited with 3: the reason$/) as string,
    });
  });

  it('takes other codes for an answer where it is told to', async () => {
    expect((await run('sh', ['-c', 'exit 2'], { ...options, okCodes: [0, 2] })).code).toBe(2);
    await expect(run('sh', ['-c', 'exit 0'], { ...options, okCodes: [2] })).rejects.toMatchObject({ code: 'io-error' });
  });

  it('names the package of a tool that is not installed', async () => {
    await expect(run('no-such-tool', [], options)).rejects.toMatchObject({
      code: 'failed-precondition',
      message: expect.stringContaining('no-such-tool is not installed') as string,
    });
  });

  it('ends a tool that takes too long', async () => {
    const call = run('sh', ['-c', 'echo $$; exec sleep 600'], { timeoutMs: 200 });
    await expect(call).rejects.toMatchObject({ code: 'deadline-exceeded' });
  });

  it('answers in time though a child of the tool keeps its output open', async () => {
    const call = run('sh', ['-c', 'sleep 6 & sleep 6'], { timeoutMs: 100 });
    await expect(call).rejects.toMatchObject({ code: 'deadline-exceeded' });
  });

  it('says which signal ended a tool', async () => {
    await expect(run('sh', ['-c', 'kill -TERM $$'], options)).rejects.toMatchObject({
      code: 'io-error',
      message: expect.stringContaining('SIGTERM') as string,
    });
  });

  it('survives a tool that does not read its input', async () => {
    expect((await run('true', [], { ...options, input: 'x'.repeat(1_000_000) })).code).toBe(0);
  });
});
