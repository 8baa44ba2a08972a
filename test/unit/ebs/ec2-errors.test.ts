import { describe, expect, it } from 'vitest';
import { Ec2Error, toEc2Error, type Ec2ErrorKind } from '../../../src/ebs/ec2-errors.js';

const NOW = Date.parse('Tue, 01 Dec 2026 12:00:00 GMT');

/** An answer of EC2 as the SDK throws it. */
function answered(code: string, status: number, date?: string): Error {
  return Object.assign(new Error('words that nobody reads'), {
    name: code,
    $metadata: { httpStatusCode: status },
    $response: { headers: date === undefined ? {} : { date } },
  });
}

function failed(code: string): Error {
  return Object.assign(new Error(`connect ${code}`), { code, $metadata: { attempts: 1 } });
}

function mapped(error: unknown): Ec2Error {
  return toEc2Error(error, 'CreateVolume', 'a gp3 volume of 8 GiB in us-east-1a', NOW);
}

describe('a failed call of EC2', () => {
  it.each<[string, number, Ec2ErrorKind, string, Ec2Error['outcome']]>([
    ['RequestLimitExceeded', 503, 'throttled', 'unavailable', 'failed'],
    ['SomethingNew', 429, 'throttled', 'unavailable', 'failed'],
    ['UnauthorizedOperation', 403, 'denied', 'failed-precondition', 'failed'],
    ['InvalidVolume.NotFound', 400, 'not-found', 'not-found', 'failed'],
    ['VolumeInUse', 400, 'wrong-state', 'failed-precondition', 'failed'],
    ['IncorrectState', 400, 'wrong-state', 'failed-precondition', 'failed'],
    ['VolumeLimitExceeded', 400, 'limit', 'resource-exhausted', 'failed'],
    ['AttachmentLimitExceeded', 400, 'limit', 'resource-exhausted', 'failed'],
    ['InsufficientVolumeCapacity', 500, 'no-capacity', 'resource-exhausted', 'failed'],
    ['InvalidParameterValue', 400, 'invalid', 'invalid-argument', 'failed'],
    ['IdempotentParameterMismatch', 400, 'token-mismatch', 'already-exists', 'failed'],
    ['ExpiredToken', 400, 'expired-credentials', 'failed-precondition', 'failed'],
    ['RequestInTheFuture', 400, 'clock-skew', 'failed-precondition', 'failed'],
    ['InternalError', 500, 'server', 'unavailable', 'unknown'],
    ['Unavailable', 503, 'server', 'unavailable', 'unknown'],
    ['SyntaxError', 200, 'server', 'unavailable', 'unknown'],
  ])('with %s and HTTP %i is %s', (code, status, kind, holdfastCode, outcome) => {
    expect(mapped(answered(code, status))).toMatchObject({ kind, code: holdfastCode, outcome });
  });

  it.each([
    ['ECONNREFUSED', 'failed'],
    ['ENOTFOUND', 'failed'],
    ['ECONNRESET', 'unknown'],
    ['EPIPE', 'unknown'],
    ['ETIMEDOUT', 'unknown'],
  ])('with %s on the way is unreachable, and has an outcome that is %s', (code, outcome) => {
    expect(mapped(failed(code))).toMatchObject({ kind: 'unreachable', code: 'unavailable', outcome });
  });

  it('names the call, the thing, EC2’s code and the remedy', () => {
    expect(mapped(answered('UnauthorizedOperation', 403)).message).toBe(
      'EC2 CreateVolume of a gp3 volume of 8 GiB in us-east-1a: the role may not do this; it needs ec2:CreateVolume ' +
        'and ec2:CreateTags as in deploy/iam-policy.json (UnauthorizedOperation: words that nobody reads)',
    );
  });

  it.each([
    ['Tue, 01 Dec 2026 11:50:00 GMT', "this machine's clock is 10 min ahead of EC2's; set the clock"],
    ['Tue, 01 Dec 2026 13:00:30 GMT', "this machine's clock is 1 h behind EC2's; set the clock"],
  ])('is about the clock where the answer of %s says so', (date, words) => {
    for (const code of ['RequestExpired', 'AuthFailure', 'SignatureDoesNotMatch']) {
      const error = mapped(answered(code, 400, date));
      expect(error.kind).toBe('clock-skew');
      expect(error.message).toContain(words);
    }
  });

  it('is about the credentials where the clocks agree', () => {
    const date = 'Tue, 01 Dec 2026 11:59:58 GMT';
    expect(mapped(answered('RequestExpired', 400, date)).kind).toBe('expired-credentials');
    expect(mapped(answered('AuthFailure', 401, date)).kind).toBe('denied');
  });

  it('after a try without an answer is unknown, whatever it was refused with', () => {
    const error = mapped(answered('VolumeInUse', 400)).afterUnknown();
    expect(error).toMatchObject({ kind: 'wrong-state', outcome: 'unknown' });
    expect(error.message).toMatch(/; an earlier try may have been carried out$/);
  });

  it('survives whatever is thrown', () => {
    for (const thrown of [undefined, null, 'text', 7, {}]) expect(mapped(thrown).kind).toBe('unreachable');
  });
});
