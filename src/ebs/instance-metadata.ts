import { HoldfastError, messageOf } from '../base/errors.js';

/** Who an EC2 instance is, by its own metadata service. */
export interface InstanceIdentity {
  readonly instanceId: string;
  /** E.g. `m6i.large`. */
  readonly instanceType: string;
  readonly region: string;
  /** Name of the availability zone, e.g. `eu-west-1a`. */
  readonly zone: string;
}

/** What EC2 has announced to an instance; both may stand at once, and neither is ever taken back for certain. */
export interface InstanceNotices {
  /** The instance is about to be taken away. `at`: ISO 8601, two minutes after the notice as a rule; for people. */
  readonly interruption?: { readonly action: string; readonly at: string };
  /** It is more likely than usual to be taken away soon. `at`: when that was said; for people. */
  readonly rebalance?: { readonly at: string };
}

/**
 * The instance metadata service, version 2 (EC2 user guide, "Use the Instance Metadata Service"): every question carries
 * a session token, which is asked for first. One instance's process asks for itself; nothing is kept but the token.
 *
 * Errors: `unavailable` where it does not answer, or not yet; `failed-precondition` where it is switched off;
 * `corrupt` where its answer is none.
 */
export class InstanceMetadata {
  #token: string | undefined;

  /** `url`: without a path, e.g. `http://169.254.169.254`. */
  constructor(private readonly url: string) {}

  async identity(): Promise<InstanceIdentity> {
    const text = await this.#get('/latest/dynamic/instance-identity/document');
    if (text === undefined) throw notYet('it has no identity document');
    const document = parse(text, 'the instance identity document');
    return {
      instanceId: wordOf(document, 'instanceId'),
      instanceType: wordOf(document, 'instanceType'),
      region: wordOf(document, 'region'),
      zone: wordOf(document, 'availabilityZone'),
    };
  }

  async notices(): Promise<InstanceNotices> {
    const interruption = await this.#get('/latest/meta-data/spot/instance-action');
    const rebalance = await this.#get('/latest/meta-data/events/recommendations/rebalance');
    return {
      ...(interruption !== undefined && { interruption: interruptionOf(parse(interruption, 'the spot notice')) }),
      ...(rebalance !== undefined && {
        rebalance: { at: wordOf(parse(rebalance, 'the rebalance recommendation'), 'noticeTime') },
      }),
    };
  }

  /** The text at a path; undefined where there is none. A token that has run out is asked for anew, once. */
  async #get(path: string): Promise<string | undefined> {
    for (let tries = 0; ; tries++) {
      this.#token ??= await this.#newToken();
      const answer = await this.#ask(path, { headers: { [TOKEN_HEADER]: this.#token } });
      if (answer.status === 401 && tries === 0) {
        this.#token = undefined;
        continue;
      }
      if (answer.status === 404) return undefined;
      if (answer.status !== 200) throw notYet(`it answered ${path} with HTTP ${answer.status}`);
      return answer.text;
    }
  }

  async #newToken(): Promise<string> {
    const { status, text } = await this.#ask('/latest/api/token', {
      method: 'PUT',
      headers: { [TOKEN_LIFE_HEADER]: String(TOKEN_LIFE_S) },
    });
    if (status === 403) {
      throw new HoldfastError(
        'failed-precondition',
        'the instance metadata service is switched off; enable its endpoint in the metadata options of the instance',
      );
    }
    if (status !== 200) throw notYet(`it gave no token but HTTP ${status}`);
    if (!TOKEN.test(text))
      throw new HoldfastError('corrupt', 'the instance metadata service gave a token that is none');
    return text;
  }

  async #ask(path: string, request: RequestInit): Promise<{ readonly status: number; readonly text: string }> {
    try {
      // A redirect leads away from the service.
      const signal = AbortSignal.timeout(ANSWER_MS);
      const answer = await fetch(`${this.url}${path}`, { ...request, redirect: 'manual', signal });
      return { status: answer.status, text: await answer.text() };
    } catch (error) {
      const hops = path.endsWith('/token') ? '; from a container it takes a hop limit of 2 or more to reach it' : '';
      throw notYet(`${reasonOf(error)}${hops}`, error);
    }
  }
}

const TOKEN_HEADER = 'X-aws-ec2-metadata-token';
const TOKEN_LIFE_HEADER = 'X-aws-ec2-metadata-token-ttl-seconds';
/** The longest that it gives. */
const TOKEN_LIFE_S = 21_600;
/** What can stand in a header. */
const TOKEN = /^[\x21-\x7e]{1,1024}$/;
/** It is on the same machine, and answers at once or not at all. */
const ANSWER_MS = 2_000;

function interruptionOf(notice: Fields): { action: string; at: string } {
  return { action: wordOf(notice, 'action'), at: wordOf(notice, 'time') };
}

type Fields = Readonly<Record<string, unknown>>;

function parse(text: string, what: string): Fields {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null) return value as Fields;
  } catch {
    // Told below.
  }
  throw new HoldfastError('corrupt', `${what} is no JSON object`);
}

function wordOf(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value === 'string' && /^[\x21-\x7e]{1,255}$/.test(value)) return value;
  throw new HoldfastError('corrupt', `the instance metadata service tells no ${name}`);
}

/** What fetch itself says is only that it failed. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return messageOf(cause ?? error);
}

function notYet(reason: string, cause?: unknown): HoldfastError {
  return new HoldfastError('unavailable', `the instance metadata service does not tell: ${reason}`, { cause });
}
