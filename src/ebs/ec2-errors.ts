import { HoldfastError, messageOf, type ErrorCode } from '../base/errors.js';
import { inWords } from '../base/duration.js';
import { EC2_CALLS, type Ec2Action } from './calls.js';

/** The ways in which a call of EC2 fails. */
export type Ec2ErrorKind =
  /** EC2 asks for fewer calls. */
  | 'throttled'
  | 'denied'
  | 'not-found'
  /** In use, attached elsewhere, being modified. */
  | 'wrong-state'
  /** The account's or the instance's number of volumes, attachments or the like is reached. */
  | 'limit'
  /** The zone has none of it now. */
  | 'no-capacity'
  | 'invalid'
  /** The token was used before, for another specification. */
  | 'token-mismatch'
  /** This machine's clock and EC2's are too far apart. */
  | 'clock-skew'
  | 'expired-credentials'
  /** No source of credentials gives any. */
  | 'no-credentials'
  | 'unreachable'
  /** EC2 itself has failed. */
  | 'server';

interface KindRow {
  readonly code: ErrorCode;
  /** How many tries may be spent on it: 1 where it stays until somebody does something about it. */
  readonly tries: number;
  /** What it means and what would help. */
  readonly tell: (told: Told) => string;
}

/** What an error tells of itself, apart from its text. */
interface Told {
  readonly action: Ec2Action;
  /** EC2's code, or that of the system's error. */
  readonly code: string;
  /** HTTP status; undefined where there was no answer. */
  readonly status: number | undefined;
  /** How far this machine's clock is ahead of EC2's; undefined: not told. */
  readonly aheadMs: number | undefined;
}

const KINDS: Readonly<Record<Ec2ErrorKind, KindRow>> = {
  throttled: {
    code: 'unavailable',
    tries: Infinity,
    tell: () => 'EC2 is throttling this account, in which others may be making calls as well',
  },
  denied: {
    code: 'failed-precondition',
    tries: 1,
    tell: ({ action }) =>
      `the role may not do this; it needs ${EC2_CALLS[action].needs.join(' and ')} as in deploy/iam-policy.json`,
  },
  'not-found': { code: 'not-found', tries: 1, tell: () => 'EC2 knows no such thing' },
  'wrong-state': { code: 'failed-precondition', tries: 1, tell: () => 'its state does not allow it now' },
  limit: {
    code: 'resource-exhausted',
    tries: 1,
    tell: () => 'a limit of the account or the instance is reached; raise the quota or free some',
  },
  'no-capacity': {
    code: 'resource-exhausted',
    tries: 1,
    tell: () => 'the zone has no capacity for it now; try later, or another type or zone',
  },
  invalid: { code: 'invalid-argument', tries: 1, tell: () => 'EC2 refuses the request' },
  'token-mismatch': {
    code: 'already-exists',
    tries: 1,
    tell: () => 'its token was used before with another specification',
  },
  // The SDK signs with the corrected time from then on.
  'clock-skew': { code: 'failed-precondition', tries: 2, tell: ({ aheadMs }) => `${skew(aheadMs)}; set the clock` },
  'expired-credentials': {
    code: 'failed-precondition',
    tries: 2,
    tell: () => 'the AWS credentials have expired; see that their source gives fresh ones',
  },
  'no-credentials': {
    code: 'failed-precondition',
    tries: 3,
    tell: () => 'no source of AWS credentials gives any; give the service account a role',
  },
  unreachable: { code: 'unavailable', tries: Infinity, tell: () => 'EC2 gave no answer; check network, DNS and proxy' },
  server: {
    code: 'unavailable',
    tries: Infinity,
    tell: ({ status }) => `EC2 failed${status ? ` (HTTP ${status})` : ''}`,
  },
};

function skew(aheadMs: number | undefined): string {
  if (aheadMs === undefined) return "this machine's clock and EC2's are too far apart";
  return `this machine's clock is ${inWords(Math.abs(aheadMs))} ${aheadMs > 0 ? 'ahead of' : 'behind'} EC2's`;
}

/** EC2's codes (API reference, "Error codes"), by kind; what stands in none is judged by its HTTP status. */
const CODES: Readonly<Partial<Record<Ec2ErrorKind, readonly string[]>>> = {
  throttled: [
    'RequestLimitExceeded',
    'Throttling',
    'ThrottlingException',
    'ThrottledException',
    'EC2ThrottledException',
    'RequestThrottled',
    'RequestThrottledException',
    'TooManyRequestsException',
    'SlowDown',
    'ConcurrentTagAccess',
  ],
  denied: [
    'UnauthorizedOperation',
    'AccessDenied',
    'AccessDeniedException',
    'AuthFailure',
    'Blocked',
    'InvalidClientTokenId',
    'InvalidSignatureException',
    'MissingAuthenticationToken',
    'OptInRequired',
    'PendingVerification',
    'SignatureDoesNotMatch',
    'UnrecognizedClientException',
  ],
  'not-found': [
    'InvalidVolume.NotFound',
    'InvalidInstanceID.NotFound',
    'InvalidVolumeModification.NotFound',
    'InvalidAttachment.NotFound',
  ],
  'wrong-state': [
    'VolumeInUse',
    'IncorrectState',
    'IncorrectInstanceState',
    'IncorrectModificationState',
    'InvalidState',
    'DependencyViolation',
    'OperationNotPermitted',
    'VolumeModificationRateExceeded',
  ],
  limit: [
    'VolumeLimitExceeded',
    'AttachmentLimitExceeded',
    'MaxIOPSLimitExceeded',
    'ResourceLimitExceeded',
    'TagLimitExceeded',
    'LimitExceededException',
  ],
  'no-capacity': ['InsufficientVolumeCapacity', 'InsufficientCapacity'],
  'token-mismatch': ['IdempotentParameterMismatch'],
  'clock-skew': ['RequestInTheFuture', 'RequestTimeTooSkewed'],
  'expired-credentials': ['RequestExpired', 'ExpiredToken', 'ExpiredTokenException'],
  // Our own: an answer that lacks what it must have.
  server: ['corrupt'],
};

const KIND_OF_CODE: ReadonlyMap<string, Ec2ErrorKind> = new Map(
  (Object.entries(CODES) as [Ec2ErrorKind, readonly string[]][]).flatMap(([kind, codes]) =>
    codes.map((code) => [code, kind] as const),
  ),
);

/** Codes that a clock that is off gives as well; the time of the answer decides. */
const MAY_BE_SKEW: readonly string[] = [
  'RequestExpired',
  'AuthFailure',
  'InvalidSignatureException',
  'SignatureDoesNotMatch',
];
/** EC2 accepts less than 5 minutes. */
const SKEW_MS = 240_000;

/** Errors of the system after which nothing can have reached EC2. */
const NEVER_SENT: readonly string[] = [
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EADDRNOTAVAIL',
];

/** Longer words of EC2 (an encoded refusal has thousands of characters) are cut off. */
const WORDS_LIMIT_CHARACTERS = 240;

/** A failed call of EC2. */
export class Ec2Error extends HoldfastError {
  constructor(
    readonly kind: Ec2ErrorKind,
    /** `unknown`: the call may have been carried out, or may still be. `failed`: it was not and will not be. */
    readonly outcome: 'failed' | 'unknown',
    message: string,
    options?: { cause?: unknown },
  ) {
    super(KINDS[kind].code, message, options);
  }

  /** How many tries of a call may be spent on it. */
  get tries(): number {
    return KINDS[this.kind].tries;
  }

  /** The same after an earlier try of which nobody knows what it did. */
  afterUnknown(): Ec2Error {
    if (this.outcome === 'unknown') return this;
    return new Ec2Error(this.kind, 'unknown', `${this.message}; an earlier try may have been carried out`, {
      cause: this,
    });
  }
}

/**
 * Whatever a call was answered with, as an Ec2Error. `what` names the thing for the message, e.g. `volume vol-1`;
 * `wallMs`: this machine's wall clock when the answer came, in milliseconds since 1970.
 */
export function toEc2Error(error: unknown, action: Ec2Action, what: string, wallMs: number): Ec2Error {
  if (error instanceof Ec2Error) return error;
  const told = toldBy(error, action, wallMs);
  const kind = kindOf(told);
  const words = wordsOf(error);
  return new Ec2Error(
    kind,
    outcomeOf(kind, told),
    `EC2 ${action} of ${what}: ${KINDS[kind].tell(told)} (${told.code}: ${words})`,
    { cause: error },
  );
}

/** No source of credentials gave any; nothing was sent. */
export function noCredentials(error: unknown, action: Ec2Action, what: string): Ec2Error {
  const told = KINDS['no-credentials'].tell({ action, code: '', status: undefined, aheadMs: undefined });
  const words = wordsOf(error);
  return new Ec2Error('no-credentials', 'failed', `EC2 ${action} of ${what}: ${told} (${words})`, { cause: error });
}

/** A try without an answer in its time. */
export function noAnswer(action: Ec2Action, what: string): Ec2Error {
  const within = inWords(EC2_CALLS[action].timeoutMs);
  return new Ec2Error('unreachable', 'unknown', `EC2 ${action} of ${what}: no answer within ${within}`);
}

function wordsOf(error: unknown): string {
  return messageOf(error).replace(/\s+/g, ' ').slice(0, WORDS_LIMIT_CHARACTERS);
}

function kindOf({ code, status, aheadMs }: Told): Ec2ErrorKind {
  if (MAY_BE_SKEW.includes(code) && Math.abs(aheadMs ?? 0) >= SKEW_MS) return 'clock-skew';
  const known = KIND_OF_CODE.get(code);
  if (known !== undefined) return known;
  if (status === undefined) return 'unreachable';
  if (status === 429) return 'throttled';
  return status >= 400 && status < 500 ? 'invalid' : 'server';
}

function outcomeOf(kind: Ec2ErrorKind, { code }: Told): Ec2Error['outcome'] {
  if (kind === 'server') return 'unknown';
  return kind !== 'unreachable' || NEVER_SENT.includes(code) ? 'failed' : 'unknown';
}

/** The parts of the SDK's and the system's errors that are read; each may be missing or be something else. */
interface Parts {
  readonly name?: unknown;
  readonly code?: unknown;
  readonly $metadata?: { readonly httpStatusCode?: unknown };
  readonly $response?: { readonly headers?: Readonly<Record<string, unknown>> };
}

function toldBy(error: unknown, action: Ec2Action, wallMs: number): Told {
  const { name, code, $metadata, $response } = Object(error) as Parts;
  const status = $metadata?.httpStatusCode;
  const serverMs = Date.parse(String($response?.headers?.['date']));
  return {
    action,
    // A code stands in the name of the SDK's errors; the system's errors have one of their own.
    code: typeof code === 'string' ? code : String(name),
    status: typeof status === 'number' ? status : undefined,
    aheadMs: Number.isNaN(serverMs) ? undefined : wallMs - serverMs,
  };
}
